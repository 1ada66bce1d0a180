"""The runs below a folder: state, scores and cost of each, read from its files without a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from unsee.errors import InputError, RunError, RunInUse, WriteError
from unsee.runs.folder import CONFIG, JOURNAL, PICK, is_finished, read_config, read_result
from unsee.runs.lock import LOCK, FolderLock
from unsee.runs.records import JournalLine, ResultRecord
from unsee.settings import Settings


@dataclass(frozen=True)
class ListedRun:
    """One run; None where a file does not say."""

    folder: str
    state: str  # finished, interrupted, running or damaged
    changed: float  # seconds since 1970
    problem: str = ""  # of a damaged run
    method: str | None = None
    data: str | None = None
    model: str | None = None
    forget: tuple[str, ...] = ()
    seed: int | None = None
    generation: int | None = None  # the last one recorded
    generations: int | None = None  # planned; None where image queries are limited instead
    h_prompt_alone: float | None = None
    h_as_served: float | None = None
    err_for: float | None = None  # prompt alone
    acc_mem: float | None = None
    valid_h: float | None = None  # the best so far, of a run that is not finished
    image_queries: int | None = None
    image_queries_left: int | None = None  # if it runs to its end
    verdict: str | None = None  # the worst mark of its audit: leak, damage, unclear or ok

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def list_runs(root: Path) -> list[ListedRun]:
    """All runs in this folder and below, by folder; prompts that were picked from a run are none."""
    if not root.is_dir():
        raise InputError(f"{root} is not a folder")
    return sorted(map(describe, find_runs(root)), key=lambda run: run.folder)


def describe(folder: Path) -> ListedRun:
    """What the files of a run folder say."""
    changed = (folder / CONFIG).stat().st_mtime
    try:
        config = read_config(folder)
        result = read_result(folder) if is_finished(folder) else None
    except RunError as error:
        return ListedRun(str(folder), "damaged", changed, problem=str(error))
    settings, journal = config.settings, folder / JOURNAL
    last = _last_line(journal)
    state = "running" if is_locked(folder) else "finished" if result else "interrupted"
    return ListedRun(
        folder=str(folder),
        state=state,
        changed=max(changed, journal.stat().st_mtime) if journal.is_file() else changed,
        method=settings.method,
        data=_last_part(config.data.name),
        model=_last_part(config.model.name),
        forget=config.forget,
        seed=settings.seed,
        generation=last.generation if last else 0,
        generations=settings.generations if settings.image_queries is None else None,
        h_prompt_alone=result.test.h if result else None,
        h_as_served=result.served.scores.h if result and result.served else None,
        err_for=result.test.err_for if result else None,
        acc_mem=result.test.acc_mem if result else None,
        valid_h=last.valid_h if last and not result else None,
        image_queries=result.ledger.image_queries if result else last.image_queries if last else None,
        image_queries_left=0 if result else queries_left(last, settings),
        verdict=worst_mark(result),
    )


def worst_mark(result: ResultRecord | None) -> str | None:
    """The first mark of the audit's verdict, which has the worst first; None without an audit."""
    return result.audit.findings[0].mark if result and result.audit and result.audit.findings else None


def find_runs(root: Path) -> Iterator[Path]:
    """Folders with a config; not those inside a run, nor hidden ones."""
    for folder, below, files in os.walk(root):
        if CONFIG in files:
            below.clear()
            if PICK not in files:
                yield Path(folder)
        below[:] = sorted(name for name in below if not name.startswith("."))


def is_locked(folder: Path) -> bool:
    """Whether another process is writing to this run."""
    if not (folder / LOCK).is_file():
        return False
    try:
        FolderLock(folder).release()
    except RunInUse:
        return True
    except (OSError, WriteError):  # a folder that may only be read
        return False
    return False


def _last_line(journal: Path) -> JournalLine | None:
    """The last whole line; None if there is none."""
    for line in reversed(journal.read_bytes().splitlines() if journal.is_file() else []):
        try:
            return JournalLine.model_validate_json(line)
        except ValueError:  # half a line, which a kill left behind
            continue
    return None


def queries_left(last: JournalLine | None, settings: Settings) -> int | None:
    """Of the limit; without one, at as many per generation as so far. None if that is not known."""
    if last is None or last.image_queries is None:
        return None
    if settings.image_queries is not None:
        return max(0, settings.image_queries - last.image_queries)
    return max(0, round(last.image_queries / last.generation * (settings.generations - last.generation)))


def _last_part(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name
