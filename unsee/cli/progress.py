"""Progress of a search: a bar for a terminal, a line for a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import rich.console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from unsee.methods.recorder import Watch
    from unsee.settings import Settings
    from unsee.types import Generation

EVERY = 10.0  # seconds between lines


class Pace:
    """Says when the next line is due."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether enough time has passed since the last line."""
        now = time.monotonic()
        if now - self._last < EVERY:
            return False
        self._last = now
        return True


def progress_line(generation: Generation, settings: Settings) -> str:
    """Where the search is, in one line, with the time left."""
    left = generation.seconds / max(1, generation.candidates) * (settings.limit - generation.candidates)
    h = 100 * generation.valid.h if generation.valid else 0.0
    return (
        f"generation {generation.number}/{generations(settings)}  loss {generation.losses.min():.4f}  valid H {h:.2f}  "
        f"{settings.limit - generation.candidates} candidates left, about {left:.0f} s"
    )


def generations(settings: Settings) -> int:
    """How many generations are planned."""
    return -(-settings.limit // settings.population)


@contextmanager
def progress_bar(console: rich.console.Console) -> Iterator[Watch]:
    """A bar that is gone when the search ends."""
    columns = (
        TextColumn("generation"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  valid H {task.fields[h]:.1f}  {task.fields[left]} candidates left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, loss=float("nan"), h=0.0, left="?", start=True)

        def watch(generation: Generation, settings: Settings) -> None:
            bar.update(
                task,
                completed=generation.number,
                total=generations(settings),
                loss=generation.losses.min(),
                h=100 * generation.valid.h if generation.valid else 0.0,
                left=settings.limit - generation.candidates,
            )

        yield watch
