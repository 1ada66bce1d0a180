"""What Ctrl-C prints: the command that continues the work, if any of it was saved."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


class Interrupted(click.Abort):
    """Ctrl-C, with advice on how to continue."""


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """On Ctrl-C, says how to resume the run in this folder, if a generation of it was recorded."""
    from unsee.runs.folder import CONFIG

    def stamp() -> int | None:
        """A number that changes when the config is replaced."""
        path = folder / CONFIG
        return path.stat().st_ino if path.is_file() else None

    earlier = stamp()
    try:
        yield
    except KeyboardInterrupt:
        if stamp() in (None, earlier):
            raise Interrupted("no generation was recorded, so there is nothing to resume") from None
        raise Interrupted(resume_line(folder)) from None


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """On Ctrl-C, gives this advice."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(advice) from None


def resume_line(folder: Path) -> str:
    """The command that continues this run."""
    return f"continue with: unsee resume {shlex.quote(str(folder))}"


SAME_COMMAND = "the same command continues: finished runs are kept"
