"""The list of runs: what `unsee runs` lists and what waits in the queue, read again only where a file has changed."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsee.errors import InputError
from unsee.runs.folder import CONFIG, JOURNAL, RESULT
from unsee.runs.listing import ListedRun, describe, find_runs, is_locked
from unsee.studio.jobs import Job, Queue

FRESH = 0.5  # seconds for which a list is not made again
OWN_FOLDER = ".studio"  # the page's own folder, beside the runs
BAD = ("damaged", "failed")

Stamp = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True)
class RunRow:
    """One run of the list."""

    name: str  # its folder below that of the runs
    run: ListedRun
    state: str  # waiting, starting, running, stopping, interrupted, finished, failed, damaged
    problem: str = ""
    own: bool = False  # the page started what runs or waits, so the page can stop it
    audited: bool = False  # an audit of it runs or waits

    @property
    def busy(self) -> bool:
        return self.state in ("waiting", "starting", "running", "stopping")


# Ways to sort: the key, and whether large comes first. A run without the figure comes last.
SORTS: dict[str, tuple[str, Callable[[RunRow], Any], bool]] = {
    "changed": ("newest first", lambda row: row.run.changed, True),
    "name": ("name", lambda row: row.name.lower(), False),
    "state": ("state", lambda row: row.state, False),
    "h": ("H as served", lambda row: row.run.h_as_served or row.run.h_prompt_alone, True),
    "err_for": ("Err_for", lambda row: row.run.err_for, True),
    "acc_mem": ("Acc_mem", lambda row: row.run.acc_mem, True),
    "queries": ("image queries", lambda row: row.run.image_queries, False),
}


class Catalogue:
    """The runs below a folder."""

    def __init__(self, root: Path, queue: Queue) -> None:
        self.root = root
        self._queue = queue
        self._known: dict[Path, tuple[Stamp, ListedRun]] = {}
        self._rows: list[RunRow] = []
        self._made = 0.0
        self._lock = threading.Lock()

    def rows(self) -> list[RunRow]:
        """Every run, and every job whose run has not begun."""
        with self._lock:
            if time.monotonic() - self._made > FRESH:
                self._rows = self._read()
                self._made = time.monotonic()
            return self._rows

    def read_ahead(self) -> None:
        """Reads what does not change before the first visitor comes, who would wait for it."""
        with self._lock:
            self._read()

    def row(self, name: str) -> RunRow:
        """The run of this name, read now."""
        folder = self.folder(name)
        job = self._queue.of(folder)
        if (folder / CONFIG).is_file():
            return self._row(describe(folder), job)
        if job is None:
            raise InputError(f"there is no run called {name!r} in {self.root}; it may have been moved or deleted")
        return self._unborn(job)

    def folder(self, name: str) -> Path:
        """The folder of this name; refuses one that is not below the runs."""
        folder = (self.root / name.replace("\0", "")).resolve()
        inside = folder.relative_to(self.root).parts if folder.is_relative_to(self.root) else ()
        if "\0" in name or not inside or any(part.startswith(".") for part in inside):
            raise InputError(f"{name!r} is not the name of a run in {self.root}")
        return folder

    def digest(self) -> str:
        """A short text that changes when the list does."""
        facts = [(row.name, row.state, row.run.generation, row.run.verdict, row.audited) for row in self.rows()]
        return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()

    def _read(self) -> list[RunRow]:
        jobs = {job.folder: job for job in self._queue.jobs()}  # the newest of each run
        found = {folder: self._listed(folder) for folder in find_runs(self.root)} if self.root.is_dir() else {}
        self._known = {folder: self._known[folder] for folder in found}
        rows = [self._row(run, jobs.get(str(folder))) for folder, run in found.items()]
        unborn = [job for name, job in jobs.items() if Path(name) not in found and job.kind == "forget"]
        return [*(self._unborn(job) for job in unborn if not (job.ended and job.stopped)), *rows]

    def _listed(self, folder: Path) -> ListedRun:
        stamp = tuple(_stamp(folder / name) for name in (CONFIG, JOURNAL, RESULT))
        known = self._known.get(folder)
        if known is None or known[0] != stamp:
            self._known[folder] = stamp, describe(folder)
        run = self._known[folder][1]
        if run.state in ("running", "interrupted"):
            run = dataclasses.replace(run, state="running" if is_locked(folder) else "interrupted")
        return run

    def _row(self, run: ListedRun, job: Job | None) -> RunRow:
        name = Path(run.folder).relative_to(self.root).as_posix()
        if run.state == "damaged":
            return RunRow(name, run, "damaged", run.problem)
        if job is None or (job.ended and run.state == "running"):
            return RunRow(name, run, run.state)
        problem = self._queue.problem(job)
        if job.kind == "audit":
            return RunRow(name, run, run.state, problem, audited=not job.ended)
        if job.ended:
            failed = bool(problem) and run.state == "interrupted"
            return RunRow(name, run, "failed" if failed else run.state, problem)
        states = {"waiting": "waiting", "stopping": "stopping", "active": "running"}
        return RunRow(name, run, states[job.state], own=True)

    def _unborn(self, job: Job) -> RunRow:
        name = Path(job.folder).relative_to(self.root).as_posix()
        run = ListedRun(job.folder, "interrupted", job.added)
        states = {"waiting": "waiting", "stopping": "stopping", "active": "starting"}
        state = states.get(job.state, "interrupted" if job.stopped else "failed")
        problem = self._queue.problem(job)
        if state == "failed" and not problem:
            problem = "it ended before the first generation was recorded, without saying why"
        return RunRow(name, run, state, problem, own=not job.ended)


def sort_rows(rows: list[RunRow], key: str) -> list[RunRow]:
    """In this order; runs without the figure last."""
    _, value, large_first = SORTS.get(key, SORTS["changed"])
    have = [row for row in rows if value(row) is not None]
    return [*sorted(have, key=value, reverse=large_first), *(row for row in rows if value(row) is None)]


def filter_rows(rows: list[RunRow], text: str, state: str) -> list[RunRow]:
    """Those whose name, data, model, method or classes contain the text, in this state."""
    words = text.lower().split()

    def fits(row: RunRow) -> bool:
        run = row.run
        about = " ".join([row.name, run.data or "", run.model or "", run.method or "", *run.forget]).lower()
        return all(word in about for word in words) and state in ("", row.state)

    return [row for row in rows if fits(row)]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
