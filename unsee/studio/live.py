"""A run while it runs: its numbers and curves from the journal, and a stream of events that can be taken up again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from unsee.methods.forecast import duration
from unsee.runs.folder import JOURNAL
from unsee.runs.listing import queries_left
from unsee.runs.records import ConfigRecord, JournalLine
from unsee.runs.stored import read_journal
from unsee.studio.drawing import Chart, make_chart

LOOK = 0.3  # seconds between two looks at a journal
BEAT = 10.0  # seconds after which a quiet stream says that it is there
RETRY = 1000  # milliseconds after which a browser takes a broken stream up again


@dataclass(frozen=True)
class RunProgress:
    """Where a run is, and its curves."""

    numbers: dict[str, str]
    charts: tuple[Chart, ...]
    done: float  # share of its generations
    position: int  # lines of the journal


def progress(folder: Path, config: ConfigRecord) -> RunProgress:
    """Where the run in this folder is."""
    lines = read_journal(folder)
    if not lines:
        return RunProgress({}, (), 0.0, 0)
    counted = all(line.image_queries is not None for line in lines)
    x = [float((line.image_queries if counted else line.candidates) or 0) for line in lines]
    label = "image queries" if counted else "candidates"
    valid = [(at, 100 * line.valid_h) for at, line in zip(x, lines, strict=True) if line.valid_h is not None]
    charts = [make_chart("Best loss of each generation", x, [line.best_loss for line in lines], label)]
    if valid:
        charts.append(make_chart("Validation H, %", [at for at, _ in valid], [h for _, h in valid], label))
    return RunProgress(numbers(lines[-1], config), tuple(charts), _share(lines[-1], config), len(lines))


def numbers(line: JournalLine, config: ConfigRecord) -> dict[str, str]:
    """A line of the journal in words; the keys are those that the page fills in."""
    s, share, left = config.settings, _share(line, config), queries_left(line, config.settings)
    of = "" if s.image_queries is not None else f" of {s.generations:,}"
    return {
        "generation": f"{line.generation:,}{of}",
        "loss": f"{line.best_loss:.4f}",
        "valid": "–" if line.valid_h is None else f"{100 * line.valid_h:.1f} %",
        "spent": "–" if line.image_queries is None else f"{line.image_queries:,}",
        "left": "–" if left is None else f"{left:,}",
        "time": "scoring the test images" if share >= 1 else f"about {duration(line.seconds * (1 - share) / share)}",
        "percent": f"{100 * share:.0f}",
    }


def _share(line: JournalLine, config: ConfigRecord) -> float:
    """How much of the run is done, of the image queries if they are limited."""
    s = config.settings
    done = line.generation / max(1, s.generations)
    if s.image_queries is not None and line.image_queries is not None:
        done = max(done, line.image_queries / s.image_queries)
    return min(1.0, done)


async def journal_events(
    folder: Path,
    after: int,
    look: Callable[[], str],
    config: Callable[[], ConfigRecord | None],
) -> AsyncIterator[str]:
    """New lines of a journal, each an event whose id is its position in the journal, and changes of the run's state.

    look: the state of the run now. The stream ends when the run is no longer busy; a `state` event says so first.
    """
    yield f"retry: {RETRY}\n\n"
    state, seen, quiet = "", (-1, -1), time.monotonic()
    while True:
        now, stamp = await run_in_threadpool(look), _stamp(folder / JOURNAL)
        sent: list[str] = []
        if stamp != seen:
            lines = await run_in_threadpool(read_journal, folder)
            if len(lines) < after:  # another run has taken the place of this one
                after = 0
                sent.append("event: again\ndata: {}\n\n")
            about = config()
            for number, line in enumerate(lines[after:], after + 1) if about is not None else ():
                sent.append(f"id: {number}\nevent: generation\ndata: {json.dumps(numbers(line, about))}\n\n")  # type: ignore[arg-type]
            after, seen = (len(lines), stamp) if about is not None else (after, (-1, -1))
        if now != state:
            sent.append(f"event: state\ndata: {json.dumps({'state': now})}\n\n")
            state = now
        for event in sent:
            yield event
        if state not in ("waiting", "starting", "running", "stopping"):
            return
        if sent:
            quiet = time.monotonic()
        elif time.monotonic() - quiet > BEAT:
            quiet = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(LOOK)


async def list_events(digest: Callable[[], str], seen: str) -> AsyncIterator[str]:
    """An event whenever the list of runs changes; its id is the list's digest."""
    yield f"retry: {RETRY}\n\n"
    quiet = time.monotonic()
    while True:
        now = await run_in_threadpool(digest)
        if now != seen:
            seen, quiet = now, time.monotonic()
            yield f"id: {now}\nevent: runs\ndata: {{}}\n\n"
        elif time.monotonic() - quiet > BEAT:
            quiet = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(1.0)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
