"""When a trainer saves its state, which for a large model takes seconds; and that Ctrl-C does not tear it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 0.1  # of the time, at most, goes into saving


class SavingClock:
    """Says when to save, so that at most `SHARE` of the time is spent on it.

    A kill loses at most as much work as takes ten times as long as saving does, and the step under way.
    """

    def __init__(self) -> None:
        self._took = 0.0  # seconds, the last time
        self._saved = time.monotonic()

    @property
    def due(self) -> bool:
        return time.monotonic() - self._saved >= self._took * (1 / SHARE - 1)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Times what is done in it."""
        started = time.monotonic()
        yield
        self._saved = time.monotonic()
        self._took = self._saved - started


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of this block: weights, history and checkpoint agree again there."""
    alone = threading.current_thread() is threading.main_thread()  # which alone is sent Ctrl-C
    if not alone or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
    if asked:
        raise KeyboardInterrupt
