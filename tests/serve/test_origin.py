"""Requests that a web page or a proxy smuggles in: refused before anything is done."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from tests.serve.servers import ThreadServer


@pytest.fixture(scope="module")
def without_keys(model, tmp_path_factory):
    server = ThreadServer(model, tmp_path_factory.mktemp("no-keys"), hosts=["Models.Example"])
    yield server
    server.stop()


def status(server, **headers):
    response = httpx.get(f"{server.url}/v1/usage", headers={"x-request-id": "mine", **headers})
    if response.status_code >= 400:
        assert response.headers["x-request-id"] == "mine"
        return response.status_code, response.json()["error"]["field"]
    return response.status_code


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost:8000", "[::1]:8000", "192.0.2.7:8000", "unsee:8000", "models.example", "a.localhost"],
)
def test_without_keys_addresses_and_names_of_this_network_are_served(without_keys, host):
    assert status(without_keys, host=host) == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "localhost.evil", "[::1", "a@b.c", ""])
def test_without_keys_another_name_for_this_address_is_refused(without_keys, host):
    """DNS rebinding: a page of evil.example, whose name is made to point here, would be of the same origin."""
    assert status(without_keys, host=host) == (403, "host")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://[", ""])
def test_without_keys_a_page_of_another_origin_is_refused(without_keys, origin):
    assert status(without_keys, origin=origin) == (403, "origin")


def test_a_page_of_the_service_itself_may_ask(without_keys):
    assert status(without_keys, origin=without_keys.url) == 200


def test_with_keys_name_and_origin_do_not_matter(ask):
    """A browser sends no key by itself."""
    headers = {"host": "models.example", "origin": "http://elsewhere.example"}
    assert ask("GET", "/v1/usage", headers=headers).status_code == 200


@pytest.mark.parametrize("keys", [True, False])
def test_a_body_with_two_lengths_is_refused_and_hung_up_on(served, without_keys, keys):
    server = served if keys else without_keys
    lengths = b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n"
    smuggled = b"POST /v1/classify HTTP/1.1\r\nhost: 127.0.0.1\r\n" + lengths
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(smuggled + b"0\r\n\r\n" + b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        answer = b""
        while part := raw.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1, "what follows was taken for a request"
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["field"] == "transfer-encoding"
