"""The queue is fair: nobody waits behind the work of another."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from unsee.serve.limits import Refused
from unsee.serve.merging import Asker, ModelQueue


def test_a_client_waits_behind_its_own_work_and_not_behind_that_of_another():
    order = []

    def forward(items):
        time.sleep(0.01)
        order.extend(items)
        return items

    async def run():
        queue = ModelQueue(100)
        much = [queue.ask(Asker("alice"), forward, None, f"alice {i}") for i in range(20)]
        tasks = [asyncio.create_task(each) for each in much]
        await asyncio.sleep(0.03)
        before = len(order)
        await queue.ask(Asker("bob"), forward, None, "bob")
        waited = order.index("bob") - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(queue) == 0
        await queue.close()
        return waited

    assert asyncio.run(run()) <= 2  # the forward that was running, and no other


def test_a_request_that_had_its_share_waits_behind_later_ones_but_not_forever():
    async def run():
        queue, order, large = ModelQueue(100), [], Asker("alice", seconds=0.05)

        def forward(items):
            time.sleep(0.005)
            order.extend(items)
            return items

        async def keep_asking():
            while "large" not in order:
                await queue.ask(Asker("alice"), forward, None, "small")

        asking = [asyncio.create_task(keep_asking()) for _ in range(4)]
        await asyncio.sleep(0.01)
        await asyncio.wait_for(queue.ask(large, forward, None, "large"), 5)
        await asyncio.gather(*asking)
        await queue.close()
        return order.index("large")

    assert asyncio.run(run()) > 10  # later ones came first, for 0.2 s


def test_a_client_rests_between_its_work_while_others_are_about():
    async def run(others: bool) -> float:
        queue = ModelQueue(100, rests=True)
        if others:
            await queue.ask(Asker("bob"), lambda items: items, None, 0)
        started = time.monotonic()
        await asyncio.gather(
            *(queue.ask(Asker("alice"), lambda items: time.sleep(0.02) or items, None, i) for i in range(10))
        )
        seconds = time.monotonic() - started
        await queue.close()
        return seconds

    assert asyncio.run(run(others=True)) > 0.35
    assert asyncio.run(run(others=False)) < 0.34


def test_a_client_does_not_wait_for_the_rest_of_another():
    async def run() -> float:
        queue = ModelQueue(100, rests=True)
        await queue.ask(Asker("bob"), lambda items: items, None, 0)
        much = [queue.ask(Asker("alice"), lambda items: time.sleep(0.3) or items, None, i) for i in range(2)]
        tasks = [asyncio.create_task(each) for each in much]
        await asyncio.sleep(0.32)  # alice rests
        started = time.monotonic()
        for _ in range(3):
            await queue.ask(Asker("bob"), lambda items: time.sleep(0.005) or items, None, 0)
        seconds = time.monotonic() - started
        await asyncio.gather(*tasks)
        await queue.close()
        return seconds

    assert asyncio.run(run()) < 0.15


def test_a_full_line_of_one_client_leaves_places_for_others():
    async def run():
        queue = ModelQueue(4)
        tasks = [
            asyncio.create_task(queue.ask(Asker("alice"), lambda items: time.sleep(0.02) or items, None, i))
            for i in range(5)
        ]
        await asyncio.sleep(0.005)
        with pytest.raises(Refused, match="of your requests"):
            await queue.ask(Asker("alice"), lambda items: items, None, 0)
        assert await queue.ask(Asker("bob"), lambda items: items, None, "bob") == "bob"
        await asyncio.gather(*tasks)
        await queue.close()

    asyncio.run(run())


def test_one_client_never_has_all_decoders():
    answered, began = threading.Event(), []

    def decode(items):
        began.append(items)
        assert answered.wait(30)
        return items

    async def run():
        queue = ModelQueue(100, threads=2, each=1)
        slow = [asyncio.create_task(queue.ask(Asker("alice"), decode, None, 0)) for _ in "abc"]
        await asyncio.sleep(0.01)
        await queue.ask(Asker("bob"), lambda items: items, None, 0)  # while alice's first is under way
        for task in slow:
            task.cancel()
        answered.set()
        await asyncio.gather(*slow, return_exceptions=True)
        await queue.close()

    asyncio.run(run())
    assert len(began) == 1, "alice's others were cancelled before they were decoded"
