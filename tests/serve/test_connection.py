"""What the client tries again, what it does not, and which answers it does not believe."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import unsee
from unsee.models.remote import connection
from unsee.models.remote.connection import Connection
from unsee.models.remote.remote_model import RemoteModel
from unsee.models.remote.wire import ACKNOWLEDGE, IDEMPOTENCY_KEY, REQUEST_ID, SHA256


class Scripted:
    """A server that answers with what it is told, one after the other; the last answer is repeated."""

    def __init__(self, *answers) -> None:
        self.heads = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler):
                status, changes, body = answers[min(len(self.heads), len(answers) - 1)]
                self.heads.append(dict(handler.headers.items()))
                own = {REQUEST_ID: handler.headers[REQUEST_ID], SHA256: hashlib.sha256(body).hexdigest()}
                handler.send_response(status)
                for name, value in {**own, "content-length": str(len(body)), **changes}.items():
                    if value is not None:
                        handler.send_header(name, value)
                handler.end_headers()
                handler.wfile.write(body)

            def do_POST(handler):
                handler.rfile.read(int(handler.headers["content-length"]))
                handler.do_GET()

            def log_message(handler, *words) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def scripted():
    servers = []

    def start(*answers):
        servers.append(Scripted(*answers))
        return servers[-1], Connection(servers[-1].url, "key", patience=5)

    yield start
    for server in servers:
        server.stop()


FINE = (200, {}, b"{}")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.001)


@pytest.mark.parametrize(
    "trouble",
    [
        (500, {}, b"broken"),
        (502, {REQUEST_ID: None}, b"<html>a proxy's own page</html>"),
        (503, {"retry-after": "0"}, b'{"error": {"field": "time", "message": "later"}}'),
        (429, {"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"}, b"{}"),
        (200, {REQUEST_ID: "another"}, b"{}"),
        (200, {REQUEST_ID: None}, b"{}"),
        (200, {SHA256: "0" * 64}, b"{}"),
        (200, {"content-length": "9"}, b"{}"),
    ],
    ids=lambda trouble: f"{trouble[0]} {' '.join(trouble[1])}",
)
def test_trouble_is_tried_again_under_the_same_key(scripted, trouble):
    server, found = scripted(trouble, trouble, FINE)
    assert found.send("GET", "/", key="once").content == b"{}"
    assert len(server.heads) == 3
    assert {head[IDEMPOTENCY_KEY] for head in server.heads} == {"once"}
    assert len({head[REQUEST_ID] for head in server.heads}) == 3
    found.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
def test_a_refusal_is_final(scripted, status):
    body = json.dumps({"error": {"field": "contexts", "message": "too long"}}).encode()
    server, found = scripted((status, {}, body))
    with pytest.raises(unsee.UnseeError):
        found.get("/")
    assert len(server.heads) == 1
    found.close()


def test_a_pause_asked_for_is_made(scripted, monkeypatch):
    pauses = []
    monkeypatch.setattr(connection.time, "sleep", pauses.append)
    _, found = scripted((429, {"retry-after": "3"}, b"{}"), FINE)
    found.get("/")
    assert pauses == [3.0]
    found.close()


def test_answers_are_acknowledged_until_the_server_has_heard_it(scripted):
    server, found = scripted((500, {}, b""), FINE)
    found.arrived("a"), found.arrived("b")
    found.get("/")
    found.get("/")
    assert [head.get(ACKNOWLEDGE) for head in server.heads] == ["a,b", "a,b", None]
    found.close()


@pytest.mark.parametrize("card", [b"{}", b"[]", b'{"width": 3, "token_mean": [1], "token_std": 1}', b"no json"])
def test_something_else_at_the_address_is_a_clear_line(scripted, card):
    server, found = scripted((200, {}, card))
    found.close()
    with pytest.raises(unsee.ModelError, match="unsee serve"):
        RemoteModel(server.url)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "reason"),
    [("127.0.0.1:{port}", "refused"), ("no-such-host.invalid:8000", "not known|resolution|resolve")],
)
def test_a_wrong_address_is_one_line_within_seconds(host, reason):
    url, started = f"http://{host.format(port=free_port())}", time.monotonic()
    with pytest.raises(
        unsee.ModelError, match=rf"cannot be reached .*({reason}).*: is unsee serve running there"
    ) as found:
        RemoteModel(url)
    assert time.monotonic() - started < connection.FIRST_CONTACT + 5
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {REQUEST_ID: None, SHA256: None}, b"<html>not found</html>"),
        (302, {REQUEST_ID: None, SHA256: None, "location": "https://elsewhere"}, b""),
        (200, {REQUEST_ID: None, SHA256: None}, b"<html>hello</html>"),
        (500, {REQUEST_ID: None, SHA256: None}, b"<html>broken</html>"),
    ],
    ids=lambda answer: str(answer[0]),
)
def test_another_service_at_the_address_is_one_line_within_seconds(scripted, monkeypatch, answer):
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.3)
    server, found = scripted(answer)
    found.close()
    with pytest.raises(unsee.ModelError, match="unsee serve"):
        RemoteModel(server.url)


def test_a_service_that_says_nothing_is_given_up_within_seconds(monkeypatch):
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        with pytest.raises(unsee.ModelError, match="cannot be reached"):
            RemoteModel(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert time.monotonic() - started < 5


def test_a_service_that_was_reached_is_waited_for(scripted, monkeypatch):
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.2)
    monkeypatch.setattr(connection.time, "sleep", lambda seconds: None)
    away = [(502, {REQUEST_ID: None}, b"")] * 11
    server, found = scripted(FINE, *away, FINE)
    assert found.get("/").content == found.get("/").content == b"{}"
    assert len(server.heads) == 13
    found.close()


def test_a_service_that_is_busy_at_first_contact_is_waited_for(scripted, monkeypatch):
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.2)
    monkeypatch.setattr(connection.time, "sleep", lambda seconds: None)
    server, found = scripted(*[(503, {"retry-after": "1"}, b"{}")] * 3, FINE)
    assert found.get("/").content == b"{}"
    assert len(server.heads) == 4
    found.close()


def test_without_httpx_the_install_line_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "httpx", None)
    with pytest.raises(unsee.MissingExtra, match=r"pip install .*\[remote\]"):
        unsee.load_model("http://127.0.0.1:1")
