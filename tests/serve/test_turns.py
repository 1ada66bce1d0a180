"""Nobody has to wait for the work of another: turns at the ledger, at the door and in the interpreter; large images."""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import os
import time

import httpx
import pytest
from PIL import Image

from tests.serve.servers import ThreadServer
from unsee.serve.accounts import Accounts
from unsee.serve.app import _decode_base64
from unsee.serve.engine import IMAGE_TOKENS, Engine
from unsee.serve.guard import PIECE
from unsee.serve.keys import add_key, read_keys
from unsee.serve.ledger import ServiceLedger
from unsee.serve.process import model_threads
from unsee.serve.shares import Turns


def test_the_ledger_serves_a_client_before_the_backlog_of_another(tmp_path):
    order = []

    def work(who: str) -> None:
        time.sleep(0.005)
        order.append(who)

    async def run() -> None:
        accounts = Accounts(ServiceLedger(tmp_path), 5)
        backlog = [asyncio.create_task(accounts.disk(lambda: work("alice"), "alice")) for _ in range(20)]
        await asyncio.sleep(0.012)
        await accounts.disk(lambda: work("bob"), "bob")
        await asyncio.gather(*backlog)
        await accounts.close()

    asyncio.run(run())
    assert order.index("bob") < 8


def test_those_of_one_name_take_turns_and_those_of_another_do_not_wait():
    async def run(names) -> float:
        turns, started = Turns(), time.monotonic()
        await asyncio.gather(*(turns.take(name, 0.02) for name in names))
        assert not turns._locks
        assert not turns._waiting
        return time.monotonic() - started

    assert asyncio.run(run(["a"] * 10)) > 0.19
    assert asyncio.run(run("abcdefghij")) < 0.15


def test_guesses_at_keys_are_answered_one_after_the_other(served):
    async def guess() -> float:
        async with httpx.AsyncClient(base_url=served.url, timeout=30) as client:
            started = time.monotonic()
            answers = await asyncio.gather(*(client.get("/v1/card") for _ in range(40)))
            assert {answer.status_code for answer in answers} == {401}
            return time.monotonic() - started

    assert asyncio.run(guess()) > 40 * 0.005


@pytest.mark.parametrize("size", [0, 1, 2, 3, PIECE // 4 * 3 - 1, PIECE // 4 * 3, PIECE // 4 * 3 + 1, 3 * PIECE])
def test_base64_is_decoded_in_pieces(size):
    content = os.urandom(size)
    assert _decode_base64(base64.b64encode(content).decode()) == content


@pytest.mark.parametrize("text", ["=", "a", "ab=c", "eA==\n", "e A=", "eA===", "ü", "eA", "A" * (PIECE - 2) + "==eA=="])
def test_what_is_not_base64_is_refused(text):
    with pytest.raises((binascii.Error, ValueError)):
        _decode_base64(text)


def photo(side: int) -> str:
    out = io.BytesIO()
    Image.new("RGB", (side, side), "red").save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def test_a_large_image_is_charged_by_its_pixels_and_refused_before_it_is_decoded(model, tmp_path):
    path = tmp_path / "keys.toml"
    key = add_key(path, "alice")
    with path.open("a") as file:
        file.write("tokens = 3000\n")
    server = ThreadServer(model, tmp_path / "state", read_keys(path))
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=30) as alice:

        def ask(side: int) -> tuple[int, int]:
            asked = {"inputs": photo(side), "parameters": {"candidate_labels": ["cat", "dog"]}}
            status = alice.post("/v1/classify", json=asked).status_code
            return status, alice.get("/v1/usage").json()["spent"]["tokens"]

        assert ask(2000) == (403, 0)  # 4,000 tokens
        status, small = ask(600)  # 360,000 pixels
        assert status == 200
        assert IMAGE_TOKENS < small < IMAGE_TOKENS + 50
        assert ask(1000) == (200, small + 1000)  # the labels are known by now
    server.stop()


def test_images_go_together_only_where_the_answer_would_else_have_other_bits(model):
    assert Engine(model).images_in_step == model.encoder.batch


def test_the_model_leaves_a_core_to_the_service():
    cores = len(os.sched_getaffinity(0))
    assert model_threads() == max(1, cores - 1)
