"""What clients may still ask for: rates, budgets, stored bytes; and that every request is answered and paid once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from unsee.serve.keys import Client
from unsee.serve.ledger import Price, ServiceLedger, StoredAnswer
from unsee.serve.limits import Refused

T = TypeVar("T")
KEEP = 24 * 3600.0  # seconds that an answer waits to be acknowledged


@dataclass(frozen=True)
class ResponseBody:
    """The body of a successful response."""

    content: bytes
    media: str
    note: str = ""  # about the rule that it left under
    charged: Price = field(default_factory=Price)  # by this request


@dataclass
class _Account:
    spent: Price = field(default_factory=Price)
    reserved: Price = field(default_factory=Price)  # by requests that are being answered
    stored: int = 0
    tokens: float = 0.0  # of the rate limit
    filled: float = 0.0  # when


class Accounts:
    """The clients' accounts. The ledger on disk is used in one thread; this object in the event loop alone."""

    def __init__(self, ledger: ServiceLedger, seconds: float, keep: float = KEEP) -> None:
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._seconds = seconds
        self._keep = keep
        self._accounts: dict[str, _Account] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._running: dict[tuple[str, str], tuple[bytes, asyncio.Task[ResponseBody]]] = {}

    async def open(self) -> None:
        """Reads what was spent and stored before."""
        await self.disk(lambda: self._ledger.expire(time.time() - self._keep))
        for owner, price in (await self.disk(self._ledger.spent)).items():
            self._of(owner).spent = price
        stored = await self.disk(self._ledger.stored_bytes)
        for owner in {*stored, *self._accounts}:
            self._of(owner).stored = stored.get(owner, 0)

    async def finish(self) -> None:
        """Waits for requests that are being answered, those included whose clients have left."""
        running = [task for _, task in self._running.values()]
        await asyncio.gather(*running, *self._background, return_exceptions=True)

    async def close(self) -> None:
        """Nothing more is written."""
        await self.finish()
        await self.disk(self._ledger.close)
        self._thread.shutdown()

    async def disk(self, work: Callable[[], T]) -> T:
        """Does something with the ledger, in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def admit(self, client: Client) -> None:
        """Counts one request against the client's rate; 429 says how long to wait."""
        account, now = self._of(client.name), time.monotonic()
        if account.filled == 0:
            account.tokens = 2 * client.rate
        account.tokens = min(2 * client.rate, account.tokens + (now - account.filled) * client.rate)
        account.filled = now
        if account.tokens < 1:
            wait = (1 - account.tokens) / client.rate
            raise Refused(429, "authorization", f"more than {client.rate:g} requests a second", retry_after=wait)
        account.tokens -= 1

    def usage(self, client: Client) -> dict[str, dict[str, int | float | None]]:
        """What the client has spent and may spend."""
        account = self._of(client.name)
        spent = {"candidates": account.spent.candidates, "image_queries": account.spent.image_queries}
        limits = {"candidates": client.candidates, "image_queries": client.image_queries, "rate": client.rate}
        return {
            "spent": {**spent, "stored_bytes": account.stored},
            "limits": {**limits, "stored_bytes": client.stored_bytes},
        }

    def store(self, client: Client, more: int) -> None:
        """Counts bytes that are about to be kept; 403 if those are more than the client may keep."""
        account = self._of(client.name)
        if account.stored + more > client.stored_bytes:
            message = f"{account.stored} bytes are stored, {more} more would pass {client.stored_bytes}"
            raise Refused(403, "stored_bytes", message)
        account.stored += more

    async def recount_stored(self) -> None:
        """Counts again, after something was replaced or deleted."""
        stored = await self.disk(self._ledger.stored_bytes)
        for owner, account in self._accounts.items():
            account.stored = stored.get(owner, 0)

    async def expire(self) -> None:
        """Forgets answers that nobody has fetched for a day."""
        await self.disk(lambda: self._ledger.expire(time.time() - self._keep))
        await self.recount_stored()

    def acknowledge(self, client: Client, keys: Sequence[str]) -> None:
        """The client has these answers. The ledger's thread comes to it before anything that is asked later."""

        async def forget() -> None:
            self._of(client.name).stored -= await self.disk(lambda: self._ledger.acknowledge(client.name, keys))

        task = asyncio.create_task(forget())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def answer_once(
        self,
        client: Client,
        key: str | None,
        question: bytes,
        price: Price,
        work: Callable[[], Awaitable[ResponseBody]],
    ) -> ResponseBody:
        """Answers a request and charges it, both once for each idempotency key.

        The same key again gets the same answer, whether the first request is still being answered, or its answer was
        lost on the way, or the service was killed in between. question is a hash of the request.
        """
        if key is None:
            task = asyncio.create_task(self._answer(client, None, question, price, work))
        else:
            running = self._running.get((client.name, key))
            if running is None:
                task = asyncio.create_task(self._answer(client, key, question, price, work))
                self._running[client.name, key] = question, task
                task.add_done_callback(lambda done: self._forget(client.name, key, done))
            else:
                _check_question(running[0], question)
                task = running[1]
        try:
            return await asyncio.wait_for(asyncio.shield(task), self._seconds)
        except TimeoutError:
            if key is None:
                task.cancel()
            raise Refused(
                503, "time", f"not answered within {self._seconds:g} s; ask again with the same key", retry_after=1
            ) from None

    async def _answer(
        self,
        client: Client,
        key: str | None,
        question: bytes,
        price: Price,
        work: Callable[[], Awaitable[ResponseBody]],
    ) -> ResponseBody:
        if key is not None:
            stored = await self.disk(lambda: self._ledger.find(client.name, key))
            if stored is not None:
                _check_question(stored.question, question)
                if stored.content is None:
                    raise Refused(409, "idempotency-key", "this answer was acknowledged; use another key to ask again")
                return ResponseBody(stored.content, stored.media)
        account = self._of(client.name)
        self._check_budget(client, account, price)
        account.reserved += price
        try:
            answer = await work()
            kept = None
            if key is not None:
                self.store(client, len(answer.content))
                kept = StoredAnswer(question, answer.content, answer.media)
            await self.disk(lambda: self._ledger.record(client.name, price, key, kept))
            account.spent += price
            return replace(answer, charged=price)
        finally:
            account.reserved -= price

    def _forget(self, owner: str, key: str, done: asyncio.Task[ResponseBody]) -> None:
        self._running.pop((owner, key))
        if not done.cancelled():
            done.exception()  # looked at, so that asyncio does not report one whose client has left

    def _check_budget(self, client: Client, account: _Account, price: Price) -> None:
        after = account.spent + account.reserved + price
        for name in ("candidates", "image_queries"):
            limit, total = getattr(client, name), getattr(after, name)
            if limit is not None and total > limit:
                left = limit - getattr(account.spent, name)
                raise Refused(403, name, f"the budget is {limit}, {left} are left, {getattr(price, name)} were asked")

    def _of(self, owner: str) -> _Account:
        return self._accounts.setdefault(owner, _Account())


def _check_question(before: bytes, now: bytes) -> None:
    if before != now:
        raise Refused(422, "idempotency-key", "was used for another request")
