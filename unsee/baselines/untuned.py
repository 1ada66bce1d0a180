"""What can be had without tuning: the plain prompt, a struck label list, a gate before the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unsee.evaluation import Evaluation, from_confidences, result_record
from unsee.images import Anything, Images, as_images
from unsee.models import BlackBox, Bound
from unsee.prompts import plain_names
from unsee.records import Data, Floats, Generation, Ledger, Mask, Scores
from unsee.runs import Run
from unsee.scores import answers, scores
from unsee.seeds import stream
from unsee.task import Task, make_task
from unsee.tuner import Watch


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


class Untuned:
    """A fixed rule on the plain prompt's confidences, with the face of `PromptTuner`."""

    def __init__(
        self, forget: str | Sequence[str], method: str, *, preset: str = "tuned", seed: int = 0, **settings: Any
    ) -> None:
        self.forget = plain_names(forget)
        self.method = method
        self.preset = preset
        self.seed = seed
        self.settings = settings

    def fit(
        self,
        model: BlackBox,
        data: Data,
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        watch: Watch | None = None,
    ) -> Untuned:
        """Nothing is learned; validation scores are taken."""
        task = make_task(model, data, self.forget, self.method, self.preset, self.seed, self.settings)
        self._learned(task)
        if out is not None:
            with Run.create(out, self.config_, overwrite) as run:
                run.append(self.history_[0])
        return self

    def resume(
        self, model: BlackBox, data: Data, out: str | Path, *, watch: Watch | None = None, **longer: int | None
    ) -> Untuned:
        """There is nothing to go on with: the same as fit."""
        with Run.open(out) as run:
            task = make_task(model, data, self.forget, self.method, self.preset, self.seed, self.settings)
            task.check_same(run)
        self._learned(task)
        return self

    def predict(self, images: Anything) -> list[str]:
        """The class each image is taken for."""
        bound = self.model_.bind(as_images(images), self.class_names_)
        return [self.class_names_[i] for i in answers(self._apply(bound))]

    def score(self, images: Images) -> Scores:
        """H, Err_for and Acc_mem on labelled images."""
        return self.evaluate(images).tuned

    def evaluate(self, images: Images, bound: Bound | None = None) -> Evaluation:
        """The rule on labelled images, beside zero-shot and label mask."""
        bound = bound or self.model_.bind(images, self.class_names_)
        plain = bound.zero_shot(self.settings_.template)
        return from_confidences(plain, self._apply(bound), images.labels, self.forget_mask_)

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Writes the run as a folder, after the fact."""
        with Run.create(out, self.config_, overwrite) as run:
            run.append(self.history_[0])

    def result(self, evaluation: Evaluation, seconds: dict[str, float]) -> dict[str, Any]:
        """What `result.json` holds."""
        return result_record(self.made_, evaluation, seconds)

    def _learned(self, task: Task) -> None:
        self.model_ = task.model
        self.settings_ = task.settings
        self.class_names_ = task.data.class_names
        self.forget_mask_ = task.forget
        self.skipped_ = task.split.skipped
        self.config_ = task.config()
        images = task.data.train.subset(task.split.valid)
        bound = task.model.bind(images, self.class_names_)
        self.ledger_ = Ledger(image_queries=len(images), prompts_encoded=len(self.class_names_), generations=1)
        self.valid_ = scores(answers(self._apply(bound)), images.labels, task.forget)
        self.history_ = [Generation(1, np.zeros(1), 0, None, self.valid_, ledger=self.ledger_.as_dict())]
        self.made_ = task.made(self.valid_, self.ledger_)

    def _apply(self, bound: Bound) -> Floats:
        p = bound.zero_shot(self.settings_.template)
        return RULES[self.method](p, self.forget_mask_, stream(self.seed, "gate"))
