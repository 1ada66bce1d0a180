"""What follows a run as it goes: called when it starts, after every generation, and when it ends.

A callback sees plain records and cannot change the run. `trackers.py` has ready ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from unsee.errors import InputError
from unsee.methods.recorder import Watch
from unsee.runs.records import ConfigRecord, ResultRecord
from unsee.settings import Settings
from unsee.types import Generation


@runtime_checkable
class Callback(Protocol):
    """Follows one run. An error that it raises stops the run, which can then be resumed."""

    def on_start(self, config: ConfigRecord) -> None:
        """Before the first generation: what the run is made of. A resumed run starts again here."""

    def on_generation(self, generation: Generation, settings: Settings) -> None:
        """After every generation, once it is on disk: its losses, the best validation scores so far, the cost."""

    def on_end(self, result: ResultRecord | None, error: BaseException | None) -> None:
        """At the end: the result, if test images were scored; the error, if one or Ctrl-C stopped the run."""


class Ending:
    """What a run that is followed ends with."""

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch
        self.result: ResultRecord | None = None


@contextmanager
def follow(callbacks: Sequence[Callback], config: ConfigRecord, watch: Watch | None) -> Iterator[Ending]:
    """Calls the callbacks around and during a run; each that was started is ended, whatever happens."""
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise InputError(f"a callback has on_start, on_generation and on_end, unlike {callback!r}")
    started: list[Callback] = []

    def each(generation: Generation, settings: Settings) -> None:
        if watch is not None:
            watch(generation, settings)
        for callback in callbacks:
            callback.on_generation(generation, settings)

    ending = Ending(each if callbacks else watch)
    error: BaseException | None = None
    try:
        for callback in callbacks:
            started.append(callback)
            callback.on_start(config)
        yield ending
    except BaseException as raised:
        error = raised
        raise
    finally:
        for callback in started:
            callback.on_end(ending.result if error is None else None, error)
