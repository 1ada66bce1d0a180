"""Keys: hashed, and nobody learns anything about anybody else, not even by the clock."""

from __future__ import annotations

import base64
import json
import statistics
import time

import numpy as np
import pytest

import unsee
from unsee.models.remote.remote_model import RemoteModel, image_file
from unsee.models.remote.wire import pack
from unsee.serve.keys import Keys, add_key, read_keys

CONTEXTS = {"contexts": np.zeros((1, 2, 64), np.float32)}


@pytest.fixture
def belongings(remote, data):
    """An image set of alice, and a prompt."""
    bound = remote.bind(data.test.subset(range(3)), data.class_names)
    card = {"prompt": "", "contexts": 2, "width": 64, "class_names": ["cat", "dog"], "forget": ["cat"], "model": "m"}
    card |= {"model_fingerprint": remote.card.fingerprint, "template": "a {}.", "sha256": ""}
    remote.deploy("secret", CONTEXTS["contexts"][0], json.dumps(card))
    yield bound._facts["images"], "secret"
    remote.withdraw("secret")


def routes(images: str, prompt: str, data):
    """Requests that touch an image set or a prompt."""
    facts = {"images": images, "class_names": '["cat", "dog"]'}
    inputs = base64.b64encode(image_file(data.test, 0)).decode()
    return [
        ("GET", f"/v1/images/{images}", {}),
        ("DELETE", f"/v1/images/{images}", {}),
        ("POST", "/v1/confidences", {"content": pack(CONTEXTS, facts)}),
        ("GET", f"/v1/prompts/{prompt}", {}),
        ("DELETE", f"/v1/prompts/{prompt}", {}),
        ("POST", "/v1/classify", {"json": {"inputs": inputs, "parameters": {"prompt": prompt}}}),
    ]


@pytest.mark.parametrize("who", [None, "wrong", "unsee_" + "x" * 43])
def test_without_a_valid_key_every_route_says_the_same(ask, belongings, data, who):
    also = [("GET", path, {}) for path in ("/v1/card", "/v1/usage", "/v1/prompts", "/metrics", "/v1/nothing")]
    for method, path, given in [*routes(*belongings, data), *also]:
        response = ask(method, path, who, **given)
        assert response.status_code == 401
        assert response.json()["error"]["field"] == "authorization"
        assert response.content == ask("GET", "/v1/card", None).content
        assert response.headers["www-authenticate"] == "Bearer"


def test_what_belongs_to_another_key_is_as_absent_as_what_never_was(ask, belongings, data):
    theirs = [ask(*route[:2], "carol", **route[2]) for route in routes(*belongings, data)]
    never = [ask(*route[:2], "carol", **route[2]) for route in routes("0" * 64, "nothing", data)]
    assert [response.status_code for response in theirs] == [404] * 6
    assert [response.content for response in theirs] == [response.content for response in never]
    assert belongings[1] not in ask("GET", "/v1/prompts", "carol").text
    assert ask("GET", f"/v1/images/{belongings[0]}").status_code == 200  # alice still has hers


def test_refusals_take_the_same_time(ask, belongings, keys):
    """Medians of alternating requests: a wrong key as long as none, another's set as long as none at all."""
    near = keys["alice"][:-1] + ("a" if keys["alice"][-1] != "a" else "b")
    images = belongings[0]

    def seconds(first, second) -> float:
        times = ([], [])
        for _ in range(60):
            for request, found in zip((first, second), times, strict=True):
                start = time.perf_counter()
                ask(*request)
                found.append(time.perf_counter() - start)
        low, high = sorted(statistics.median(found) for found in times)
        return (high - low) / high

    pairs = [
        (("GET", "/v1/card", None), ("GET", "/v1/card", near)),
        (("GET", f"/v1/images/{images}", "carol"), ("GET", f"/v1/images/{'0' * 64}", "carol")),
    ]
    for pair in pairs:  # on a busy machine one measurement may be off; a true difference is there every time
        assert any(seconds(*pair) < 0.2 for _ in range(4))


def test_keys_are_hashed_and_the_file_is_private(tmp_path):
    path = tmp_path / "keys.toml"
    keys = [add_key(path, name) for name in ("a", "b")]
    assert all(key not in path.read_text() for key in keys)
    assert path.stat().st_mode & 0o077 == 0
    found = read_keys(path)
    assert [found.find(key).name for key in keys] == ["a", "b"]
    assert found.find(keys[0][:-1]) is None
    with pytest.raises(unsee.InputError, match="there is a key for a already"):
        add_key(path, "a")
    with pytest.raises(unsee.InputError, match="must be 1 to 64"):
        add_key(path, "a b")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no key"),
        ("[a", "not TOML"),
        ("a = 3", "not a table"),
        ("[a]\nsha256 = 'x'", "64 hexadecimal digits"),
        (f"[a]\nsha256 = '{'0' * 64}'\ncandidats = 3", "no limit 'candidats'"),
        (f"[a]\nsha256 = '{'0' * 64}'\ncandidates = -3", "above 0"),
        (f"[a]\nsha256 = '{'0' * 64}'\n[b]\nsha256 = '{'0' * 64}'", "the same key"),
    ],
)
def test_a_keys_file_with_a_mistake_is_a_clear_line(tmp_path, text, says):
    (tmp_path / "keys.toml").write_text(text)
    with pytest.raises(unsee.InputError, match=says):
        read_keys(tmp_path / "keys.toml")


def test_every_hash_is_compared_whatever_the_key(monkeypatch, tmp_path):
    add_key(tmp_path / "k", "a"), add_key(tmp_path / "k", "b")
    compared = []
    monkeypatch.setattr("unsee.serve.keys.hmac.compare_digest", lambda a, b: compared.append(a) or a == b)
    keys: Keys = read_keys(tmp_path / "k")
    keys.find("no such key")
    assert len(compared) == 2


def test_a_budget_is_a_hard_limit_and_says_what_is_left(served, keys, data):
    with RemoteModel(served.url, keys["poor"]) as poor:
        bound = poor.bind(data.test.subset(range(5)), data.class_names)
        bound.confidences(np.zeros((2, 2, 64), np.float32))
        with pytest.raises(unsee.ModelError, match="candidates: the budget is 3, 1 are left, 2 were asked"):
            bound.confidences(np.ones((2, 2, 64), np.float32))
        bound.zero_shot("a {}.")
        assert poor.usage()["spent"]["candidates"] == poor.spent.candidates == 3
        assert poor.usage()["limits"]["candidates"] == 3
        with pytest.raises(unsee.ModelError, match="stored_bytes"):
            poor.bind(np.random.default_rng(0).integers(0, 255, (200, 8, 8, 3), dtype=np.uint8), ["cat"])


def test_a_client_that_asks_too_fast_is_told_to_wait(ask):
    responses = [ask("GET", "/v1/card", "slow") for _ in range(4)]
    late = next(response for response in responses if response.status_code == 429)
    assert int(late.headers["retry-after"]) >= 1
    assert late.json()["error"]["field"] == "authorization"
