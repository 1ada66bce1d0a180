"""Running the service: logs, metrics, TLS, reloading, private files, and a model that is changed under a run."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import time

import httpx
import numpy as np
import pytest

import unsee
from tests import tiny
from tests.serve.servers import ThreadServer, free_port
from tests.serve.test_policy import asked, message
from unsee.models.remote.remote_model import RemoteModel, image_file
from unsee.models.remote.wire import unpack
from unsee.serve.access_log import ServiceLog
from unsee.serve.engine import IMAGE_TOKENS, ClassList, Engine, Question
from unsee.serve.keys import Client, add_key, read_keys
from unsee.serve.ledger import Price, ServiceLedger
from unsee.serve.server import make_server


@pytest.fixture(scope="module")
def other_model(tmp_path_factory):
    """The same image tower with another text tower: image sets stay known."""
    clip = tiny.make_clip()
    clip.text_model.embeddings.token_embedding.weight.data *= 1.5
    clip.save_pretrained(folder := tmp_path_factory.mktemp("other"))
    return unsee.load_model(folder)


def test_a_run_whose_server_changes_its_model_stops_and_goes_on_when_it_is_back(model, other_model, data, tmp_path):
    contexts, port = np.ones((1, 2, 64), np.float32), free_port()
    server = ThreadServer(model, tmp_path, port=port)
    with RemoteModel(server.url) as remote:
        bound = remote.bind(data.test.subset(range(3)), data.class_names)
        before = bound.confidences(contexts)
        server.stop()
        server = ThreadServer(other_model, tmp_path, port=port)
        with pytest.raises(unsee.ModelError, match=r"has changed its model.*unsee resume"):
            bound.confidences(contexts)
        server.stop()
        server = ThreadServer(model, tmp_path, port=port)
        assert np.array_equal(bound.confidences(contexts), before)
    server.stop()


def test_the_model_is_named_in_every_answer_and_in_what_is_stored(ask, remote, data, model, keys):
    bound = remote.bind(data.test.subset(range(3)), data.class_names)
    for response in (ask("GET", "/v1/card"), ask("GET", "/v1/nothing"), ask("POST", "/v1/confidences")):
        assert response.headers["unsee-model"] == model.card.fingerprint
    assert "unsee-model" not in ask("GET", "/v1/card", None).headers
    refused = ask("GET", "/v1/card", headers={"unsee-model": "another"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (412, "unsee-model")
    sent = []
    keep = remote.connection.send
    remote.connection.send = lambda *given, **named: sent.append(keep(*given, **named)) or sent[-1]
    bound.confidences(np.ones((1, 2, 64), np.float32))
    assert unpack(sent[0].content).facts["model"] == model.card.fingerprint


def test_a_class_list_that_is_bound_for_one_client_answers_no_other_sooner(model, monkeypatch):
    bound = []
    bind = type(model).bind_names
    monkeypatch.setattr(type(model), "bind_names", lambda *given: bound.append(given) or bind(*given))
    engine, features = Engine(model), np.ones((1, 32), np.float32)
    for owner, times in (("alice", 1), ("alice", 1), ("bob", 2), ("alice", 2)):
        question = Question(ClassList(("secret", "list"), owner=owner), np.zeros((1, 2, 64), np.float32), features)
        engine.answer([question])
        assert len(bound) == times
    assert Question(ClassList(("a",), owner="x"), None, features).merges_with == (None, ClassList(("a",)))


def test_the_state_is_private_even_where_an_earlier_version_left_it_open(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    (folder / "serve.sqlite").touch(0o644)
    ledger = ServiceLedger(folder)
    ledger.settle(ledger.reserve(Client("a"), Price(1, 1)), "a", Price(1, 1))
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    ledger.close()
    assert {"serve.sqlite", "serve.sqlite-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.fixture(scope="module")
def watched(model, tmp_path_factory):
    """A server with logs, metrics, a prompt for everybody and a key that is added later."""
    folder = tmp_path_factory.mktemp("watched")
    keys = {name: add_key(folder / "keys", name) for name in ("alice", "boss")}
    with (folder / "keys").open("a") as file:
        file.write('role = "operate"\n')
    log = ServiceLog(folder / "access", folder / "audit")
    port = free_port()
    found = read_keys(folder / "keys")
    server = ThreadServer(model, folder / "state", found, log=log, metrics=("127.0.0.1", port))
    yield server, folder, keys, port
    server.stop()


def lines(path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def logged(watched, file: str, ids) -> dict[str, dict[str, object]]:
    """The lines about these requests; one is written after its answer was sent."""
    wait_for(lambda: set(ids) <= {line.get("id") for line in lines(watched[1] / file)})
    return {line["id"]: line for line in lines(watched[1] / file) if line.get("id") in [*ids]}


def send(watched, method, path, who, **given):
    headers = {"authorization": f"Bearer {watched[2].get(who, who)}", "x-request-id": given.pop("id", "r")}
    return httpx.request(method, watched[0].url + path, headers=headers, **given)


def test_the_access_log_has_every_request_and_never_contents(watched, data):
    image = image_file(data.test, 0)
    body = asked(image, candidate_labels=["cat", "a secret"])
    assert send(watched, "POST", "/v1/classify", "alice", json=body, id="first").status_code == 200
    send(watched, "GET", "/v1/a-secret", "alice", id="second")
    one, two = logged(watched, "access", ["first", "second"]).values()
    assert "secret" not in (watched[1] / "access").read_text()
    assert (one["client"], one["route"], one["status"]) == ("alice", "/v1/classify", 200)
    assert (one["charged"]["candidates"], one["charged"]["image_queries"]) == (0, 1)
    assert one["charged"]["tokens"] > IMAGE_TOKENS  # and those of the labels
    assert one["milliseconds"] > 0
    assert one["time"].endswith("+00:00")
    assert (two["route"], two["status"], two["charged"]["image_queries"]) == ("none", 404, 0)
    assert (watched[1] / "access").stat().st_mode & 0o777 == 0o600


def test_the_audit_log_has_refusals_deployments_and_withdrawals(watched, model):
    send(watched, "GET", "/v1/card", "wrong", id="a")
    send(watched, "GET", "/metrics", "alice", id="b")
    assert send(watched, "PUT", "/v1/prompts/pets", "boss", content=message(model), id="c").status_code == 200
    send(watched, "DELETE", "/v1/prompts/pets", "boss", id="d")
    found = logged(watched, "audit", "abcd")
    kinds = [(found[i]["event"], found[i]["client"], found[i].get("field"), found[i].get("prompt")) for i in "abcd"]
    assert kinds == [
        ("refused", None, "authorization", None),
        ("refused", "alice", "role", None),
        ("deployed", "boss", None, "pets"),
        ("withdrawn", "boss", None, "pets"),
    ]
    assert lines(watched[1] / "audit")[0]["event"] == "started"


def test_metrics_have_a_port_of_their_own_and_count_by_client(watched):
    send(watched, "GET", "/v1/usage", "alice")
    page = httpx.get(f"http://127.0.0.1:{watched[3]}/metrics").text
    assert 'unsee_client_requests_total{client="alice",status="200"}' in page
    with pytest.raises(unsee.InputError, match="cannot listen"):
        ThreadServer(None, None, metrics=("127.0.0.1", watched[3]))


def test_a_client_that_hangs_up_leaves_a_line_and_no_traceback(watched, caplog):
    head = f"POST /v1/classify HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {watched[2]['alice']}\r\nx-request-id: gone"
    with caplog.at_level(logging.WARNING), socket.create_connection(("127.0.0.1", watched[0].port)) as raw:
        raw.sendall(f"{head}\r\ncontent-length: 100\r\n\r\n{{".encode())
        time.sleep(0.2)
    found = logged(watched, "access", ["gone"])["gone"]
    assert found["status"] == 499
    assert not caplog.records


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", *curve, *names, *files], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_the_service_speaks_tls_and_reads_keys_logs_and_certificate_again_on_sighup(
    model_folder, tmp_path, certificate, processes
):
    key, port = add_key(tmp_path / "keys", "alice"), free_port()
    process = processes.Process(target=serve_with_tls, args=(model_folder, tmp_path, certificate, port), daemon=True)
    process.start()
    trusted = ssl.create_default_context(cafile=str(certificate[0]))

    def status(who: str) -> int:
        headers = {"authorization": f"Bearer {who}"}
        return httpx.get(f"https://127.0.0.1:{port}/v1/card", headers=headers, verify=trusted).status_code

    wait_for(lambda: status(key) == 200)
    second = add_key(tmp_path / "keys", "alice", another=True)
    assert status(second) == 401
    (tmp_path / "audit").rename(tmp_path / "audit.1")
    os.kill(process.pid, signal.SIGHUP)
    wait_for(lambda: status(second) == 200)
    assert status(key) == 200
    (tmp_path / "keys").write_text("[broken")
    os.kill(process.pid, signal.SIGHUP)
    wait_for(lambda: "not reloaded" in (tmp_path / "audit").read_text())
    assert status(second) == 200
    process.terminate()
    process.join(30)
    assert lines(tmp_path / "audit.1")[0]["event"] == "started"
    assert lines(tmp_path / "audit")[0]["event"] == "reloaded"


def serve_with_tls(model, folder, certificate, port) -> None:
    log = ServiceLog(None, folder / "audit")
    loaded, keys = unsee.load_model(model, threads=1), read_keys(folder / "keys")
    make_server(loaded, folder / "state", keys=keys, log=log, tls=certificate, port=port).run()


def wait_for(fact, seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if fact():
                return
        except (httpx.TransportError, OSError):
            pass
        time.sleep(0.05)
    raise TimeoutError("it does not become so")
