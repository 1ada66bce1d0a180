"""Progress of a search: a bar for a terminal, a line for a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import rich.console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from unsee.methods.recorder import Watch
    from unsee.settings import Settings
    from unsee.types import Generation

EVERY = 10.0  # seconds between lines
WITH_STATE, WITH_BAR = 78, 100  # columns of a terminal that has room for loss and scores; for a bar too


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


def share_done(generation: Generation, settings: Settings) -> tuple[int, int, str]:
    """How far a search is, of how much, and in which unit: what is limited, image queries or generations."""
    if settings.image_queries is not None:
        return generation.ledger.get("image_queries", 0), settings.image_queries, "image queries"
    return generation.number, settings.generations, "generation"


def place(generation: Generation, settings: Settings) -> str:
    """The same in words."""
    done, total, unit = share_done(generation, settings)
    return f"generation {done}/{total}" if unit == "generation" else f"{done:,}/{total:,} {unit}"


def progress_line(generation: Generation, settings: Settings) -> str:
    """Where the search is, in one line, with the time left."""
    done, total, _ = share_done(generation, settings)
    left = generation.seconds / max(1, done) * (total - done)
    h = 100 * generation.valid.h if generation.valid else 0.0
    return (
        f"{place(generation, settings)}  loss {generation.losses.min():.4f}  valid H {h:.2f}  "
        f"{generation.candidates} candidates so far, about {left:.0f} s left"
    )


@contextmanager
def show_progress(console: rich.console.Console) -> Iterator[Watch]:
    """Shows the progress of a search: a bar on a terminal, a line now and then elsewhere."""
    if console.is_terminal:
        with progress_bar(console) as watch:
            yield watch
        return
    pace = Pace()

    def line(generation: Generation, settings: Settings) -> None:
        if pace.due() or generation.number >= settings.generations:
            console.print(progress_line(generation, settings), soft_wrap=True)

    yield line


def plain_console() -> rich.console.Console:
    """A console on stderr that prints names as they are: a class may be called "[red]" or ":cat:"."""
    return rich.console.Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


@contextmanager
def progress_bar(console: rich.console.Console) -> Iterator[Watch]:
    """Generation and time left, then as much more as the terminal has room for; gone when the search ends.

    It has no numbers before the first generation has some.
    """
    columns: list[ProgressColumn] = [TextColumn("{task.fields[place]}"), TimeRemainingColumn()]
    if console.width >= WITH_BAR:
        columns.append(BarColumn(min(40, console.width - WITH_STATE)))
    if console.width >= WITH_STATE:
        columns.append(TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, place="starting", state="")

        def watch(generation: Generation, settings: Settings) -> None:
            h = f"valid H {100 * generation.valid.h:.1f}  " if generation.valid else ""
            done, total, _ = share_done(generation, settings)
            bar.update(
                task,
                completed=done,
                total=total,
                place=place(generation, settings),
                state=f"loss {generation.losses.min():.3f}  {h}{generation.candidates} candidates",
            )

        yield watch
