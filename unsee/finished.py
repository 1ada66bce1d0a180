"""A finished run, read back: what it was, what it scored, how it got there, every answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unsee.errors import RunError
from unsee.records import Ints, Mask
from unsee.runs import ANSWERS, CONFIG, JOURNAL, PICTURE, check_whole, read_answers, read_config, read_result

_PNG = b"\x89PNG\r\n\x1a\n"
_CONFIG = ("settings", "class_names", "model", "data")
_SCORED = ("zero_shot", "test", "label_mask", "per_class", "entropy_forgotten", "ledger", "seconds")
_RESULT = ("method", "preset", "seed", "model", "data", "forget", *_SCORED)


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """All that a run folder tells. A run of an older version may have no answers; any run may have no picture."""

    folder: Path
    config: Mapping[str, Any]
    result: Mapping[str, Any]
    journal: list[dict[str, Any]]
    answers: Mapping[str, Ints] | None
    picture: bytes | None

    @property
    def model(self) -> str:
        """The model's name; of a path, its last part."""
        return _last(self.result["model"])

    @property
    def data(self) -> str:
        return _last(self.result["data"])

    @property
    def class_names(self) -> list[str]:
        return list(self.config["class_names"])

    @property
    def forgotten(self) -> Mask:
        wanted = set(self.result["forget"])
        return np.array([name in wanted for name in self.class_names], dtype=np.bool_)

    @property
    def task(self) -> str:
        """Equal for runs whose scores can be compared: one model, one data set, one list of classes to forget."""
        facts = [self.config["model"], self.result["data"], self.class_names, sorted(self.result["forget"])]
        return json.dumps(facts, sort_keys=True)

    @property
    def settings(self) -> dict[str, Any]:
        """All but the seed."""
        return {name: value for name, value in self.config["settings"].items() if name != "seed"}

    def confusion(self) -> tuple[Ints, Ints] | None:
        """Counts (C, C) of true class by answer, before and after; None without answers."""
        if self.answers is None:
            return None
        labels, n = self.answers["labels"], len(self.class_names)
        before, after = (
            np.bincount(labels * n + self.answers[name], minlength=n * n).reshape(n, n)
            for name in ("answers_before", "answers_after")
        )
        return before, after


def read_run(folder: str | Path) -> FinishedRun:
    """A finished run from its folder; an unfinished or damaged one is refused."""
    folder = Path(folder)
    config = read_config(folder)
    if not check_whole(folder):
        raise RunError(f"{folder} is not finished (no result.json); go on with: unsee resume {folder}")
    result = read_result(folder)
    for name, found, keys in ((CONFIG, config, _CONFIG), ("result.json", result, _RESULT)):
        for key in keys:
            if key not in found:
                raise RunError(f"{folder / name}: {key} is missing")
    if set(result["per_class"]) != set(config["class_names"]):
        raise RunError(f"{folder}: the classes of result.json are not those of {CONFIG}")
    picture = folder / PICTURE
    content = picture.read_bytes() if picture.is_file() else b""
    return FinishedRun(
        folder,
        config,
        result,
        _journal(folder / JOURNAL),
        _answers(folder, len(config["class_names"])),
        content if content.startswith(_PNG) else None,
    )


def _journal(path: Path) -> list[dict[str, Any]]:
    """The journal's lines; one that a kill tore is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and {"candidates", "best_loss"} <= set(entry):
            found.append(entry)
    return found


def _answers(folder: Path, classes: int) -> Mapping[str, Ints] | None:
    if not (folder / ANSWERS).is_file():
        return None
    found = read_answers(folder)
    names = ("labels", "answers_before", "answers_after")
    for name in names:
        if name not in found:
            raise RunError(f"{folder / ANSWERS}: {name} is missing")
    kept = {name: np.asarray(found[name], dtype=np.int64) for name in names}
    if len({len(a) for a in kept.values()}) > 1 or any(((a < 0) | (a >= classes)).any() for a in kept.values()):
        raise RunError(f"{folder / ANSWERS}: damaged (not answers of {classes} classes)")
    return kept


def _last(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name
