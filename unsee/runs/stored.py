"""A finished run, read back from its folder: what it was, what it scored, how it got there, every answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unsee.errors import RunError
from unsee.runs.folder import (
    ANSWERS,
    CONFIG,
    FRONT,
    JOURNAL,
    PICTURE,
    is_finished,
    read_answers,
    read_config,
    read_result,
)
from unsee.runs.front import read_front
from unsee.runs.records import ConfigRecord, JournalLine, ResultRecord
from unsee.settings import Value
from unsee.types import Candidate, Ints, Mask

_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, eq=False)
class StoredRun:
    """All that a run folder tells. A run may have no answers and no picture."""

    folder: Path
    config: ConfigRecord
    result: ResultRecord
    journal: list[JournalLine]
    answers: Mapping[str, Ints] | None
    picture: bytes | None
    front: tuple[Candidate, ...] = ()  # trade-offs to pick from

    @property
    def model(self) -> str:
        """The model's name; of a path, its last part."""
        return _last(self.result.model)

    @property
    def data(self) -> str:
        return _last(self.result.data)

    @property
    def class_names(self) -> list[str]:
        return list(self.config.class_names)

    @property
    def forgotten(self) -> Mask:
        wanted = set(self.result.forget)
        return np.array([name in wanted for name in self.class_names], dtype=np.bool_)

    @property
    def task(self) -> str:
        """Equal for runs whose scores can be compared: one model, one data set, one list of classes to forget."""
        facts = [self.config.model.model_dump(), self.result.data, self.class_names, sorted(self.result.forget)]
        return json.dumps(facts, sort_keys=True)

    @property
    def settings(self) -> dict[str, Value]:
        """All but the seed."""
        return {name: value for name, value in self.config.settings.as_dict().items() if name != "seed"}

    def confusion(self) -> dict[str, Ints]:
        """Counts (C, C + 1) of true class by answer, "before", "after" and "served"; the last column is no label.

        Empty without answers. There is no "before" for a model that answers no plain-text prompt, and no "served" in
        runs of earlier versions that carry a rule.
        """
        if self.answers is None:
            return {}
        labels, n = self.answers["labels"], len(self.class_names) + 1

        def count(answered: Ints) -> Ints:
            cells = labels * n + np.where(answered < 0, n - 1, answered)
            return np.bincount(cells, minlength=(n - 1) * n).reshape(n - 1, n)

        found = {when: self.answers.get(f"answers_{when}") for when in ("before", "after", "served")}
        if found["served"] is None and self.result.served is None:
            found["served"] = found["after"]
        return {when: count(answers) for when, answers in found.items() if answers is not None}


def read_run(folder: str | Path) -> StoredRun:
    """A finished run from its folder; an unfinished or damaged one is refused."""
    folder = Path(folder)
    config = read_config(folder)
    if not is_finished(folder):
        raise RunError(f"{folder} is not finished (no result.json); continue it with: unsee resume {folder}")
    result = read_result(folder)
    if set(result.per_class) != set(config.class_names):
        raise RunError(f"{folder}: the classes of result.json are not those of {CONFIG}")
    picture = folder / PICTURE
    content = picture.read_bytes() if picture.is_file() else b""
    return StoredRun(
        folder,
        config,
        result,
        read_journal(folder),
        _answers(folder, len(config.class_names)),
        content if content.startswith(_PNG) else None,
        read_front(folder / FRONT),
    )


def read_journal(folder: Path, after: int = 0) -> list[JournalLine]:
    """The journal's lines after the first so many; one that was half-written when the run was killed is left out."""
    path, found = folder / JOURNAL, []
    for line in path.read_bytes().splitlines()[after:] if path.is_file() else []:
        try:
            found.append(JournalLine.model_validate_json(line))
        except ValueError:
            continue
    return found


def _answers(folder: Path, classes: int) -> Mapping[str, Ints] | None:
    if not (folder / ANSWERS).is_file():
        return None
    found = read_answers(folder)
    for name in ("labels", "answers_after"):
        if name not in found:
            raise RunError(f"{folder / ANSWERS}: {name} is missing")
    names = [name for name in ("labels", "answers_before", "answers_after", "answers_served") if name in found]
    if "answers_before" in names and np.isnan(found.get("sure_before", 0.0)).any():  # NaN: so earlier versions did
        names.remove("answers_before")
    kept: dict[str, Ints] = {name: np.asarray(found[name], dtype=np.int64) for name in names}
    least = {"answers_served": -1}  # no label
    outside = any(((a < least.get(name, 0)) | (a >= classes)).any() for name, a in kept.items())
    if outside or len({len(a) for a in kept.values()}) > 1:
        raise RunError(f"{folder / ANSWERS}: damaged (not answers of {classes} classes)")
    return kept


def _last(name: str) -> str:
    return Path(name).name if Path(name).is_absolute() else name
