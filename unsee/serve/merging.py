"""One queue in front of the model: requests that wait together and fit together are answered by one forward."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from unsee.serve.limits import Refused

T = TypeVar("T")
Forward = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(eq=False)
class Waiting:
    """A question in the queue."""

    forward: Forward
    kind: Hashable
    item: Any
    size: int
    answer: asyncio.Future[Any]


class ModelQueue:
    """Runs forwards one after the other in a thread of their own.

    While one runs, questions pile up; the next forward takes the oldest and every other one of its kind. So a busy
    service merges, and an idle one answers at once.
    """

    def __init__(self, limit: int, largest: int, watch: Callable[[int], None] = lambda merged: None) -> None:
        self._limit = limit
        self._largest = largest  # items of one forward
        self._watch = watch
        self._waiting: deque[Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._runner: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, forward: Forward, kind: Hashable, item: Any, size: int = 1) -> Any:
        """The answer to one item. Refused with 429 if too many wait already."""
        if len(self._waiting) >= self._limit:
            raise Refused(429, "queue", f"{len(self._waiting)} requests are waiting already; try again", retry_after=1)
        waiting = Waiting(forward, kind, item, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        return await waiting.answer

    async def close(self) -> None:
        """Waits for what is being answered."""
        if self._runner is not None:
            await self._runner
        self._thread.shutdown()

    async def _run(self) -> None:
        while self._waiting:
            batch = self._next()
            if not batch:
                continue
            self._watch(len(batch))
            for waiting, answer in zip(batch, await self._forward(batch), strict=True):
                if waiting.answer.done():
                    continue
                if isinstance(answer, BaseException):
                    waiting.answer.set_exception(answer)
                else:
                    waiting.answer.set_result(answer)

    def _next(self) -> list[Waiting]:
        """The oldest question, and all that fit into its forward. Those nobody waits for any more are dropped."""
        self._waiting = deque(waiting for waiting in self._waiting if not waiting.answer.done())
        batch: list[Waiting] = []
        total = 0
        for waiting in self._waiting:
            alike = not batch or (waiting.kind == batch[0].kind and waiting.forward == batch[0].forward)
            if alike and (not batch or total + waiting.size <= self._largest):
                batch.append(waiting)
                total += waiting.size
        for waiting in batch:
            self._waiting.remove(waiting)
        return batch

    async def _forward(self, batch: Sequence[Waiting]) -> Sequence[Any]:
        """One forward for all; if that fails, one for each, so that nobody fails for another's question."""
        loop = asyncio.get_running_loop()
        forward = batch[0].forward
        try:
            return await loop.run_in_executor(self._thread, forward, [waiting.item for waiting in batch])
        except Exception as error:
            if len(batch) == 1:
                return [error]
        found: list[Any] = []
        for waiting in batch:
            found.extend(await self._forward([waiting]))
        return found
