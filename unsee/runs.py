"""A run is a folder: settings, a journal, a checkpoint, the prompt, the result.

`journal.jsonl` is for people: one line a generation. `checkpoint.jsonl` is what `resume` reads: the
losses of every candidate and which became the best. As a search is a function of its seed and the
losses told, these lines are enough to go on bit for bit, and there is nothing to unpickle. A gradient
descent, which is not, keeps where it stands in `checkpoint.safetensors`. The two journals are
only ever appended to; a line torn by a kill is dropped, and its generation evaluated again.
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.numpy import load, save

from unsee.errors import RunError
from unsee.files import write_bytes, write_json
from unsee.records import Doubles, Generation, Scores

CONFIG, JOURNAL, CHECKPOINT, RESULT = "config.json", "journal.jsonl", "checkpoint.jsonl", "result.json"
STATE, ANSWERS, PICTURE = "checkpoint.safetensors", "answers.safetensors", "picture.png"
LOCK = ".lock"
FILES = (CONFIG, JOURNAL, CHECKPOINT, STATE, RESULT, ANSWERS, "prompt.safetensors", "prompt.json", PICTURE)


def check_free(folder: str | Path, overwrite: bool = False) -> None:
    """Refuses a folder that already holds a run."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder for a run")
    if (folder / CONFIG).exists() and not overwrite:
        raise RunError(
            f"{folder} already holds a run; go on with: unsee resume {folder} — or start anew with --overwrite"
        )


class Run:
    """An open run folder, locked against a second writer."""

    def __init__(self, folder: Path, config: dict[str, Any], history: list[Generation]) -> None:
        self.folder = folder
        self.config = config
        self.history = history
        self._begun = True
        self._lock = FileLock(folder / LOCK, timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise RunError(f"{folder} is in use by another unsee process") from None

    @classmethod
    def create(cls, folder: str | Path, config: dict[str, Any], overwrite: bool = False) -> Run:
        """A new run, written to disk with its first generation: one that fails before leaves nothing behind.

        What an earlier run left in the folder goes only then, and only if overwriting.
        """
        folder = Path(folder)
        check_free(folder, overwrite)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the run folder {folder}: {error.strerror}") from None
        run = cls(folder, config, [])
        run._begun = False
        return run

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """An existing run, with what can be trusted of its history; the torn rest is cut off."""
        folder = Path(folder)
        run = cls(folder, read_config(folder), [])
        try:
            run.history = _read_history(folder / CHECKPOINT)
            _cut(folder / CHECKPOINT, [_line(g) for g in run.history])
            _cut_journal(folder / JOURNAL, len(run.history))
        except BaseException:
            run.close()
            raise
        return run

    def append(self, generation: Generation) -> None:
        """Records one generation; a full one takes the place of the partial one a budget left behind."""
        if not self._begun:
            for name in FILES:
                (self.folder / name).unlink(missing_ok=True)
            write_json(self.folder / CONFIG, self.config)
            self._begun = True
        if self.history and self.history[-1].number == generation.number:
            self.history.pop()
            _cut(self.folder / CHECKPOINT, [_line(g) for g in self.history])
            _cut_journal(self.folder / JOURNAL, len(self.history))
        # The journal first: the checkpoint's line is what makes a generation count.
        _append(self.folder / JOURNAL, json.dumps(generation.summary()))
        _append(self.folder / CHECKPOINT, _line(generation))
        self.history.append(generation)

    def write_state(self, arrays: dict[str, Doubles]) -> None:
        """Saves what cannot be replayed: where a descent stands after the last generation."""
        number = np.array([len(self.history)], dtype=np.float64)
        write_bytes(self.folder / STATE, save({"generation": number, **arrays}))

    def read_state(self) -> dict[str, Doubles]:
        """What `write_state` saved last; the history is cut back to it, as it may be a generation ahead."""
        path = self.folder / STATE
        try:
            arrays = load(path.read_bytes()) if path.is_file() else {}
            keep = int(arrays.pop("generation", np.zeros(1))[0])
        except (OSError, ValueError, SafetensorError) as error:
            raise RunError(f"{path}: damaged ({error})") from None
        self.history = self.history[:keep]
        _cut(self.folder / CHECKPOINT, [_line(g) for g in self.history])
        _cut_journal(self.folder / JOURNAL, keep)
        return arrays

    def write_config(self, config: dict[str, Any]) -> None:
        """Goes on under other settings, such as a larger budget; a result of the old ones would pass for theirs."""
        if config != self.config:
            (self.folder / RESULT).unlink(missing_ok=True)
            write_json(self.folder / CONFIG, config)
            self.config = config

    def write_answers(self, arrays: dict[str, Any]) -> None:
        """Keeps the top answer to every test image, before and after."""
        write_bytes(self.folder / ANSWERS, save({name: np.ascontiguousarray(a) for name, a in arrays.items()}))

    def write_result(self, result: dict[str, Any]) -> None:
        write_json(self.folder / RESULT, result)

    def close(self) -> None:
        self._lock.release()
        if not self._begun:
            (self.folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # it holds other files, or an earlier run
                self.folder.rmdir()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_whole(folder: str | Path) -> bool:
    """Whether this folder holds a finished run."""
    return (Path(folder) / RESULT).is_file()


def read_config(folder: str | Path) -> dict[str, Any]:
    """The settings of a run folder."""
    return _read_json(Path(folder), CONFIG, "holds no run")


def read_result(folder: str | Path) -> dict[str, Any]:
    """The result of a finished run."""
    return _read_json(Path(folder), RESULT, "holds no finished run")


def read_answers(folder: str | Path) -> dict[str, Any]:
    """The answers of a finished run: labels, answers_before, answers_after, sure_before, sure_after, each (n,)."""
    path = Path(folder) / ANSWERS
    if not path.is_file():
        raise RunError(f"{folder}: holds no answers (no {ANSWERS})")
    try:
        return dict(load(path.read_bytes()))
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"{path}: damaged ({error})") from None


def _read_json(folder: Path, name: str, missing: str) -> dict[str, Any]:
    path = folder / name
    if not path.is_file():
        raise RunError(f"{folder}: {missing} (no {name})")
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: damaged ({error})") from None
    if not isinstance(loaded, dict):
        raise RunError(f"{path}: damaged (not a JSON object)")
    return loaded


def _line(generation: Generation) -> str:
    """One generation as JSON with a checksum over the rest of the line."""
    body = json.dumps(
        {
            "generation": generation.number,
            "candidates": generation.candidates,
            "losses": [float(loss) for loss in generation.losses],
            "chosen": generation.chosen,
            "valid": None if generation.valid is None else generation.valid.as_dict(),
            "partial": generation.partial,
            "ledger": generation.ledger,
            "seconds": round(generation.seconds, 3),
        }
    )
    return f"{zlib.crc32(body.encode()):08x} {body}"


def _read_history(path: Path) -> list[Generation]:
    history: list[Generation] = []
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    last = max((i for i, line in enumerate(lines) if line), default=-1)
    for i, line in enumerate(lines[: last + 1]):
        generation = _parse(line)
        if generation is None:
            if i == last:
                break  # torn by a kill
            raise RunError(f"{path}: line {i + 1} is damaged; the run cannot be resumed from it")
        if generation.number != len(history) + 1:
            raise RunError(f"{path}: line {i + 1} is generation {generation.number}, not {len(history) + 1}")
        history.append(generation)
    return history


def _parse(line: bytes) -> Generation | None:
    checksum, _, body = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body):
            return None
        found = json.loads(body)
        return Generation(
            number=found["generation"],
            losses=np.array(found["losses"], dtype=np.float64),
            candidates=found["candidates"],
            chosen=found["chosen"],
            valid=None if found["valid"] is None else Scores(**found["valid"]),
            partial=found["partial"],
            ledger=found["ledger"],
            seconds=found["seconds"],
        )
    except (ValueError, KeyError, TypeError):
        return None


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
    whole = [line.decode() for line in lines[:-1]]  # what follows the last newline is torn
    if len(whole) < keep:
        raise RunError(f"{path}: has {len(whole)} of {keep} generations; the run folder was changed by hand")
    _cut(path, whole[:keep])
