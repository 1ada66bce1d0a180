"""What can be had without tuning: the plain prompt, a struck label list, a gate before the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unsee.images import Images
from unsee.learned import Watch
from unsee.models import Bound
from unsee.records import Floats, Generation, Ledger, Mask, Scores
from unsee.runs import Run
from unsee.scores import answers, scores
from unsee.seeds import stream
from unsee.task import Task


def _plain(p: Floats, forget: Mask, rng: np.random.Generator) -> Floats:
    return p


def _mask(p: Floats, forget: Mask, rng: np.random.Generator) -> Floats:
    """Forgotten names dropped from the label list, the rest made to sum to 1 again."""
    kept: Floats = np.where(forget, 0, p).astype(np.float32)
    total = kept.sum(axis=1, keepdims=True)
    share: Floats = np.where(total > 0, kept / np.maximum(total, 1e-38), ~forget / (~forget).sum()).astype(np.float32)
    return share


def _gate(p: Floats, forget: Mask, rng: np.random.Generator) -> Floats:
    """Where the top answer is a forgotten class: all classes alike, the top one among equals by chance."""
    gated = forget[answers(p)]
    uniform = 1 / p.shape[1] + 1e-6 * rng.random(p.shape)
    found: Floats = np.where(gated[:, None], uniform, p).astype(np.float32)
    return found


RULES: dict[str, Callable[[Floats, Mask, np.random.Generator], Floats]] = {
    "zero-shot": _plain,
    "label-mask": _mask,
    "uniform-gate": _gate,
}


@dataclass(frozen=True, eq=False)
class Ruled:
    """A fixed rule on the plain prompt's confidences."""

    task: Task
    valid: Scores
    ledger: Ledger
    history: list[Generation]

    def confidences(self, images: Images, bound: Bound | None = None) -> Floats:
        return _ruled(self.task, bound or self.task.model.bind(images, self.task.data.class_names))

    def save(self, folder: Path) -> None:
        """Nothing was learned: the run's config says it all."""


def apply_rule(task: Task, run: Run | None, watch: Watch | None) -> Ruled:
    """Nothing is learned; validation scores are taken."""
    images, names = task.data.train.subset(task.split.valid), task.data.class_names
    found = _ruled(task, task.model.bind(images, names))
    valid = scores(answers(found), images.labels, task.forget)
    ledger = Ledger(image_queries=len(images), prompts_encoded=len(names), generations=1)
    generation = Generation(1, np.zeros(1), 0, None, valid, ledger=ledger.as_dict())
    if run is not None and not run.history:
        run.append(generation)
    return Ruled(task, valid, ledger, [generation])


def _ruled(task: Task, bound: Bound) -> Floats:
    plain = bound.zero_shot(task.settings.template)
    return RULES[task.settings.method](plain, task.forget, stream(task.settings.seed, "gate"))
