"""Example images with their answers under a prompt: asked in this process, of a model on this machine.

Nothing of it counts as a query of the run: no run learns from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unsee.answers.metrics import top_classes
from unsee.answers.rules import confidence_text
from unsee.errors import RunError
from unsee.models.black_box import BoundImages, bind
from unsee.runs.checkpoint import CHECKPOINT, read_history
from unsee.runs.prompt import Prompt
from unsee.runs.records import ConfigRecord
from unsee.studio.shelf import Kept, Shelf
from unsee.types import Floats, Ints

EXAMPLES = 18  # images, half of them of classes to forget


@dataclass(frozen=True)
class Example:
    """One image with its answers."""

    row: int  # of its part of the data
    label: str
    forgotten: bool
    before: str
    after: str  # as served
    wanted: bool  # a forgotten one no longer recognised, a kept one recognised


class Examples:
    """Answers to the same few images of each run, under any of its prompts."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._bound: Kept[tuple[Ints, BoundImages, Floats | None]] = Kept(4)

    def of_running(self, folder: Path, config: ConfigRecord) -> tuple[int, list[Example]]:
        """Validation images under the best prompt so far, and the generation that found it."""
        history, _ = read_history(folder / CHECKPOINT)
        best = next((one for one in reversed(history) if one.best is not None), None)
        if best is None or best.best is None:
            raise RunError("this method keeps no prompt while it runs, so there are no answers to show yet")
        return best.number, self.under(folder, config, prompt_of(config, best.best), "valid")

    def under(self, folder: Path, config: ConfigRecord, prompt: Prompt, part: str = "test") -> list[Example]:
        """Test or validation images under this prompt."""
        with self._shelf.asking:
            rows, bound, plain = self._bound.get_or(
                (str(folder), part, config.model_dump_json(include={"split", "forget"})),
                lambda: self._bind(config, part),
            )
            served = prompt.answer(bound)
        gone, names = np.isin(config.class_names, config.forget), config.class_names
        tops, found = top_classes(served), []
        equal = (served == served.max(axis=1, keepdims=True)).sum(axis=1) > 1
        for i, label in enumerate(bound.labels.tolist()):
            top = int(tops[i])
            text = "no label" if equal[i] else names[top] + confidence_text(served[i, top], prompt.serve, 0)
            right = not equal[i] and top == label
            before = "–" if plain is None else _top(plain[i], names)
            found.append(
                Example(int(rows[i]), names[label], bool(gone[label]), before, text, bool(gone[label]) != right)
            )
        return found

    def _bind(self, config: ConfigRecord, part: str) -> tuple[Ints, BoundImages, Floats | None]:
        images = self._shelf.images_of(config, "train" if part == "valid" else "test")
        model = self._shelf.model_of(config)
        among = np.array(config.split.valid if part == "valid" else range(len(images)), dtype=np.int64)
        gone = np.isin(config.class_names, config.forget)[images.labels[among]]
        rows = np.concatenate([_spread(among[gone], EXAMPLES // 2), _spread(among[~gone], EXAMPLES // 2)])
        bound = bind(model, images.subset(rows), config.class_names)
        return rows, bound, bound.zero_shot(config.settings.template)


def prompt_of(config: ConfigRecord, contexts: Floats) -> Prompt:
    """These contexts as the prompt of a run."""
    s, model = config.settings, config.model
    names = config.forget if s.applies_to == "forgotten" else None
    where = names, s.serve, s.position
    return Prompt(contexts, config.class_names, config.forget, model.name, model.fingerprint, s.template, *where)


def _top(confidences: Floats, names: tuple[str, ...]) -> str:
    top = int(confidences.argmax())
    return names[top] + confidence_text(confidences[top], "as-is", 0)


def _spread(rows: Ints, count: int) -> Ints:
    """Evenly from all of them."""
    take = np.linspace(0, len(rows) - 1, min(count, len(rows))).round().astype(np.int64)
    return rows[take]
