"""Who may come in: a token that works once, a cookie, this machine's names alone, and no other page's requests."""

from __future__ import annotations

import pytest

from tests.studio.conftest import ORIGIN, open_app, open_client
from unsee.errors import InputError
from unsee.studio.door import FORM, MB
from unsee.studio.hosting import check_key


@pytest.fixture
def outside(root, model):
    app, visitors = open_app(root, model)
    return open_client(app), visitors


def test_nothing_is_shown_without_the_cookie(outside):
    client, _ = outside
    for path in ("/", "/new", "/run/pets", "/events", "/image/pets?row=0", "/download/pets"):
        answer = client.get(path)
        assert answer.status_code == 401
        assert "unsee studio" in answer.text
        assert "pets" not in answer.text


def test_the_token_works_once_and_becomes_a_strict_cookie(outside):
    client, visitors = outside
    token = visitors.token
    assert client.get("/?token=wrong").status_code == 401
    first = client.get(f"/?token={token}")
    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/").status_code == 200
    client.cookies.clear()
    assert client.get(f"/?token={token}").status_code == 401


def test_the_cookie_outlives_a_restart_of_the_server(page, root, model):
    app, _ = open_app(root, model)
    again = open_client(app, cookies=dict(page.cookies))
    assert again.get("/").status_code == 200
    assert (root / ".studio" / "session").stat().st_mode & 0o077 == 0


def test_two_folders_of_runs_have_cookies_of_their_own(tmp_path):
    (_, one), (_, two) = (open_app(tmp_path / name) for name in ("a", "b"))
    assert one.cookie != two.cookie
    assert one.session != two.session


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", ""])
def test_another_host_name_is_refused(page, host):
    assert page.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:9000", "[::1]:9000"])
def test_names_of_this_machine_are_taken(page, host):
    assert page.get("/static/studio.css", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", ""])
def test_a_request_from_another_page_changes_nothing(page, root, origin):
    answer = page.post("/do/stop", data={"run": "pets"}, headers={"origin": origin})
    assert answer.status_code == 403
    assert "another page" in answer.text


def test_another_page_cannot_embed_anything(page):
    from_elsewhere = {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}
    assert page.get("/image/pets?row=0", headers=from_elsewhere).status_code == 403
    assert page.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200


def test_every_answer_carries_the_policy(page):
    for path in ("/", "/static/studio.css", "/nothing", "/image/pets?row=0", "/download/pets?what=classes"):
        headers = page.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == policy.pop("frame-ancestors") == policy.pop("base-uri") == "'none'"
        assert set(policy) == {"script-src", "style-src", "img-src", "connect-src", "form-action"}
        assert set(policy.values()) == {"'self'"}
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"


def test_a_body_that_is_too_large_is_refused_in_words(page):
    answer = page.post("/do/stop", content=b"x", headers={"content-length": str(FORM + 1)})
    assert answer.status_code == 413
    answer = page.post("/try", content=b"", headers={"content-length": str(200 * MB)})
    assert answer.status_code == 413
    assert "larger than the 32 MB" in answer.text

    def pieces():
        for _ in range(5):
            yield b"x" * (FORM // 4)

    answer = page.post("/do/stop", content=pieces(), headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 413


def test_other_machines_need_a_key_that_cannot_be_guessed(root, model):
    check_key("127.0.0.1", None)
    with pytest.raises(InputError, match="--key-file"):
        check_key("0.0.0.0", None)
    with pytest.raises(InputError, match="at least 16"):
        check_key("0.0.0.0", "short")
    app, _ = open_app(root, model, key="k" * 20)
    client = open_client(app)
    elsewhere = {"host": "page.example", "origin": "http://page.example"}
    assert 'name="key"' in client.get("/", headers=elsewhere).text
    assert client.post("/enter", data={"key": "wrong"}, headers=elsewhere).status_code == 401
    assert client.post("/enter", data={"key": "k" * 20}, headers={**elsewhere, "origin": ORIGIN}).status_code == 403
    entered = client.post("/enter", data={"key": "k" * 20}, headers=elsewhere)
    assert entered.status_code == 303
    cookie = entered.headers["set-cookie"].partition(";")[0]
    assert client.get("/", headers={**elsewhere, "cookie": cookie}).status_code == 200
