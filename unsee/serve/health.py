"""Whether the service is well: it asks itself a small known question all the time, through the queue of everybody.

The question goes before all others, so load alone never makes it late; a forward that hangs, a model whose answers have
changed, a ledger that cannot write, a full disk and a cleaner that has stopped all do.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import numpy as np

from unsee.serve.engine import ClassList, Question
from unsee.serve.guard import log
from unsee.serve.limits import Refused
from unsee.serve.merging import Asker
from unsee.serve.process import give_memory_back
from unsee.serve.service import Service

PROBE_EVERY = 1.0  # seconds between two questions
STALLED = 4.0  # seconds without a right answer, or in one forward
EXPIRE_EVERY = 600.0  # seconds between two rounds of the cleaner
SAME_ANSWER = 1e-3  # how near an answer must be to the first


class Health:
    """Watches a service and cleans up behind it, until it is stopped."""

    def __init__(self, service: Service) -> None:
        self._service = service
        card = service.model.card
        contexts = np.full((1, 1, card.width), 0.01, dtype=np.float32)
        features = np.ones((1, service.steps.engine.width), dtype=np.float32)
        self._question = Question(ClassList(("cat", "dog")), contexts, features)
        self._expected = service.steps.engine.answer([self._question])[0]
        self._well = self._cleaned = time.monotonic()
        self._trouble = ""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._well = self._cleaned = time.monotonic()
        self._tasks = [asyncio.create_task(each()) for each in (self._watch, self._clean, self._tidy)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def check(self) -> None:
        """Refused with 503 and a reason if a request would not be answered now."""
        now = time.monotonic()
        if not self._tasks:
            raise Refused(503, "service", "is starting or ending", retry_after=1)
        if self._service.queue.age > STALLED:
            raise Refused(503, "model", "has been at one forward for too long", retry_after=1)
        if now - self._well > STALLED or self._trouble:
            raise Refused(503, "service", self._trouble or "has not answered its own question in time", retry_after=1)
        if now - self._cleaned > 3 * EXPIRE_EVERY:
            raise Refused(503, "cleaner", "has not cleaned up for too long", retry_after=1)

    async def _watch(self) -> None:
        while True:
            try:
                await self._ask()
                self._trouble, self._well = "", time.monotonic()
            except Exception as error:
                if not self._trouble:
                    log.exception("the service is not well")
                self._trouble = f"is not well ({type(error).__name__}); its log says why"
            await asyncio.sleep(PROBE_EVERY)

    async def _ask(self) -> None:
        service, asker = self._service, Asker("", first=True)
        found = await service.queue.ask(asker, service.steps.engine.answer, None, self._question)
        if not np.allclose(found, self._expected, atol=SAME_ANSWER):
            raise RuntimeError("the model's answer to a known question has changed")
        await service.accounts.disk(service.ledger.probe)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY)
            await asyncio.to_thread(self._service.ledger.tidy)
            await asyncio.to_thread(give_memory_back)

    async def _clean(self) -> None:
        while True:
            try:
                await self._service.accounts.expire()
                self._cleaned = time.monotonic()
            except Exception:
                log.exception("cleaning up failed; it is tried again")
            await asyncio.sleep(EXPIRE_EVERY)
