"""The server itself: merged forwards, one price per request, slow senders, full queues, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

import unsee
from tests.serve.servers import ProcessServer, ThreadServer
from unsee.models.remote.remote_model import RemoteModel
from unsee.models.remote.wire import IDEMPOTENCY_KEY, pack
from unsee.serve.accounts import Accounts, Bill, ResponseBody
from unsee.serve.engine import ClassList, Engine, Question, Recent
from unsee.serve.keys import ANYONE, Client
from unsee.serve.ledger import Price, ServiceLedger
from unsee.serve.limits import Limits, Refused
from unsee.serve.merging import Asker, ModelQueue


def question(model, names, seed, b=3):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(0, 0.02, (b, 2, model.card.width)).astype(np.float32)
    return Question(ClassList(tuple(names)), contexts, rng.normal(size=(4, 32)).astype(np.float32))


def test_questions_about_the_same_names_are_answered_by_one_forward(model):
    engine = Engine(model)
    asked = [question(model, ["cat", "dog"], seed) for seed in range(3)]
    apart = [engine.answer([one])[0] for one in asked]
    calls = []
    queue, anyone = ModelQueue(100, calls.append), Asker("a")
    queue._pace[engine.answer] = 1e-6  # as a forward on a fast machine

    async def together():
        slow = queue.ask(anyone, lambda items: time.sleep(0.1) or items, "first", 0)  # so that the others wait together
        rest = [queue.ask(anyone, engine.answer, one.merges_with, one, one.size) for one in asked]
        other = question(model, ["cat", "bird"], 9)
        rest.append(queue.ask(anyone, engine.answer, other.merges_with, other, other.size))
        found = await asyncio.gather(slow, *rest)
        await queue.close()
        return found[1:]

    found = asyncio.run(together())
    assert calls == [1, 3, 1]  # the slow one, the three alike, and the one about other names
    for one, alone in zip(found, apart, strict=False):
        assert np.allclose(one, alone, atol=1e-5)


def test_nobody_fails_for_the_question_of_another():
    def forward(items):
        if "bad" in items:
            raise unsee.InputError("bad")
        return items

    async def ask():
        queue = ModelQueue(10)
        found = await asyncio.gather(
            *(queue.ask(Asker("a"), forward, "kind", item) for item in ("a", "bad", "b")), return_exceptions=True
        )
        await queue.close()
        return found

    found = asyncio.run(ask())
    assert (found[0], found[2]) == ("a", "b")
    assert isinstance(found[1], unsee.InputError)


def test_a_full_queue_says_when_to_come_back():
    async def ask():
        queue = ModelQueue(2)
        slow = []
        for i in range(3):  # one is being answered, two wait
            slow.append(asyncio.create_task(queue.ask(Asker("a"), lambda items: time.sleep(0.05) or items, i, i)))
            await asyncio.sleep(0.01)
        with pytest.raises(Refused) as refused:
            await queue.ask(Asker("a"), lambda items: items, "late", 0)
        await asyncio.gather(*slow)
        await queue.close()
        return refused.value

    refused = asyncio.run(ask())
    assert (refused.status, refused.headers()) == (429, {"retry-after": "1"})


def test_the_least_recently_used_goes_first():
    recent = Recent(10)
    recent.put("a", 4, 1), recent.put("b", 4, 2)
    assert recent.get("a") == 1
    recent.put("c", 4, 3)
    assert [recent.get(key) for key in "abc"] == [1, None, 3]


@pytest.fixture
def accounts(tmp_path):
    """Runs a test's coroutine with fresh accounts."""

    def run(test, seconds=5.0):
        async def whole():
            found = Accounts(ServiceLedger(tmp_path), seconds)
            try:
                return await test(found)
            finally:
                await found.close()

        return asyncio.run(whole())

    return run


async def work():
    await asyncio.sleep(0.02)
    return ResponseBody(b"answer", "text/plain")


def test_a_key_is_answered_and_charged_once_even_at_the_same_time_and_after_a_restart(accounts):
    async def ask(found):
        same = [found.answer_once(ANYONE, "key", b"q", Bill(Price(2, 6)), work) for _ in range(5)]
        assert {answer.content for answer in await asyncio.gather(*same)} == {b"answer"}
        return (await found.usage(ANYONE))["spent"]

    paid = {"candidates": 2, "image_queries": 6, "tokens": 0, "stored_bytes": 6}
    assert accounts(ask) == paid
    assert accounts(ask) == paid


def test_a_key_is_for_one_question_and_ends_when_its_answer_is_acknowledged(accounts):
    async def ask(found):
        await found.answer_once(ANYONE, "key", b"q", Bill(Price(1, 1)), work)
        with pytest.raises(Refused, match="another request"):
            await found.answer_once(ANYONE, "key", b"other", Bill(Price(1, 1)), work)
        found.acknowledge(ANYONE, ["key", "unknown"])
        with pytest.raises(Refused, match="was acknowledged"):
            await found.answer_once(ANYONE, "key", b"q", Bill(Price(1, 1)), work)
        return (await found.usage(ANYONE))["spent"]

    assert accounts(ask) == {"candidates": 1, "image_queries": 1, "tokens": 0, "stored_bytes": 0}


def test_what_fails_costs_nothing_and_what_is_late_is_charged_when_it_is_there(accounts):
    async def fail():
        raise RuntimeError("no answer")

    async def late():
        await asyncio.sleep(0.2)
        return ResponseBody(b"late", "text/plain")

    async def ask(found):
        with pytest.raises(RuntimeError):
            await found.answer_once(ANYONE, "a", b"q", Bill(Price(1, 1)), fail)
        with pytest.raises(Refused, match="not answered within"):
            await found.answer_once(ANYONE, "b", b"q", Bill(Price(1, 1)), late)
        await asyncio.sleep(0.3)
        answer = await found.answer_once(ANYONE, "b", b"q", Bill(Price(1, 1)), late)
        return answer.content, (await found.usage(ANYONE))["spent"]["candidates"]

    assert accounts(ask, seconds=0.05) == (b"late", 1)


def test_requests_at_the_same_time_cannot_pass_the_budget_together(accounts):
    client = Client("c", candidates=3)

    async def ask(found):
        each = [found.answer_once(client, f"k{i}", b"q", Bill(Price(1, 0)), work) for i in range(8)]
        done = await asyncio.gather(*each, return_exceptions=True)
        return sum(isinstance(one, ResponseBody) for one in done), (await found.usage(client))["spent"]["candidates"]

    assert accounts(ask) == (3, 3)


def test_two_services_do_not_share_their_state(tmp_path, monkeypatch):
    monkeypatch.setattr("unsee.serve.databases.LOCKED", 0.05)
    first = ServiceLedger(tmp_path)
    with pytest.raises(unsee.RunError, match="another service"):
        ServiceLedger(tmp_path)
    first.close()
    ServiceLedger(tmp_path).close()


def test_requests_in_flight_finish_on_sigterm_and_a_kill_keeps_what_was_answered(
    processes, model_folder, data, tmp_path
):
    server = ProcessServer(processes, model_folder, tmp_path)
    contexts = np.random.default_rng(0).normal(0, 0.02, (100, 4, 64)).astype(np.float32)
    with RemoteModel(server.url) as remote:
        bound = remote.bind(data.test, data.class_names)
        body = pack({"contexts": contexts}, bound._facts)

        def post(key: str) -> httpx.Response | None:
            headers = {IDEMPOTENCY_KEY: key}
            try:
                return httpx.post(f"{server.url}/v1/confidences", content=body, headers=headers, timeout=60)
            except httpx.TransportError:  # the server has not begun with it
                return None

        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(post, f"k{i}") for i in range(8)]  # too large to be merged
            while not any(answer.done() for answer in answers):  # with one answered, others are in flight
                time.sleep(0.001)
            before = sum(answer.done() for answer in answers)
            assert server.stop() in (0, -15)  # uvicorn passes the signal on when it is done
            found = {i: answer.result() for i, answer in enumerate(answers) if answer.result() is not None}
        assert {response.status_code for response in found.values()} == {200}
        assert len(found) > before
        server.start()
        server.kill()
        server.start()
        again = [post(f"k{i}").content for i in range(8)]
        assert all(again[i] == response.content for i, response in found.items())
        assert remote.usage()["spent"]["candidates"] == 8 * 100
    server.kill()


@pytest.fixture
def hasty(model, tmp_path):
    """A server that waits for nobody."""
    server = ThreadServer(model, tmp_path, limits=Limits(head_seconds=0.3, body_seconds=0.2, head_bytes=4096))
    yield server
    server.stop()


def received(port: int, *parts: bytes, pause: float = 0.1) -> bytes:
    """What the server says to these bytes, sent one after the other, before it hangs up."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), 5) as raw:
        try:
            for part in parts:
                raw.sendall(part)
                time.sleep(pause)
            while piece := raw.recv(65536):
                found += piece
        except ConnectionError:
            pass
    return found


HEAD = b"POST /v1/images HTTP/1.1\r\nhost: x\r\n"


def test_slow_senders_are_hung_up_on(hasty):
    start = time.monotonic()
    assert received(hasty.port, *([b"a"] * 20)) == b""  # a head, letter by letter
    assert received(hasty.port, HEAD + b"content-length: 100\r\n\r\n", b"{").startswith(b"HTTP/1.1 408")
    first = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
    assert received(hasty.port, first, b"GET", b" /he", b"al", b"th").count(b"HTTP/1.1") == 1  # the second head is slow
    assert time.monotonic() - start < 10
    assert httpx.get(f"{hasty.url}/healthz").status_code == 200


def test_heads_that_are_too_large_or_no_http_are_refused_as_json(hasty):
    long, end = HEAD + b"connection: close\r\nx: " + b"y" * 9000, b"\r\n\r\n"
    for status, *sent in (
        (431, long + end),
        (400, long),
        (400, b"\x16\x03\x01 hello" + end),
        (400, HEAD + b": x" + end),
    ):
        head, _, body = received(hasty.port, *sent).partition(end)
        assert head.startswith(b"HTTP/1.1 %d" % status)
        assert json.loads(body)["error"]["field"] == "head"


def test_metrics_count_requests_by_route_and_are_for_operators(ask):
    ask("GET", "/v1/usage")
    page = ask("GET", "/metrics", "operator").text
    assert 'unsee_requests_total{route="/v1/usage",status="200"}' in page
    assert "unsee_merged_bucket" in page
    assert ask("GET", "/metrics").status_code == 403


def test_nothing_about_the_inside_of_the_model_is_published(ask, model):
    card = ask("GET", "/v1/card").json()
    assert set(card) == {
        *("name", "fingerprint", "width", "token_limit", "token_mean", "token_std", "answers", "limits"),
        *("role", "labels"),
    }
    assert f"{model.logit_scale:.3f}" not in ask("GET", "/openapi.json").text + json.dumps(card)


def test_many_clients_at_once_get_their_own_answers(served, keys, model, data):
    bound = model.bind(data.test.subset(range(4)), data.class_names)
    wrong = []

    def run(seed: int) -> None:
        contexts = np.random.default_rng(seed).normal(0, 0.02, (3, 2, 64)).astype(np.float32)
        with RemoteModel(served.url, keys["alice"]) as remote:
            found = remote.bind(data.test.subset(range(4)), data.class_names).confidences(contexts)
        if not np.allclose(found, bound.confidences(contexts), atol=1e-5):
            wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
