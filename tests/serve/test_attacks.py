"""One client cannot stop the service: every attack that once did, with its bound."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import threading
import time
from contextlib import ExitStack, suppress

import httpx
import numpy as np
import pytest

from tests.serve.attackers import png
from tests.serve.servers import ThreadServer
from unsee.models.remote.remote_model import RemoteModel, image_file
from unsee.models.remote.wire import MEDIA, pack
from unsee.serve import health
from unsee.serve.accounts import Accounts, Bill, ResponseBody
from unsee.serve.keys import ANYONE, Client, add_key, read_keys
from unsee.serve.ledger import Price, ServiceLedger
from unsee.serve.limits import Limits, Refused
from unsee.serve.merging import Asker, ModelQueue

NAMES = [f"thing {i}" for i in range(2000)]


def contexts(b: int, m: int = 2) -> np.ndarray:
    return np.full((b, m, 64), 0.01, np.float32)


@pytest.fixture(scope="session")
def image_set(served, keys, data):
    """The hash of an image set of bob."""
    with RemoteModel(served.url, keys["bob"]) as remote:
        return remote.bind(data.test.subset(range(3)), data.class_names)._facts["images"]


@pytest.fixture
def start(model, tmp_path, data):
    """Starts a server with other limits, and keys for alice, who attacks, and bob; -> it and a client for each."""
    with ExitStack() as stack:

        def start(limits: Limits, of_alice: str = "rate = 1000000"):
            path = tmp_path / "keys.toml"
            keys = {}
            for name, own in (("alice", of_alice), ("bob", "rate = 1000000")):
                keys[name] = add_key(path, name)
                with path.open("a") as file:
                    file.write(f"{own}\n")
            server = ThreadServer(model, tmp_path / "state", read_keys(path), limits=limits)
            stack.callback(server.stop)
            made = {
                name: httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=30)
                for name, key in keys.items()
            }
            for client in made.values():
                stack.callback(client.close)
            server.keys = keys
            return server, made["alice"], made["bob"]

        yield start


def store_images(server, name: str, data, count: int = 3) -> str:
    with RemoteModel(server.url, server.keys[name]) as remote:
        return remote.bind(data.test.subset(range(count)), data.class_names)._facts["images"]


def spent(client: httpx.Client) -> dict:
    return client.get("/v1/usage").json()["spent"]


# 1. Work


def test_a_request_is_refused_by_its_work_before_any_is_done(ask, image_set):
    body = pack({"contexts": contexts(256)}, {"images": image_set, "class_names": json.dumps(NAMES)})
    started = time.monotonic()
    response = ask("POST", "/v1/confidences", "bob", content=body)
    assert response.status_code == 422
    assert "tokens of one request" in response.json()["error"]["message"]
    assert time.monotonic() - started < 5  # it took 640 s


def heavy(images: str, names: int = 400, b: int = 100) -> bytes:
    return pack({"contexts": contexts(b)}, {"images": images, "class_names": json.dumps(NAMES[:names])})


def test_what_times_out_is_charged_for_what_it_used_and_ends(start, data):
    server, alice, _bob = start(Limits(seconds=0.5))
    images = store_images(server, "alice", data)
    before = spent(alice)["tokens"]
    assert alice.post("/v1/confidences", content=heavy(images)).status_code == 503
    time.sleep(0.5)
    paid = spent(alice)["tokens"]
    assert 0 < paid - before < 100 * 400 * 9
    time.sleep(0.3)
    assert spent(alice)["tokens"] == paid  # nothing goes on


def test_work_ends_with_its_client_and_is_charged(start, data):
    server, alice, _bob = start(Limits())
    body = heavy(store_images(server, "alice", data))
    before = spent(alice)["tokens"]
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        head = f"POST /v1/confidences HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.keys['alice']}\r\n"
        raw.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.5)
    ends = time.monotonic() + 5
    while spent(alice)["tokens"] == before and time.monotonic() < ends:
        time.sleep(0.05)
    assert 0 < spent(alice)["tokens"] - before < 100 * 400 * 9


def test_what_is_cut_into_steps_is_answered_as_in_one(model, start, data):
    server, _alice, bob = start(Limits())
    names = NAMES[:1200]  # more than two steps for one candidate
    given = np.random.default_rng(0).normal(0, 0.02, (2, 2, 64)).astype(np.float32)
    with RemoteModel(server.url, server.keys["bob"]) as remote:
        found = remote.bind(data.test.subset(range(2)), names).confidences(given)
        mixed = remote.bind(data.test.subset(range(2)), names).apply_to(["thing 7"], "a {}.").confidences(given)
        assert remote.spent.candidates == spent(bob)["candidates"] == 4
    bound = model.bind(data.test.subset(range(2)), names)
    assert np.allclose(found, bound.confidences(given), atol=1e-6)
    assert np.allclose(mixed, bound.apply_to(["thing 7"], "a {}.").confidences(given), atol=1e-6)


# 2. Readiness


@pytest.fixture
def quick_health(monkeypatch):
    monkeypatch.setattr(health, "PROBE_EVERY", 0.05)
    monkeypatch.setattr(health, "STALLED", 0.4)


def not_ready(client: httpx.Client, seconds: float = 3) -> float:
    """After how many seconds the service says that it is not ready."""
    started = time.monotonic()
    while client.get("/readyz").status_code == 200:
        assert time.monotonic() - started < seconds
        time.sleep(0.02)
    return time.monotonic() - started


def test_a_stalled_forward_makes_the_service_not_ready_and_shutdown_ends_all_the_same(quick_health, start, monkeypatch):
    server, _alice, bob = start(Limits(seconds=1))
    hang = threading.Event()
    queue = server.server.config.app._app._app.state.service.queue
    stalled = asyncio.run_coroutine_threadsafe(
        queue.ask(Asker("alice"), lambda items: hang.wait(20) and items, None, 0), server.server.servers[0].get_loop()
    )
    assert not_ready(bob) < 2
    started = time.monotonic()
    server.server.should_exit = True
    server._thread.join(10)
    assert time.monotonic() - started < 8
    hang.set()
    stalled.cancel()


@pytest.mark.slow
def test_a_stalled_forward_is_reported_within_five_seconds(start):
    """With the times that the service has for users."""
    server, _alice, bob = start(Limits(seconds=1))
    hang = threading.Event()
    queue = server.server.config.app._app._app.state.service.queue
    stalled = asyncio.run_coroutine_threadsafe(
        queue.ask(Asker("alice"), lambda items: hang.wait(20) and items, None, 0), server.server.servers[0].get_loop()
    )
    assert not_ready(bob, 10) < 5
    hang.set()
    stalled.cancel()


def test_a_model_whose_answers_change_and_a_full_disk_make_the_service_not_ready(quick_health, start, monkeypatch):
    server, _alice, bob = start(Limits())
    monkeypatch.setattr("unsee.serve.ledger.FREE_BYTES", 2**62)
    not_ready(bob)
    monkeypatch.setattr("unsee.serve.ledger.FREE_BYTES", 0)
    time.sleep(0.3)
    assert bob.get("/readyz").status_code == 200
    engine = server.server.config.app._app._app.state.service.steps.engine
    monkeypatch.setattr(engine, "_logs", lambda features, embeddings: np.zeros((1, 1, 2), np.float32))
    not_ready(bob)


def test_load_alone_never_makes_the_service_not_ready(start, data):
    server, alice, bob = start(Limits(queue=8))
    body = heavy(store_images(server, "alice", data), names=100, b=20)
    done = []

    def load():
        with httpx.Client(base_url=server.url, headers=alice.headers, timeout=30) as own:
            done.append(own.post("/v1/confidences", content=body).status_code)

    threads = [threading.Thread(target=load) for _ in range(10)]
    for thread in threads:
        thread.start()
    statuses = []
    while any(thread.is_alive() for thread in threads):
        statuses.append(bob.get("/readyz").status_code)
        time.sleep(0.02)
    assert set(statuses) == {200}
    assert set(done) <= {200, 429}


def test_the_cleaner_goes_on_after_an_error(start, monkeypatch):
    monkeypatch.setattr(health, "EXPIRE_EVERY", 0.05)
    calls, expire = [], ServiceLedger.expire

    def fail_twice(*given):
        calls.append(given)
        if len(calls) < 3:
            raise OSError("no")
        return expire(*given)

    monkeypatch.setattr(ServiceLedger, "expire", fail_twice)
    start(Limits())
    ends = time.monotonic() + 3
    while len(calls) < 4 and time.monotonic() < ends:
        time.sleep(0.02)
    assert len(calls) >= 4


# 4, 5. Decoders, connections, bodies and answers


def test_decoding_ends_with_its_client_and_is_charged(start, tmp_path):
    server, alice, _bob = start(Limits())
    images = [png(np.full((2000, 2000, 3), i, np.uint8)) for i in range(24)]  # 4,000 tokens each
    form = [("images", (f"{i}.png", image, "image/png")) for i, image in enumerate(images)]
    sent = alice.build_request("POST", "/v1/images?set=no", files=form)
    body, kind = sent.read(), sent.headers["content-type"]
    head = f"POST /v1/images?set=no HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.keys['alice']}\r\n"
    marks, first = tmp_path / "state" / f"running-{os.getpid()}", hashlib.sha256(images[2]).digest()
    with socket.create_connection(("127.0.0.1", server.port)) as raw:
        raw.sendall(f"{head}content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        ends = time.monotonic() + 30
        while first not in marks.read_bytes() and time.monotonic() < ends:
            time.sleep(0.001)
    ends = time.monotonic() + 5
    while not spent(alice)["tokens"] and time.monotonic() < ends:
        time.sleep(0.05)
    paid = spent(alice)["tokens"]
    assert 2 * 4000 <= paid < 20 * 4000
    time.sleep(0.5)
    assert spent(alice)["tokens"] == paid


def test_idle_connections_give_way(start):
    server, _alice, bob = start(Limits(connections=40))
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(120)]
        assert bob.get("/v1/card").status_code == 200
        time.sleep(0.1)
        idle[0].settimeout(2)
        with suppress(ConnectionError):
            assert idle[0].recv(1) == b""  # the oldest was hung up on


def test_bodies_that_stall_take_only_a_share(start):
    server, alice, bob = start(Limits(body_bytes=2**20, memory=4 * 2**20, body_seconds=5))
    head = f"POST /v1/confidences HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.keys['alice']}\r\n"
    with ExitStack() as stack:
        stalled = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(12)]
        for raw in stalled:
            raw.sendall(head.encode() + b"content-length: 1000000\r\n\r\n" + b"x" * 1000)
        time.sleep(0.3)
        assert alice.post("/v1/confidences", content=b"x" * 1000000).status_code == 429
        assert bob.post("/v1/confidences", content=b"x" * 1000000).status_code == 422  # read, and no message


def test_answers_that_nobody_reads_are_dropped(start, data):
    server, alice, _bob = start(Limits(body_seconds=0.3))
    images = store_images(server, "alice", data, 60)
    body = pack({"contexts": contexts(256)}, {"images": images, "class_names": json.dumps(NAMES[:50])})
    head = f"POST /v1/confidences HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {server.keys['alice']}\r\n"
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", server.port))
        raw.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        held = server.server.config.app._app._memory._held
        while not spent(alice)["candidates"]:  # until it is answered
            time.sleep(0.05)
        ends = time.monotonic() + 10
        while held["alice"] and time.monotonic() < ends:
            time.sleep(0.05)
        assert not held["alice"]
        raw.settimeout(5)
        with suppress(ConnectionError):  # hung up on: the rest of the answer never comes
            assert sum(len(piece) for piece in iter(lambda: raw.recv(65536), b"")) < 256 * 60 * 50 * 4


# 6, 7, 8. Budgets


def test_stored_bytes_are_exact_however_answers_and_acknowledgements_interleave(tmp_path):
    async def work():
        await asyncio.sleep(0)
        return ResponseBody(b"x" * 10, "text/plain")

    async def run():
        accounts = Accounts(ServiceLedger(tmp_path), 5)

        async def one(i: int) -> None:
            await accounts.answer_once(ANYONE, f"k{i}", b"q", Bill(Price(1), 10), work)
            if i % 2:
                accounts.acknowledge(ANYONE, [f"k{i}"])

        await asyncio.gather(*(one(i) for i in range(40)))
        await accounts.finish()
        found = await accounts.usage(ANYONE)
        await accounts.close()
        return found["spent"]

    assert asyncio.run(run()) == {"candidates": 40, "image_queries": 0, "tokens": 0, "stored_bytes": 200}


def prompt_body(model, seed: int) -> bytes:
    card = {"prompt": "", "contexts": 2, "width": 64, "class_names": ["cat", "dog"], "forget": ["cat"], "model": "m"}
    card |= {"model_fingerprint": model.card.fingerprint, "template": "a {}.", "sha256": ""}
    return pack({"contexts": np.full((2, 64), 0.001 * seed, np.float32)}, {"card": json.dumps(card)})


def test_deploying_a_prompt_costs_a_candidate_so_that_the_budget_cannot_be_bypassed(start, model):
    _server, alice, _bob = start(Limits(), "candidates = 2\nrate = 1000000")
    put = [alice.put("/v1/prompts/p", content=prompt_body(model, seed)).status_code for seed in (1, 2, 2, 3)]
    assert put == [200, 200, 200, 403]  # the same again is free
    assert spent(alice)["candidates"] == 2


def test_a_full_store_refuses_before_anything_is_computed(start, data, monkeypatch):
    server, alice, _bob = start(Limits(), "stored_bytes = 1000\nrate = 1000000")
    images = store_images(server, "alice", data)
    before, asked, queued = spent(alice), [], ModelQueue.ask
    of_model = server.server.config.app._app._app.state.service.queue

    def watched(queue, asker, *given):
        asked.extend([asker.client] if queue is of_model else [])
        return queued(queue, asker, *given)

    monkeypatch.setattr(ModelQueue, "ask", watched)
    body = pack({"contexts": contexts(64)}, {"images": images, "class_names": json.dumps(NAMES[:50])})
    response = alice.post("/v1/confidences", content=body, headers={"idempotency-key": "k.0"})
    assert (response.status_code, response.json()["error"]["field"]) == (403, "stored_bytes")
    files = [("images", ("x", image_file(data.test, row), MEDIA)) for row in range(20, 40)]
    assert alice.post("/v1/images?set=no", files=files).status_code == 403
    assert spent(alice) == before
    assert "alice" not in asked


@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_a_rate_below_one_half_still_lets_requests_in(tmp_path, rate):
    accounts = Accounts(ServiceLedger(tmp_path), 5)
    accounts.admit(Client("slow", rate=rate))
    with pytest.raises(Refused, match="more than"):
        accounts.admit(Client("slow", rate=rate))
    asyncio.run(accounts.close())


# 9, 11. Odd messages, asking again


def test_many_tiny_arrays_and_values_are_refused_at_once(ask):
    header = {f"a{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(40_000)}
    text = json.dumps(header).encode()
    bodies = {
        "/v1/confidences": len(text).to_bytes(8, "little") + text,
        "/v1/images": b'{"images": [' + b"1," * 2_000_000 + b"1]}",
        "/v1/classify": b'{"inputs": "", "parameters": {"candidate_labels": [' + b'"a",' * 2_000_000 + b'"a"]}}',
    }
    started = time.monotonic()
    assert [ask("POST", path, "dave", content=body).status_code for path, body in bodies.items()] == [422] * 3
    assert time.monotonic() - started < 4


def test_asking_the_same_again_costs_at_most_two_requests(served, keys, data, monkeypatch):
    with RemoteModel(served.url, keys["grace"]) as remote:
        bound = remote.bind(data.test.subset(range(2)), data.class_names)
        for _ in range(4):
            bound.confidences(contexts(1))
            remote.usage()  # acknowledges
        sent = []
        send = remote.connection.send
        monkeypatch.setattr(
            remote.connection, "send", lambda *given, **more: sent.append(given) or send(*given, **more)
        )
        bound.confidences(contexts(1))
        assert len(sent) <= 2  # the fifth time it took five
        assert remote.usage()["spent"]["candidates"] == 5
