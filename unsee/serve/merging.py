"""A fair queue in front of the model: what waits together and fits together is answered by one short forward."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from unsee.serve.engine import STEP_SECONDS
from unsee.serve.limits import Refused

LATELY = 2.0  # seconds
ALONE_STEPS = 4  # that a forward may take while there is one client only
WAIT_SHARE = 4.0  # seconds that a request waits for later ones of its client, for each that it has had of the model
FORGIVEN = 5 * STEP_SECONDS  # of the model, to a client that asks for nothing more
Forward = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(eq=False)
class Asker:
    """One request: whose it is, how long the model has worked for it, and a hash of what it asks."""

    client: str
    about: bytes = b""
    first: bool = False  # before all others: the service's own question whether it is well
    seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)

    @property
    def rank(self) -> float:
        """The lowest goes on: a small request does not wait behind a large one, which in turn does not wait forever."""
        return self.began + WAIT_SHARE * self.seconds


@dataclass(eq=False)
class Waiting:
    """A question in the queue."""

    asker: Asker
    forward: Forward
    kind: Hashable  # None: never merged
    item: Any
    size: int
    answer: asyncio.Future[Any]


@dataclass(eq=False)
class Line:
    """A client's questions that wait."""

    used: float  # seconds of the model, counted from those of the client that had used least when this one came
    waiting: list[Waiting] = field(default_factory=list)
    running: int = 0
    rests: float = 0.0  # until when, by the monotonic clock

    def next(self) -> Waiting:
        """Of the request whose turn it is."""
        return min(self.waiting, key=lambda waiting: waiting.asker.rank)


def call_each(items: Sequence[Callable[[], Any]]) -> list[Any]:
    """A forward for work of any kind."""
    return [item() for item in items]


class ModelQueue:
    """Runs forwards in threads of their own, by default in one.

    The next forward is for the client whom the model has served least, and takes along every other question of its
    kind that still fits into a short forward. So a busy service merges, an idle one answers at once, and a client that
    asks for much waits for itself.
    """

    def __init__(
        self,
        limit: int,
        watch: Callable[[int], None] = lambda merged: None,
        *,
        threads: int = 1,
        each: int | None = None,
        rests: bool = False,
        mark: Callable[[Sequence[bytes]], None] = lambda running: None,
    ) -> None:
        self._limit = limit
        self._watch = watch
        self._threads = threads
        self._each = each or threads  # forwards at once for one client
        self._rests = rests  # after each forward a client waits for as long as that took, if others are about
        self._mark = mark  # hears what is being computed
        self._lines: dict[str, Line] = {}
        self._asked: dict[str, float] = {}  # when each client asked last
        self._clock = 0.0
        self._wake: asyncio.TimerHandle | None = None
        self._pace: dict[Forward, float] = {}  # seconds per size
        self._running: dict[asyncio.Task[None], tuple[float, list[Waiting]]] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="model")

    def alone(self, client: str) -> bool:
        """Whether no other client has asked for anything lately."""
        now = time.monotonic()
        return not any(now - when < LATELY for other, when in self._asked.items() if other not in (client, ""))

    def __len__(self) -> int:
        return sum(len(line.waiting) for line in self._lines.values())

    @property
    def age(self) -> float:
        """Seconds that the oldest running forward has taken so far."""
        return max((time.monotonic() - started for started, _ in self._running.values()), default=0.0)

    async def ask(self, asker: Asker, forward: Forward, kind: Hashable, item: Any, size: int = 1) -> Any:
        """The answer to one item. Refused with 429 if as many of the client's wait as is its share of the queue."""
        others = sum(bool(line.waiting) for client, line in self._lines.items() if client != asker.client)
        line = self._lines.get(asker.client) or Line(self._clock)
        if len(line.waiting) >= max(1, self._limit // (1 + others)):
            message = f"{len(line.waiting)} of your requests are waiting already; try again"
            raise Refused(429, "queue", message, retry_after=1)
        self._lines[asker.client] = line
        self._asked[asker.client] = time.monotonic()
        waiting = Waiting(asker, forward, kind, item, size, asyncio.get_running_loop().create_future())
        line.waiting.append(waiting)
        self._fill()
        try:
            return await waiting.answer
        finally:
            if waiting in line.waiting:  # its request was cancelled
                line.waiting.remove(waiting)

    async def close(self, seconds: float = 30.0) -> None:
        """Waits for what is being computed, for a while; a forward that never ends does not hold up the end."""
        ends = time.monotonic() + seconds
        while self._running and time.monotonic() < ends:
            await asyncio.wait(list(self._running), timeout=ends - time.monotonic())
        self._pool.shutdown(wait=not self._running, cancel_futures=True)

    def _fill(self) -> None:
        while len(self._running) < self._threads and (batch := self._next()):
            task = asyncio.create_task(self._serve(batch))
            self._running[task] = time.monotonic(), batch
            self._mark(self._computed())
            task.add_done_callback(self._done)

    def _wake_in(self, seconds: float) -> None:
        """Goes on when the first client has rested."""
        if self._wake is not None:
            self._wake.cancel()
        self._wake = asyncio.get_running_loop().call_later(seconds, self._fill)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._mark(self._computed())
        now, newcomer = time.monotonic(), self._clock + FORGIVEN
        for client, line in list(self._lines.items()):
            idle = not line.waiting and not line.running and line.rests <= now
            if idle and line.used <= newcomer:  # as good as one who comes for the first time
                del self._lines[client]
        self._fill()

    def _computed(self) -> list[bytes]:
        return [waiting.asker.about for _, batch in self._running.values() for waiting in batch if waiting.asker.about]

    def _next(self) -> list[Waiting]:
        """The next question, and all that fit into its forward."""
        now = time.monotonic()
        able = [line for line in self._lines.values() if line.waiting and line.running < self._each]
        ready = [line for line in able if line.rests <= now]
        ready.sort(key=lambda line: (not line.waiting[0].asker.first, line.used, len(line.waiting)))
        if not ready:
            if able:
                self._wake_in(min(line.rests for line in able) - now)
            return []
        head = ready[0].next()
        self._clock = max(self._clock, ready[0].used)
        batch, total = [head], head.size
        seconds = STEP_SECONDS * (ALONE_STEPS if self.alone(head.asker.client) else 1)
        room = seconds / max(1e-9, self._pace.get(head.forward, STEP_SECONDS))
        for line in ready if head.kind is not None else []:
            for waiting in line.waiting:
                alike = waiting.kind == head.kind and waiting.forward == head.forward and waiting is not head
                if alike and total + waiting.size <= room:
                    batch.append(waiting)
                    total += waiting.size
        for waiting in batch:
            line = self._lines[waiting.asker.client]
            line.waiting.remove(waiting)
            line.running += 1
            line.used = max(line.used, self._clock)
        return batch

    async def _serve(self, batch: list[Waiting]) -> None:
        self._watch(len(batch))
        started = time.perf_counter()
        answers = await self._forward(batch)
        seconds, total = time.perf_counter() - started, max(1, sum(waiting.size for waiting in batch))
        pace, forward = seconds / total, batch[0].forward
        self._pace[forward] = 0.7 * self._pace.get(forward, pace) + 0.3 * pace
        for waiting, answer in zip(batch, answers, strict=True):
            line = self._lines[waiting.asker.client]
            line.running -= 1
            line.used += pace * waiting.size
            if self._rests and not self.alone(waiting.asker.client):
                line.rests = time.monotonic() + pace * waiting.size
            waiting.asker.seconds += pace * waiting.size
            if waiting.answer.done():
                continue
            if isinstance(answer, BaseException):
                waiting.answer.set_exception(answer)
            else:
                waiting.answer.set_result(answer)

    async def _forward(self, batch: Sequence[Waiting]) -> Sequence[Any]:
        """One forward for all; if that fails, one for each, so that nobody fails for another's question."""
        loop = asyncio.get_running_loop()
        forward = batch[0].forward
        try:
            return await loop.run_in_executor(self._pool, forward, [waiting.item for waiting in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
        found: list[Any] = []
        for waiting in batch:
            found.extend(await self._forward([waiting]))
        return found
