"""What clients hold at the same time, such as bytes in flight: none more than its share, so that others have theirs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from unsee.serve.limits import Refused


class Shares:
    """A total that is divided evenly between those who hold something, and one more; an eighth is never refused."""

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._held: Counter[str] = Counter()

    def take(self, client: str, more: int) -> None:
        """Refused with 429 if the client would hold more than its share."""
        others = sum(name != client for name in self._held)
        share = max(self._total // (2 + others), self._total // 8)
        if self._held[client] + more > share:
            message = f"you hold {self._held[client]} {self._what} already, {more} more would pass {share}; try again"
            self.add(client, 0)
            raise Refused(429, self._what, message, retry_after=1)
        self.add(client, more)

    def add(self, client: str, more: int) -> None:
        """Counts without refusing."""
        self._held[client] += more
        if self._held[client] <= 0:
            del self._held[client]

    @contextmanager
    def holder(self, client: str) -> Iterator[Held]:
        """What one request holds; it gives all of it back at the end."""
        held = Held(self, client)
        try:
            yield held
        finally:
            held.add(-held.size)

    @contextmanager
    def hold(self, client: str, size: int) -> Iterator[None]:
        """Takes so much, and gives it back at the end."""
        with self.holder(client) as held:
            held.take(size)
            yield


@dataclass
class Held:
    """What one request holds of its client's share."""

    shares: Shares
    client: str
    size: int = 0

    def take(self, more: int) -> None:
        """Refused with 429 if this is more than the client's share."""
        self.shares.take(self.client, more)
        self.size += more

    def add(self, more: int) -> None:
        """Counts without refusing."""
        self.shares.add(self.client, more)
        self.size += more


class Turns:
    """Those of one name go on one after the other, so that many of them take no more than one."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    async def take(self, name: str, seconds: float) -> None:
        """Waits for those before, and then for so many seconds."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._waiting[name] += 1
        try:
            async with lock:
                await asyncio.sleep(seconds)
        finally:
            self._waiting[name] -= 1
            if not self._waiting[name]:
                del self._waiting[name], self._locks[name]
