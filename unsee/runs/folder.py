"""A run is a folder: settings, a journal, a checkpoint, the prompt, the result.

`journal.jsonl` is for people: one line per generation. `resume` reads the checkpoint (see `checkpoint.py`) and writes
the journal again where the two differ. Both are only ever appended to; if a kill leaves half a line, it is dropped and
its generation evaluated again. After a power cut, this may be the last second of generations.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from unsee.errors import RunError, RunInUse, WriteError
from unsee.files import append, json_bytes, leftovers, publish, remove_files, stage, sync, write_bytes
from unsee.runs import checkpoint
from unsee.runs.checkpoint import CHECKPOINT, REPLIES, STATE, reply_bytes
from unsee.runs.front import front_lines, with_front
from unsee.runs.lock import FolderLock, lock_new_folder
from unsee.runs.records import ConfigRecord, JournalLine, PickRecord, ResultRecord, read_record, write_record
from unsee.types import Generation, Ints

CONFIG, JOURNAL, RESULT, PICK = "config.json", "journal.jsonl", "result.json", "pick.json"
ANSWERS, PICTURE, TRAINED_WEIGHTS = "answers.safetensors", "picture.png", "weights.safetensors"
AUDIT, SERVICE_AUDIT, FRONT = "audit.json", "audit-service.json", "front.jsonl"
INHERITED = "inherited.safetensors"
_PROMPT = ("prompt.safetensors", "prompt.json")
# In the order in which they are deleted: without a result a run is not finished, without a config it is none.
RUN_FILES = (
    RESULT,
    CONFIG,
    AUDIT,
    SERVICE_AUDIT,
    JOURNAL,
    CHECKPOINT,
    STATE,
    REPLIES,
    INHERITED,
    ANSWERS,
    PICTURE,
    TRAINED_WEIGHTS,
    FRONT,
    PICK,
    *_PROMPT,
)
SYNC_EVERY = 1.0  # seconds: it takes about 10 ms, and a generation of a small model not much more


def check_free(folder: str | Path, overwrite: bool = False) -> None:
    """Refuses a folder that already holds a run."""
    folder = Path(folder)
    if folder.is_file():
        raise RunError(f"{folder} is a file, not a folder for a run")
    if (folder / CONFIG).exists() and not overwrite:
        raise RunError(
            f"{folder} already holds a run; continue it with: unsee resume {folder} — or name another folder with "
            "--out, or replace it with --overwrite"
        )


def check_resumable(folder: str | Path) -> None:
    """Refuses a folder that holds a picked prompt: there is no history to continue."""
    if (Path(folder) / PICK).is_file():
        run = read_record(PickRecord, Path(folder) / PICK, "holds no picked prompt").run
        raise RunError(f"{folder} holds a prompt that was picked from {run}; continue that run: unsee resume {run}")


class RunFolder:
    """An open run folder, locked against a second writer."""

    def __init__(self, folder: Path, config: ConfigRecord, lock: FolderLock, begun: bool) -> None:
        self.folder = folder
        self.config = config
        self.history: list[Generation] = []
        self._lock = lock
        self._begun = begun
        self._extended = False  # whether a generation was added since it was opened
        self.inherited: bytes | None = None  # content of `inherited.safetensors`, written when the run begins
        self._synced = time.monotonic()

    @classmethod
    def create(cls, folder: str | Path, config: ConfigRecord, overwrite: bool = False) -> RunFolder:
        """A new run, written to disk with its first generation: one that fails before leaves nothing behind.

        Files of an earlier run in the folder are deleted only then, and only if overwriting.
        """
        folder = Path(folder)
        check_free(folder, overwrite)
        run = cls(folder, config, lock_new_folder(folder), begun=False)
        try:
            check_free(folder, overwrite)  # again: another process may have finished a run while we waited
        except RunError:
            run.close()
            raise RunInUse(f"another process has just made a run in {folder}") from None
        return run

    @classmethod
    def open(cls, folder: str | Path, wait: float = 0) -> RunFolder:
        """An existing run with its history; what an interruption left half-written is cut off.

        wait: seconds to wait for another process that is writing to it.
        """
        folder = Path(folder)
        read_config(folder)  # before a lock is made in a folder that holds no run
        check_resumable(folder)
        lock = FolderLock(folder, wait)
        try:
            run = cls(folder, read_config(folder), lock, begun=True)
            remove_files(folder, leftovers(folder, RUN_FILES))
            run.history = with_front(*checkpoint.read_history(folder / CHECKPOINT), folder / FRONT)
            run._cut_to(len(run.history))
        except BaseException:
            lock.release()
            raise
        return run

    def append(self, generation: Generation, state: Mapping[str, Any] | None = None) -> None:
        """Records one generation.

        state: what cannot be replayed, such as where a descent is after this generation.
        """
        if not self._begun:
            self._begin()
        elif not self._extended:
            self._extend()
        # The checkpoint last: its line is what makes a generation count.
        append(self.folder / JOURNAL, _journal_line(generation))
        if generation.entered:
            append(self.folder / FRONT, front_lines(generation))
        if generation.answers is not None:
            append(self.folder / REPLIES, reply_bytes(generation))
        append(self.folder / CHECKPOINT, checkpoint.checkpoint_line(generation))
        self.history.append(replace(generation, answers=None))
        if state:
            self.write_state(state)
        elif time.monotonic() - self._synced >= SYNC_EVERY:
            self._sync()

    def continue_as(self, config: ConfigRecord) -> None:
        """Continues with a larger budget or more iterations: written with the first new generation."""
        self.config = config

    def write_state(self, arrays: Mapping[str, Any]) -> None:
        """Saves what cannot be replayed: where a descent or a trainer is after the last generation."""
        self._sync()  # first the lines: a state that is ahead of them would be of no use
        checkpoint.write_state(self.folder, len(self.history), arrays)

    def read_state(self) -> Mapping[str, Any]:
        """The last saved state; the history is cut back to the generation that it belongs to."""
        number, arrays = checkpoint.read_state(self.folder)
        if number > len(self.history):
            raise RunError(f"{self.folder / STATE}: is of generation {number}, but {CHECKPOINT} ends before it")
        self._cut_to(number)
        return arrays

    def write_weights(self, arrays: Mapping[str, Any]) -> None:
        """Keeps the trained copy of a model."""
        checkpoint.save_arrays(self.folder / TRAINED_WEIGHTS, arrays)

    def write_answers(self, arrays: Mapping[str, Any]) -> None:
        """Keeps the top answer to every test image, before and after."""
        write_bytes(self.folder / ANSWERS, save({name: np.ascontiguousarray(a) for name, a in arrays.items()}))

    def write_result(self, result: ResultRecord) -> None:
        write_record(self.folder / RESULT, result)

    def _begin(self) -> None:
        """Takes the place of an earlier run. Its files are deleted once the new config is on disk."""
        content = json_bytes(self.config.model_dump(mode="json"))
        ready = stage(self.folder / CONFIG, lambda path: path.write_bytes(content))
        remove_files(self.folder, (*RUN_FILES, *(set(leftovers(self.folder, RUN_FILES)) - {ready.name})))
        if self.inherited is not None:
            write_bytes(self.folder / INHERITED, self.inherited)
        publish(ready, self.folder / CONFIG)
        self._begun = self._extended = True

    def _extend(self) -> None:
        """Deletes the result and the audit: with another generation they no longer match the run."""
        remove_files(self.folder, (RESULT, AUDIT, SERVICE_AUDIT))
        if self.config != read_config(self.folder):
            write_record(self.folder / CONFIG, self.config)
        self._extended = True

    def _cut_to(self, keep: int) -> None:
        self.history = self.history[:keep]
        files = {
            CHECKPOINT: b"".join(map(_kept_line, _lines(self.folder / CHECKPOINT)[:keep])),
            JOURNAL: b"".join(map(_journal_line, self.history)),
            FRONT: b"".join(map(front_lines, self.history)),
            REPLIES: b"".join(map(reply_bytes, self.history)),
        }
        for name, content in files.items():
            path = self.folder / name
            if (path.read_bytes() if path.is_file() else b"") != content:
                write_bytes(path, content)

    def _sync(self) -> None:
        for name in (FRONT, REPLIES, CHECKPOINT):  # in this order: the checkpoint counts what is in the others
            if (self.folder / name).is_file():
                sync(self.folder / name)
        self._synced = time.monotonic()

    def close(self) -> None:
        if not self._begun:
            self._lock.withdraw()
            return
        try:
            if self._extended:
                self._sync()
        finally:
            self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        finally:
            if self._begun and isinstance(error, WriteError):
                more = "once there is room and it may be written to, continue with"
                raise WriteError(f"{error}; {more}: unsee resume {self.folder}") from None


def is_finished(folder: str | Path) -> bool:
    """Whether this folder holds a finished run."""
    return (Path(folder) / RESULT).is_file()


def read_config(folder: str | Path) -> ConfigRecord:
    """The settings of a run folder."""
    return read_record(ConfigRecord, Path(folder) / CONFIG, "holds no run")


def read_result(folder: str | Path) -> ResultRecord:
    """The result of a finished run."""
    return read_record(ResultRecord, Path(folder) / RESULT, "holds no finished run")


def read_answers(folder: str | Path) -> dict[str, Ints]:
    """The answers of a finished run: labels, answers and their confidences, each (n,); see `Evaluation`."""
    path = Path(folder) / ANSWERS
    if not path.is_file():
        raise RunError(f"{folder}: holds no answers (no {ANSWERS})")
    try:
        return dict(load(path.read_bytes()))
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"{path}: damaged ({error})") from None


def _journal_line(generation: Generation) -> bytes:
    line = JournalLine(
        generation=generation.number,
        candidates=generation.candidates,
        best_loss=float(generation.losses.min()),
        mean_loss=float(generation.losses.mean()),
        valid_h=None if generation.valid is None else generation.valid.h,
        seconds=round(generation.seconds, 3),
        image_queries=generation.ledger.get("image_queries"),
    )
    return line.model_dump_json().encode() + b"\n"


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n") if path.is_file() else []


def _kept_line(line: bytes) -> bytes:
    return line + b"\n"
