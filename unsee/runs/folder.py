"""A run is a folder: settings, a journal, a checkpoint, the prompt, the result.

`journal.jsonl` is for people: one line per generation. `checkpoint.jsonl` is what `resume` reads: the
losses of every candidate and which became the best. As a search is a function of its seed and the
losses told, these lines are enough to continue bit for bit, and there is nothing to unpickle. A gradient
descent, which is not, saves its state in `checkpoint.safetensors`. The two journals are
only ever appended to; if a kill leaves half a line, it is dropped and its generation evaluated again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.numpy import load, load_file, save, save_file

from unsee.errors import RunError, RunInUse
from unsee.files import write_bytes, write_with
from unsee.runs.front import front_lines, with_front
from unsee.runs.records import CheckpointLine, ConfigRecord, JournalLine, ResultRecord, read_record, write_record
from unsee.types import Generation, Ints

CONFIG, JOURNAL, CHECKPOINT, RESULT = "config.json", "journal.jsonl", "checkpoint.jsonl", "result.json"
STATE, ANSWERS, PICTURE, WEIGHTS = "checkpoint.safetensors", "answers.safetensors", "picture.png", "weights.safetensors"
AUDIT, FRONT, LOCK = "audit.json", "front.jsonl", ".lock"
_PROMPT = ("prompt.safetensors", "prompt.json")
RUN_FILES = (CONFIG, JOURNAL, CHECKPOINT, STATE, RESULT, ANSWERS, PICTURE, WEIGHTS, AUDIT, FRONT, *_PROMPT)


def check_free(folder: str | Path, overwrite: bool = False) -> None:
    """Refuses a folder that already holds a run."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder for a run")
    if (folder / CONFIG).exists() and not overwrite:
        raise RunError(
            f"{folder} already holds a run; continue it with: unsee resume {folder} — or start over with --overwrite"
        )


class RunFolder:
    """An open run folder, locked against a second writer."""

    def __init__(self, folder: Path, config: ConfigRecord, history: list[Generation], wait: float = 0) -> None:
        self.folder = folder
        self.config = config
        self.history = history
        self._begun = True
        self._lock = FileLock(folder / LOCK, timeout=wait)
        try:
            self._lock.acquire()
        except Timeout:
            raise RunInUse(f"{folder} is in use by another unsee process") from None

    @classmethod
    def create(cls, folder: str | Path, config: ConfigRecord, overwrite: bool = False) -> RunFolder:
        """A new run, written to disk with its first generation: one that fails before leaves nothing behind.

        Files of an earlier run in the folder are deleted only then, and only if overwriting.
        """
        folder = Path(folder)
        check_free(folder, overwrite)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the run folder {folder}: {error.strerror}") from None
        run = cls(folder, config, [])
        run._begun = False
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
        run = cls(folder, read_config(folder), [], wait)
        try:
            run.history = with_front(_read_history(folder / CHECKPOINT), folder / FRONT)
            run._cut_to(len(run.history))
        except BaseException:
            run.close()
            raise
        return run

    def append(self, generation: Generation, state: Mapping[str, Any] | None = None) -> None:
        """Records one generation; a full one replaces the partial one that a budget left behind.

        state: what cannot be replayed, such as where a descent is after this generation.
        """
        if not self._begun:
            for name in RUN_FILES:
                (self.folder / name).unlink(missing_ok=True)
            write_record(self.folder / CONFIG, self.config)
            self._begun = True
        if self.history and self.history[-1].number == generation.number:
            self._cut_to(len(self.history) - 1)
        # The journal first: the checkpoint's line is what makes a generation count.
        _append(self.folder / JOURNAL, _journal_line(generation))
        for line in front_lines(generation):
            _append(self.folder / FRONT, line)
        _append(self.folder / CHECKPOINT, _line(generation))
        self.history.append(generation)
        if state:
            self.write_state(state)

    def write_state(self, arrays: Mapping[str, Any]) -> None:
        """Saves what cannot be replayed: where a descent is after the last generation."""
        number = np.array([len(self.history)], dtype=np.float64)
        write_with(self.folder / STATE, lambda path: save_file({"generation": number, **arrays}, path))

    def read_state(self) -> Mapping[str, Any]:
        """The last saved state; the history is cut back to the generation that it belongs to."""
        path = self.folder / STATE
        try:
            arrays = load_file(path) if path.is_file() else {}
            keep = int(arrays.pop("generation", np.zeros(1))[0])
        except (OSError, ValueError, SafetensorError) as error:
            raise RunError(f"{path}: damaged ({error})") from None
        self._cut_to(keep)
        return arrays

    def write_config(self, config: ConfigRecord) -> None:
        """Continues with a larger budget or more iterations. Deletes result.json: it no longer matches the settings."""
        if config != self.config:
            for name in (RESULT, AUDIT):
                (self.folder / name).unlink(missing_ok=True)
            write_record(self.folder / CONFIG, config)
            self.config = config

    def write_weights(self, arrays: Mapping[str, Any]) -> None:
        """Keeps the trained copy of a model."""
        write_with(self.folder / WEIGHTS, lambda path: save_file(dict(arrays), path))

    def write_answers(self, arrays: Mapping[str, Any]) -> None:
        """Keeps the top answer to every test image, before and after."""
        write_bytes(self.folder / ANSWERS, save({name: np.ascontiguousarray(a) for name, a in arrays.items()}))

    def write_result(self, result: ResultRecord) -> None:
        write_record(self.folder / RESULT, result)

    def _cut_to(self, keep: int) -> None:
        self.history = self.history[:keep]
        _cut(self.folder / CHECKPOINT, [_line(g) for g in self.history])
        _cut_journal(self.folder / JOURNAL, keep)
        if (self.folder / FRONT).is_file():
            _cut(self.folder / FRONT, [line for g in self.history for line in front_lines(g)])

    def close(self) -> None:
        self._lock.release()
        if not self._begun:
            (self.folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # it holds other files, or an earlier run
                self.folder.rmdir()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
    """The answers of a finished run: labels, answers_before, answers_after, sure_before, sure_after, each (n,)."""
    path = Path(folder) / ANSWERS
    if not path.is_file():
        raise RunError(f"{folder}: holds no answers (no {ANSWERS})")
    try:
        return dict(load(path.read_bytes()))
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"{path}: damaged ({error})") from None


def _journal_line(generation: Generation) -> str:
    return JournalLine(
        generation=generation.number,
        candidates=generation.candidates,
        best_loss=float(generation.losses.min()),
        mean_loss=float(generation.losses.mean()),
        valid_h=None if generation.valid is None else generation.valid.h,
        seconds=round(generation.seconds, 3),
    ).model_dump_json()


def _line(generation: Generation) -> str:
    """One generation as JSON with a checksum over the rest of the line."""
    body = CheckpointLine(
        generation=generation.number,
        candidates=generation.candidates,
        losses=tuple(float(loss) for loss in generation.losses),
        chosen=generation.chosen,
        valid=generation.valid,
        partial=generation.partial,
        validated=generation.validated,
        ledger=generation.ledger,
        seconds=round(generation.seconds, 3),
        trade_offs=generation.trade_offs,
    ).model_dump_json()
    return f"{zlib.crc32(body.encode()):08x} {body}"


def _read_history(path: Path) -> list[Generation]:
    history: list[Generation] = []
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    last = max((i for i, line in enumerate(lines) if line), default=-1)
    for i, line in enumerate(lines[: last + 1]):
        generation = _parse_line(line)
        if generation is None:
            if i == last:
                break  # half-written when the run was killed
            raise RunError(f"{path}: line {i + 1} is damaged; the run cannot be resumed from it")
        if generation.number != len(history) + 1:
            raise RunError(f"{path}: line {i + 1} is generation {generation.number}, not {len(history) + 1}")
        history.append(generation)
    return history


def _parse_line(line: bytes) -> Generation | None:
    checksum, _, body = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body):
            return None
        found = CheckpointLine.model_validate_json(body)
    except ValueError:
        return None
    return Generation(
        number=found.generation,
        losses=np.array(found.losses, dtype=np.float64),
        candidates=found.candidates,
        chosen=found.chosen,
        valid=found.valid,
        partial=found.partial,
        validated=found.validated,
        ledger=found.ledger,
        seconds=found.seconds,
        trade_offs=found.trade_offs,
    )


def _append(path: Path, line: str) -> None:
    with path.open("ab") as out:
        out.write(line.encode() + b"\n")
        out.flush()


def _cut(path: Path, lines: list[str]) -> None:
    """Leaves just these lines in the file, touching it only if it holds anything else."""
    content = "".join(line + "\n" for line in lines).encode()
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content)


def _cut_journal(path: Path, keep: int) -> None:
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    whole = [line.decode() for line in lines[:-1]]  # what follows the last newline is half-written
    if len(whole) < keep:
        raise RunError(f"{path}: has {len(whole)} of {keep} generations; the run folder was changed by hand")
    _cut(path, whole[:keep])
