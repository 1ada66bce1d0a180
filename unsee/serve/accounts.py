"""What clients may still ask for: rates and budgets; and that every request is answered and paid once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from unsee.models.remote.wire import NEXT_TURN
from unsee.serve.keys import Client
from unsee.serve.ledger import Price, ServiceLedger, StoredAnswer
from unsee.serve.limits import Refused
from unsee.serve.merging import Asker, ModelQueue, call_each

T = TypeVar("T")
KEEP = 24 * 3600.0  # seconds that an answer waits to be acknowledged, and an image to become part of a set
KEEP_KEYS = 600.0  # seconds that the key of an acknowledged answer is known
GIVEN_UP = 30.0  # seconds that a request with a key goes on when nobody waits for it; twice a client's longest pause
WAITING = 2**30  # for the ledger; there are fewer requests than that
ELSEWHERE = 0.1  # seconds between two looks at what another server answers


@dataclass(frozen=True)
class ResponseBody:
    """The body of a successful response."""

    content: bytes
    media: str
    note: str = ""  # about the rule that it left under
    charged: Price = field(default_factory=Price)  # by this request
    digest: str = ""  # its SHA-256 in hexadecimal, where that is known already


@dataclass
class Bill:
    """What an answer will cost, how many bytes it has at most, and what was used up so far."""

    price: Price
    size: int = 0
    used: Price = field(default_factory=Price)
    raise_price: Callable[[Price], Awaitable[None]] | None = None  # reserves more, or refuses

    async def more(self, price: Price) -> None:
        """It costs more than was known before; refused if the client's budget has no room for that."""
        if self.raise_price is not None:
            await self.raise_price(price)
        self.price += price


@dataclass
class _Bucket:
    """What is left of a client's rate."""

    left: float
    filled: float


@dataclass
class _Running:
    """A request that is being answered, and how many wait for it."""

    question: bytes
    task: asyncio.Task[ResponseBody]
    waiting: int = 0
    given_up: asyncio.TimerHandle | None = None


class Accounts:
    """The clients' accounts. The ledger on disk is used in one thread; this object in the event loop alone."""

    def __init__(self, ledger: ServiceLedger, seconds: float, keep: float = KEEP) -> None:
        self._ledger = ledger
        self._queue = ModelQueue(WAITING, rests=True)
        self._seconds = seconds
        self._keep = keep
        self._buckets: dict[str, _Bucket] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[ResponseBody]] = set()
        self._running: dict[tuple[str, str], _Running] = {}

    async def finish(self, seconds: float | None = None) -> None:
        """Waits for requests that are being answered, for a while; what is cut short is charged as far as it got."""
        left = [*self._tasks, *self._background]
        if left:
            _, late = await asyncio.wait(left, timeout=self._seconds if seconds is None else seconds)
            for task in late:
                task.cancel()
            await asyncio.wait(left, timeout=1)

    async def close(self, seconds: float | None = None) -> None:
        """Nothing more is written."""
        try:
            await self.finish(seconds)
            await self.disk(self._ledger.close)
        finally:
            await self._queue.close(1.0)

    async def disk(self, work: Callable[[], T], whose: str = "") -> T:
        """Does something with the ledger, in its thread; what one client wants comes in order, clients take turns."""
        found: T = await self._queue.ask(Asker(whose), call_each, None, work)
        return found

    def admit(self, client: Client) -> None:
        """Counts one request against the client's rate; 429 says how long to wait."""
        now, most = time.monotonic(), max(1.0, 2 * client.rate)
        bucket = self._buckets.setdefault(client.name, _Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.filled) * client.rate)
        bucket.filled = now
        if bucket.left < 1:
            wait = (1 - bucket.left) / client.rate
            raise Refused(429, "authorization", f"more than {client.rate:g} requests a second", retry_after=wait)
        bucket.left -= 1

    async def usage(self, client: Client) -> dict[str, dict[str, int | float | None]]:
        """What the client has spent and may spend."""
        spent, stored = await self.disk(lambda: self._ledger.usage(client.name), client.name)
        names = ("candidates", "image_queries", "tokens")
        limits = {name: getattr(client, name) for name in names} | {"rate": client.rate}
        return {
            "spent": {name: getattr(spent, name) for name in names} | {"stored_bytes": stored},
            "limits": limits | {"stored_bytes": client.stored_bytes},
        }

    async def expire(self) -> None:
        """Forgets answers that nobody has fetched for a day, acknowledged keys, and images in no set."""
        now, more = time.time(), True
        while more:  # in small steps: others use the ledger in between
            more = await self.disk(lambda: self._ledger.expire(now - self._keep, now - KEEP_KEYS, now - self._keep))
        await self.give_back()

    async def give_back(self, whose: str = "") -> None:
        """Deletes the images that were in deleted and unfinished sets alone."""
        while await self.disk(self._ledger.give_back, whose):
            pass

    def acknowledge(self, client: Client, keys: Sequence[str]) -> None:
        """The client has these answers. The ledger's thread comes to it before anything that is asked later."""

        async def forget() -> None:
            await self.disk(lambda: self._ledger.acknowledge(client.name, keys), client.name)

        task = asyncio.create_task(forget())
        self._background.add(task)
        task.add_done_callback(self._heard)

    async def reserved(
        self, client: Client, bill: Bill, about: Iterable[bytes], work: Callable[[str], Awaitable[T]]
    ) -> T:
        """Does work under a reservation, which the work itself settles; if it fails, what it used is charged."""
        made = await self._reserve(client, bill.price, bill.size, None, about)
        assert isinstance(made, str)  # without a key there is no earlier answer
        bill.raise_price = partial(self._reserve_more, client, made)
        try:
            return await work(made)
        except BaseException as error:
            await self._give_up(made, client, bill, error)
            raise

    async def answer_once(
        self,
        client: Client,
        key: str | None,
        question: bytes,
        bill: Bill,
        work: Callable[[], Awaitable[ResponseBody]],
        about: Sequence[bytes] = (),
    ) -> ResponseBody:
        """Answers a request and charges it, both once for each idempotency key.

        The same key again gets the same answer, whether the first request is still being answered, or its answer was
        lost on the way, or the service was killed in between. question is a hash of the request. A request that is
        given up, because it takes too long or its client has left, is charged for what was computed by then; one with a
        key goes on for a while, in case it is asked again.
        """
        running = None if key is None else self._running.get((client.name, key))
        if running is None:
            task = asyncio.create_task(self._answer(client, key, question, bill, work, (question, *about)))
            self._tasks.add(task)
            task.add_done_callback(self._answered)
            running = _Running(question, task)
            if key is not None:
                self._running[client.name, key] = running
                task.add_done_callback(lambda done: self._running.pop((client.name, key)))
        else:
            _check_question(running.question, question)
        return await self._wait(running, key)

    async def _wait(self, running: _Running, key: str | None) -> ResponseBody:
        running.waiting += 1
        if running.given_up is not None:
            running.given_up.cancel()
        try:
            return await asyncio.wait_for(asyncio.shield(running.task), self._seconds)
        except TimeoutError:
            raise Refused(
                503, "time", f"not answered within {self._seconds:g} s; ask again with the same key", retry_after=1
            ) from None
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():
                patience = 0 if key is None else GIVEN_UP
                running.given_up = asyncio.get_running_loop().call_later(patience, running.task.cancel)

    async def _answer(
        self,
        client: Client,
        key: str | None,
        question: bytes,
        bill: Bill,
        work: Callable[[], Awaitable[ResponseBody]],
        about: Sequence[bytes],
    ) -> ResponseBody:
        size = 0 if key is None else bill.size
        while (made := await self._reserve(client, bill.price, size, key, about)) is None:
            await asyncio.sleep(ELSEWHERE)
        if isinstance(made, StoredAnswer):
            _check_question(made.question, question)
            if made.content is not None:
                return ResponseBody(made.content, made.media)
            name = str(key).rpartition(".")[0]
            turn = await self.disk(lambda: self._ledger.turns(client.name, name), client.name)
            message = "this answer was acknowledged; use another key to ask again"
            raise Refused(409, "idempotency-key", message, more={NEXT_TURN: str(turn)})
        bill.raise_price = partial(self._reserve_more, client, made)
        try:
            answer = await work()
            kept = None if key is None else StoredAnswer(question, answer.content, answer.media)
            await self.disk(lambda: self._ledger.settle(made, client.name, bill.price, key, kept), client.name)
            return replace(answer, charged=bill.price)
        except BaseException as error:
            await self._give_up(made, client, bill, error)
            raise

    async def _give_up(self, made: str, client: Client, bill: Bill, error: BaseException) -> None:
        """Charges what a request used that is refused or cut short; a fault of the service's own costs nothing."""
        used = bill.used if isinstance(error, (asyncio.CancelledError, Refused)) else Price()
        with suppress(Refused):  # it was settled already
            await asyncio.shield(self.disk(lambda: self._ledger.settle(made, client.name, used), client.name))

    async def _reserve(
        self, client: Client, price: Price, size: int, key: str | None, about: Iterable[bytes]
    ) -> str | StoredAnswer | None:
        """As the ledger reserves it; nothing stays reserved for a request that is cancelled meanwhile."""
        reserve = lambda: self._ledger.reserve(client, price, size, key, about)  # noqa: E731
        making = asyncio.ensure_future(self.disk(reserve, client.name))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            made = await making
            if isinstance(made, str):
                await self.disk(lambda: self._ledger.release(made), client.name)
            raise

    async def _reserve_more(self, client: Client, made: str, price: Price) -> None:
        await self.disk(lambda: self._ledger.reserve_more(client, made, price), client.name)

    def _answered(self, done: asyncio.Task[ResponseBody]) -> None:
        self._tasks.discard(done)
        if not done.cancelled():
            done.exception()  # looked at, so that asyncio does not report one whose client has left

    def _heard(self, done: asyncio.Task[None]) -> None:
        self._background.discard(done)
        if not done.cancelled():
            done.exception()  # an acknowledgement that is lost is made up for by the day's end


def _check_question(before: bytes, now: bytes) -> None:
    if before != now:
        raise Refused(422, "idempotency-key", "was used for another request")
