"""A hostile service: its client stays small, stops in time, keeps its key and says in one line what is wrong."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
import time

import numpy as np
import pytest

import unsee
from tests.serve.test_connection import Scripted
from unsee.models.remote import connection
from unsee.models.remote.connection import Connection
from unsee.models.remote.remote_model import RemoteModel
from unsee.models.remote.wire import MEDIA, pack

CARD = {
    "name": "mini",
    "fingerprint": "0" * 64,
    "width": 4,
    "token_limit": 8,
    "token_mean": [0.0] * 4,
    "token_std": 0.1,
    "answers": "all",
    "limits": dict.fromkeys(("body_bytes", "answer_bytes", "images", "files", "classes", "candidates"), 10**6),
}
# For 127.0.0.1 until 2126, signed by itself. Nothing else uses this key.
PEM = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgHs3B6fMy+97pPCPv
cQ+VuFbt/K0jYJUp1nYjBlxaeYqhRANCAARDuheBHz89HbKoNtiBuxHeJALRFEww
4rPrpwRqDoVra2dp/BQEAwfLJXPZF2DJV+GrEL0bSKjT1zdXV1neiLMb
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBnDCCAUGgAwIBAgIUMQX6DH9ED0+7097HSxqbDOygkNcwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTExODA2NDQxM1oYDzIxMjYxMDI1
MDY0NDEzWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARDuheBHz89HbKoNtiBuxHeJALRFEww4rPrpwRqDoVra2dp/BQEAwfL
JXPZF2DJV+GrEL0bSKjT1zdXV1neiLMbo28wbTAdBgNVHQ4EFgQUJLtoTvFAKQBH
/GVSRGO/ilaSaqIwHwYDVR0jBBgwFoAUJLtoTvFAKQBH/GVSRGO/ilaSaqIwDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDSQAwRgIhALo3xo8DIjiiOd2Ijpav5qPnhBxgVkwr2L2UAfg0tT3EAiEA
5OiaNccemv3uPLlm38jZDAfWpwwyrgskm5FF5nSOjYU=
-----END CERTIFICATE-----
"""


@pytest.fixture
def scripted():
    servers = []

    def start(*answers):
        servers.append(Scripted(*answers))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def of_card(**changes):
    return 200, {}, json.dumps(CARD | changes).encode()


def test_a_compressed_answer_is_not_unpacked(scripted):
    server = scripted((200, {"content-encoding": "gzip"}, gzip.compress(bytes(2**22))))
    found = Connection(server.url, patience=5)
    with pytest.raises(unsee.ModelError, match="compressed its answer, which nobody asked for"):
        found.get("/v1/card")
    assert len(server.heads) == 1
    assert server.heads[0]["accept-encoding"] == "identity"
    found.close()


def test_an_answer_longer_than_the_question_allows_is_not_read(scripted, monkeypatch):
    monkeypatch.setattr(connection, "BESIDE_ARRAYS", 1000)
    server = scripted((200, {}, bytes(1000)), (200, {}, bytes(1001)))
    found = Connection(server.url, patience=5)
    assert len(found.get("/").content) == 1000
    with pytest.raises(unsee.ModelError, match="sends more than the 1000 bytes"):
        found.get("/")
    assert len(server.heads) == 2
    found.close()


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n"])
def test_a_trickle_ends_with_patience(start):
    def trickle() -> None:
        other, _ = listening.accept()
        with other:
            other.sendall(start)
            ends = time.monotonic() + 6
            while time.monotonic() < ends and not stopped.wait(0.05):
                try:
                    other.sendall(b"a")
                except OSError:
                    return

    stopped = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=trickle, daemon=True).start()
        found, started = Connection(f"http://127.0.0.1:{listening.getsockname()[1]}", patience=0.5), time.monotonic()
        with pytest.raises(unsee.ModelError, match="cannot be reached"):
            found.get("/")
        assert time.monotonic() - started < 2
        found.close()
        stopped.set()


def test_an_untrusted_certificate_is_said_at_once(tmp_path):
    def shake_hands() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "both.pem")
        while True:
            try:
                other, _ = listening.accept()
                met.append(other)
                context.wrap_socket(other, server_side=True)
            except ssl.SSLError:
                other.close()
            except OSError:
                return

    (tmp_path / "both.pem").write_text(PEM)
    met = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=shake_hands, daemon=True)
        thread.start()
        with pytest.raises(unsee.ModelError, match=r"certificate is not trusted \(self-signed.*SSL_CERT_FILE"):
            RemoteModel(f"https://127.0.0.1:{listening.getsockname()[1]}", "key")
        assert len(met) == 1
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.mark.parametrize("host", ["192.0.2.1:8000", "service.example", "127.0.0.1.example", "[2001:db8::1]", "127.1"])
def test_a_key_does_not_cross_a_network_in_plain_text(host, monkeypatch):
    monkeypatch.setattr(connection, "FIRST_CONTACT", 0.01)
    with pytest.raises(unsee.InputError, match=r"plain text.*https.*--insecure"):
        unsee.load_model(f"http://{host}", key="secret")


@pytest.mark.parametrize("url", ["http://127.0.0.9:1", "http://localhost", "http://[::1]:1", "https://service.example"])
def test_a_key_may_be_sent_to_this_machine_or_through_tls(url):
    Connection(url, "secret").close()


def test_the_user_may_trust_the_network():
    Connection("http://service.example", "secret", insecure=True).close()
    Connection("http://service.example").close()


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 10**12, "token_mean": None},
        {"width": -4},
        {"width": True, "token_mean": [0.0]},
        {"width": 1e400, "token_mean": None},
        {"token_mean": [float("nan")] * 4},
        {"token_mean": [1e300] * 4},
        {"token_mean": [[0.0]] * 4},
        {"token_std": -1.0},
        {"token_std": float("inf")},
        {"token_limit": 10**18},
        {"token_limit": 0},
        {"name": "a" * 10**6},
        {"name": "mini\x1b[2J"},
        {"fingerprint": {"a": 1}},
        {"answers": "everything"},
        {"limits": CARD["limits"] | {"candidates": 0}},
        {"limits": CARD["limits"] | {"answer_bytes": "many"}},
        {"limits": {"candidates": 1}},
        {"limits": [1, 2]},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_hostile_card_is_refused_in_one_line(scripted, changes):
    with pytest.raises(unsee.ModelError, match="its card is not that of unsee serve") as found:
        RemoteModel(scripted(of_card(**changes)).url)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 300


def test_json_that_is_too_deep_is_refused_in_one_line(scripted):
    deep = b'{"a":' * 10**5
    with pytest.raises(unsee.ModelError, match="its card is not that of unsee serve"):
        RemoteModel(scripted((200, {}, deep)).url)
    with pytest.raises(unsee.ModelError, match=r"refuses \(400\)"):
        Connection(scripted((400, {}, deep)).url).get("/")


PIXELS = np.zeros((2, 4, 4, 3), dtype=np.uint8)
STORED = 200, {}, b"{}"


def answer(**arrays):
    return 200, {"content-type": MEDIA}, pack({name: np.asarray(array) for name, array in arrays.items()})


def floats(*shape, value=-0.5):
    return np.full(shape, value, dtype=np.float32)


def places(*shape, value=0):
    return np.full(shape, value, dtype=np.int32)


@pytest.mark.parametrize(
    ("answers", "arrays"),
    [
        ("all", {"log_confidences": floats(1, 2)}),
        ("all", {"log_confidences": floats(1, 2, 3, value=5)}),
        ("all", {"log_confidences": places(1, 2, 3)}),
        ("all", {"confidences": floats(1, 2, 3)}),
        ("top-2", {"top": places(1, 2), "confidences": floats(1, 2)}),
        ("top-2", {"top": places(1, 2, 0), "confidences": floats(1, 2, 0)}),
        ("top-2", {"top": places(1, 2, 4), "confidences": floats(1, 2, 4)}),
        ("top-2", {"top": places(1, 2, 2, value=3), "confidences": floats(1, 2, 2)}),
        ("top-2", {"top": floats(1, 2, 2), "confidences": floats(1, 2, 2)}),
        ("top-2", {"top": places(1, 2, 2), "confidences": places(1, 2, 2)}),
        ("top-2", {"top": places(1, 2, 2), "confidences": floats(1, 2, 2, value=7)}),
        ("label", {"top": places(1, 2, 1, 1)}),
    ],
)
def test_an_answer_of_a_hostile_shape_is_refused_in_one_line(scripted, answers, arrays):
    server = scripted(of_card(answers=answers), STORED, answer(**arrays))
    with RemoteModel(server.url) as model, pytest.raises(unsee.ModelError, match=r"answered in another|no confidence"):
        model.bind(PIXELS, ["a", "b", "c"]).confidences(floats(1, 1, 4))


@pytest.mark.parametrize("body", [b"[]", b'{"missing": 5}', b'{"missing": [[1], {}]}', b'{"missing": null}'])
def test_a_hostile_list_of_missing_images_is_refused_in_one_line(scripted, body):
    server = scripted(of_card(), (404, {}, body))
    with RemoteModel(server.url) as model, pytest.raises(unsee.ModelError, match="does not keep the images"):
        model.bind(PIXELS, ["a", "b", "c"])


def test_the_answer_to_a_question_has_room_for_its_shape(scripted, monkeypatch):
    """A large answer that was asked for is read, and one byte per number more than that is not."""
    monkeypatch.setattr(connection, "BESIDE_ARRAYS", 2000)
    whole = answer(log_confidences=floats(100, 2, 3), more=floats(500))
    server = scripted(of_card(), STORED, whole, answer(log_confidences=floats(100, 2, 3), more=floats(5000)))
    with RemoteModel(server.url) as model:
        bound = model.bind(PIXELS, ["a", "b", "c"])
        assert bound.confidences(floats(100, 1, 4)).shape == (100, 2, 3)
        with pytest.raises(unsee.ModelError, match="sends more than the"):
            bound.confidences(floats(100, 1, 4, value=1))
