"""What a checkpoint is: all that `resume` needs to continue a run bit for bit.

`checkpoint.jsonl` has one line per generation, behind a checksum of the line: the losses of every candidate, the
contexts of the one that became the best, and one number that tells the generation's candidates from others. As a search
is a function of its seed and the losses told, these lines are enough: `resume` tells a fresh search the same losses and
checks that it proposes the same candidates. There is nothing to unpickle.

A search that learns from answers needs them as well: they are in `replies.bin`, one generation behind the other, as
float16, little-endian.

A descent or a trainer is not such a function. Where it was after a generation is in `checkpoint.safetensors`, with
the generation's number; later lines of `checkpoint.jsonl` are dropped, and their generations done again.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from unsee.errors import RunError, WriteError
from unsee.files import write_with
from unsee.runs.records import CheckpointLine
from unsee.types import Floats, Generation

CHECKPOINT, STATE, REPLIES = "checkpoint.jsonl", "checkpoint.safetensors", "replies.bin"


def checkpoint_line(generation: Generation) -> bytes:
    """One generation as JSON behind a checksum of the rest of the line."""
    best = generation.best
    body = CheckpointLine(
        generation=generation.number,
        candidates=generation.candidates,
        losses=tuple(float(loss) for loss in generation.losses),
        chosen=generation.chosen,
        valid=generation.valid,
        ledger=generation.ledger,
        seconds=round(generation.seconds, 3),
        z_sum=generation.z_sum,
        best=None if best is None else encode_contexts(best),
        shape=None if best is None else (best.shape[0], best.shape[1]),
        entered=len(generation.entered),
        answers=None if generation.answers is None else generation.answers.shape,
        warnings=generation.warnings,
    ).model_dump_json()
    return f"{zlib.crc32(body.encode()):08x} {body}\n".encode()


def read_history(path: Path) -> tuple[list[Generation], list[int | None]]:
    """The generations of a checkpoint, and how many lines each has in `front.jsonl` (None: written by an old version).

    A last line that was half-written when the run was killed is left out, as is a generation that an old run's budget
    cut short.
    """
    history: list[Generation] = []
    entered: list[int | None] = []
    lines = path.read_bytes().split(b"\n") if path.is_file() else []
    replies = path.with_name(REPLIES).read_bytes() if path.with_name(REPLIES).is_file() else b""
    read = 0
    last = max((i for i, line in enumerate(lines) if line), default=-1)
    for i, line in enumerate(lines[: last + 1]):
        found = _parse(line)
        if found is None:
            if i == last:
                break
            raise RunError(f"{path}: line {i + 1} is damaged; the run cannot be resumed from it")
        if found.partial:  # it is asked again, as a whole
            break
        if found.generation != len(history) + 1:
            raise RunError(f"{path}: line {i + 1} is generation {found.generation}, not {len(history) + 1}")
        size = 0 if found.answers is None else 2 * math.prod(found.answers)
        if read + size > len(replies):  # a power cut took answers that this line counts: they are asked again
            break
        history.append(_generation(found, replies[read : read + size]))
        entered.append(found.entered)
        read += size
    return history, entered


def write_state(folder: Path, number: int, arrays: Mapping[str, Any]) -> None:
    """Saves what cannot be replayed: where a descent or a trainer is after this generation."""
    save_arrays(folder / STATE, {"generation": np.array([number], dtype=np.float64), **arrays})


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Writes named arrays, whole or not at all."""

    def write(temporary: Path) -> None:
        try:
            save_file(dict(arrays), temporary)
        except SafetensorError as error:  # as which it passes on what the disk says
            raise WriteError(f"cannot write {path}: {error}") from None

    write_with(path, write)


def read_state(folder: Path) -> tuple[int, Mapping[str, Any]]:
    """The last saved state, and the generation that it belongs to; 0 without one."""
    path = folder / STATE
    try:
        arrays = load_file(path) if path.is_file() else {}
        return int(arrays.pop("generation", np.zeros(1))[0]), arrays
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"{path}: damaged ({error})") from None


def state_generation(folder: Path) -> int:
    """The generation that the saved state belongs to; 0 without one. Nothing else of it is read."""
    path = folder / STATE
    if not path.is_file():
        return 0
    try:
        with safe_open(path, framework="np") as arrays:
            return int(arrays.get_tensor("generation")[0])
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"{path}: damaged ({error})") from None


def encode_contexts(contexts: Floats) -> str:
    """Contexts (m, D) as float32, little-endian, in base64."""
    return base64.b64encode(np.ascontiguousarray(contexts, dtype="<f4").tobytes()).decode()


def decode_contexts(text: str, shape: tuple[int, int]) -> Floats:
    """The contexts (m, D) that were encoded so; ValueError if the text is not of this shape."""
    content = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4").astype(np.float32)
    return content.reshape(shape)


def _parse(line: bytes) -> CheckpointLine | None:
    checksum, _, body = line.partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body):
            return None
        return CheckpointLine.model_validate_json(body)
    except ValueError:
        return None


def reply_bytes(generation: Generation) -> bytes:
    """The answers of a generation as `replies.bin` has them."""
    return b"" if generation.answers is None else np.ascontiguousarray(generation.answers, dtype="<f2").tobytes()


def _generation(found: CheckpointLine, replies: bytes) -> Generation:
    stored = found.best is not None and found.shape is not None
    return Generation(
        number=found.generation,
        losses=np.array(found.losses, dtype=np.float64),
        candidates=found.candidates,
        chosen=found.chosen,
        valid=found.valid,
        ledger=found.ledger,
        seconds=found.seconds,
        z_sum=found.z_sum,
        best=decode_contexts(found.best, found.shape) if stored else None,  # type: ignore[arg-type]
        warnings=found.warnings,
        answers=None if found.answers is None else np.frombuffer(replies, dtype="<f2").reshape(found.answers),
    )
