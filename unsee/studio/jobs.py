"""Runs that the page started: command lines that wait for their turn, one at a time, each a process of its own.

A job is a file in `.studio/jobs` beside the runs, so the queue outlives the page and its server. What a run did is in
its folder; a job only says which command was given, and what it printed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from unsee.errors import InputError, RunError, RunInUse
from unsee.files import write_json
from unsee.runs.lock import FolderLock
from unsee.runs.records import Record, read_record

KEPT = 200  # jobs that have ended, for their output
STOP_SECONDS = 8.0  # seconds that a stopped process has before it is ended


class Job(Record):
    """One command, from when it was asked for."""

    id: str
    folder: str  # of the run
    arguments: tuple[str, ...]  # of `unsee`
    added: float
    pid: int | None = None
    born: str = ""  # when the process started, in the system's own count: a pid alone may be another's by now
    stopped: float | None = None  # when a person asked it to stop
    ended: bool = False

    @property
    def state(self) -> str:
        return "ended" if self.ended else "waiting" if self.pid is None else "stopping" if self.stopped else "active"

    @property
    def kind(self) -> str:
        return self.arguments[0]


class Queue:
    """The jobs beside a folder of runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def add(self, folder: Path, arguments: Sequence[str]) -> Job:
        """A job at the end of the queue; refused if the run has one already."""
        if (now := self.of(folder)) is not None and not now.ended:
            raise InputError(f"{folder.name} is already {'waiting' if now.pid is None else 'running'}; stop it first")
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{time.time_ns():020d}-{secrets.token_hex(3)}"
        job = Job(id=name, folder=str(folder), arguments=tuple(arguments), added=time.time())
        self._write(job)
        return job

    def jobs(self) -> list[Job]:
        """All jobs, the oldest first; one whose file is damaged is left out."""
        found = []
        for path in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(RunError):
                found.append(read_record(Job, path, "holds no job"))
        return found

    def of(self, folder: Path) -> Job | None:
        """The newest job of this run."""
        return next((job for job in reversed(self.jobs()) if job.folder == str(folder)), None)

    def output(self, job: Job) -> list[str]:
        """What its process printed last."""
        path = self._log(job)
        text = path.read_bytes()[-20_000:].decode(errors="replace") if path.is_file() else ""
        return [line for line in text.splitlines() if line.strip()]

    def problem(self, job: Job) -> str:
        """Why a job failed, in words; "" if it did not."""
        if not job.ended or job.stopped:
            return ""
        lines = [line for line in self.output(job)[-5:] if line.lower().startswith("error:")]
        return lines[-1].partition(":")[2].strip() if lines else ""

    def tick(self) -> None:
        """Notices what has ended, and starts what is next. Several servers may do so at once."""
        if not self.folder.is_dir():
            return
        try:
            lock = FolderLock(self.folder)
        except RunInUse:
            return
        with lock:
            jobs = [self._look(job) for job in self.jobs()]
            if not any(job.pid is not None and not job.ended for job in jobs):
                waiting = next((job for job in jobs if job.state == "waiting"), None)
                if waiting is not None:
                    self._start(waiting)
            for old in [job for job in jobs if job.ended][:-KEPT]:
                self._path(old).unlink(missing_ok=True)
                self._log(old).unlink(missing_ok=True)

    def stop(self, folder: Path) -> None:
        """Stops a run as Ctrl-C would, or takes it out of the queue."""
        job = self.of(folder)
        if job is None or job.ended:
            raise InputError(f"{folder.name} was not started here; press Ctrl-C where it was")
        now = job.model_copy(update={"stopped": time.time(), "ended": job.pid is None})
        self._write(now)
        if now.pid is not None and _alive(now):
            with contextlib.suppress(ProcessLookupError):
                os.kill(now.pid, signal.SIGINT)

    def drop(self, folder: Path) -> None:
        """Takes a run that never began off the list: its job, with what it printed."""
        job = self.of(folder)
        if job is None or not job.ended:
            raise InputError(f"{folder.name} is not a run that has failed; stop it first")
        for each in self.jobs():
            if each.folder == job.folder:
                self._path(each).unlink(missing_ok=True)
                self._log(each).unlink(missing_ok=True)

    def _start(self, job: Job) -> None:
        with self._log(job).open("wb") as log:
            # a session of its own: Ctrl-C at the server, or its end, is not the run's
            child = subprocess.Popen(
                [sys.executable, "-m", "unsee", *job.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[child.pid] = child
        self._write(job.model_copy(update={"pid": child.pid, "born": _born(child.pid)}))

    def _look(self, job: Job) -> Job:
        """The job as it is now."""
        if job.ended or job.pid is None:
            return job
        child = self._children.get(job.pid)
        if child is not None:
            child.poll()  # takes leave of one that has ended
        if _alive(job):
            if job.stopped and time.time() - job.stopped > STOP_SECONDS:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(job.pid, signal.SIGTERM)
            return job
        self._children.pop(job.pid, None)
        ended = job.model_copy(update={"ended": True})
        self._write(ended)
        return ended

    def _write(self, job: Job) -> None:
        write_json(self._path(job), job.model_dump(mode="json"))

    def _path(self, job: Job) -> Path:
        return self.folder / f"{job.id}.json"

    def _log(self, job: Job) -> Path:
        return self.folder / f"{job.id}.log"


def _alive(job: Job) -> bool:
    return job.pid is not None and bool(job.born) and _born(job.pid) == job.born


def _born(pid: int) -> str:
    """When a process started; "" if there is none, or only its exit code is left. Linux says so in `/proc`."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
