"""`front.jsonl`: the candidates that entered a run's Pareto front, one line each, in the order in which they did.

The file is only ever appended to. Which of them are still on the front at the end follows from the lines.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unsee.errors import RunError
from unsee.methods.pareto import front_of
from unsee.runs.checkpoint import decode_contexts, encode_contexts
from unsee.runs.records import FrontLine
from unsee.types import Candidate, Generation


def front_lines(generation: Generation) -> bytes:
    """The lines of a generation."""
    return "".join(_line(candidate) + "\n" for candidate in generation.entered).encode()


def with_front(history: Sequence[Generation], counts: Sequence[int | None], path: Path) -> list[Generation]:
    """The history, each generation with its candidates in this file; lines of later generations are left out.

    A power cut may have taken lines that the checkpoint counts: the history ends before their generation.
    """
    entered: dict[int, list[Candidate]] = {}
    for candidate in _read(path):
        entered.setdefault(candidate.generation, []).append(candidate)
    whole: list[Generation] = []
    for generation, count in zip(history, counts, strict=True):
        mine = entered.get(generation.number, [])
        if count is not None and len(mine) < count:
            break
        whole.append(dataclasses.replace(generation, entered=tuple(mine)))
    return whole


def read_front(path: Path) -> tuple[Candidate, ...]:
    """The Pareto front of a run, from its file; empty without one."""
    return front_of(_read(path))


def front_table(front: Sequence[Candidate]) -> Any:
    """A row per candidate, those that keep most first: a pandas DataFrame if pandas is there, else a list of records.

    err_for, acc_mem and entropy are on the images to tune and to validate on together, valid_h on the latter alone.
    """
    rows = [
        {
            "generation": c.generation,
            "candidate": c.index,
            "loss": c.loss,
            **dataclasses.asdict(c.trade_off),
            "valid_h": c.valid.h,
        }
        for c in sorted(front, key=lambda c: -c.trade_off.acc_mem)
    ]
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _read(path: Path) -> list[Candidate]:
    """Every line; one that was half-written when the run was killed is left out, it never counted."""
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    found = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            found.append(_candidate(FrontLine.model_validate_json(line)))
        except ValueError as error:
            raise RunError(f"{path}: line {number} is damaged ({str(error).splitlines()[0]})") from None
    return found


def _line(c: Candidate) -> str:
    return FrontLine(
        generation=c.generation,
        candidate=c.index,
        loss=c.loss,
        valid=c.valid,
        trade_off=c.trade_off,
        contexts=encode_contexts(c.contexts),
        shape=(c.contexts.shape[0], c.contexts.shape[1]),
    ).model_dump_json()


def _candidate(line: FrontLine) -> Candidate:
    contexts = decode_contexts(line.contexts, line.shape)
    return Candidate(line.generation, line.candidate, line.loss, line.valid, line.trade_off, contexts)
