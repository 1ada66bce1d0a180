"""A tuned prompt on a set of images, beside the plain prompt and beside a struck label list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unsee.models.border import Bound
from unsee.records import Doubles, Floats, Ints, Ledger, Mask, Scores
from unsee.scores import answers, entropy, label_mask_answers, per_class_accuracy, scores
from unsee.settings import ACCESS


@dataclass(frozen=True)
class Made:
    """What a result is of: who made it, with what, at what cost."""

    method: str
    preset: str
    seed: int
    model: str
    data: str
    forget: tuple[str, ...]
    class_names: tuple[str, ...]
    valid: Scores
    ledger: Ledger


def result_record(made: Made, found: Evaluation, seconds: dict[str, float]) -> dict[str, Any]:
    """What `result.json` holds."""
    classes = zip(made.class_names, found.before.tolist(), found.after.tolist(), strict=True)
    return {
        "method": made.method,
        "preset": made.preset,
        "seed": made.seed,
        "model": made.model,
        "data": made.data,
        "forget": list(made.forget),
        "zero_shot": found.zero_shot.as_dict(),
        "valid": made.valid.as_dict(),
        "test": found.tuned.as_dict(),
        "label_mask": found.label_mask.as_dict(),
        "per_class": {name: {"before": _number(before), "after": _number(after)} for name, before, after in classes},
        "entropy_forgotten": {"before": found.entropy_before, "after": found.entropy_after},
        "access": ACCESS.get(made.method, "confidences"),
        "ledger": made.ledger.as_dict(),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def _number(x: float) -> float | None:
    return None if np.isnan(x) else float(x)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores on one set of images, before and after."""

    zero_shot: Scores
    label_mask: Scores
    tuned: Scores
    before: Doubles  # (C,) accuracy of each class under the plain prompt
    after: Doubles  # (C,) under the tuned one
    entropy_before: float  # of forgotten images' answers, 1 = uninformative
    entropy_after: float
    answers_before: Ints  # (n,) top class of each image
    answers_after: Ints
    sure_before: Floats  # (n,) its confidence
    sure_after: Floats

    def arrays(self) -> dict[str, Ints | Floats]:
        """Top answers and their confidences, image by image."""
        return {name: getattr(self, name) for name in ("answers_before", "answers_after", "sure_before", "sure_after")}


def evaluate(bound: Bound, labels: Ints, contexts: Floats, forget: Mask, template: str) -> Evaluation:
    """Scores of contexts (m, D) on the images a model is bound to, whose classes are labels (n,)."""
    return from_confidences(bound.zero_shot(template), bound.confidences(contexts[None])[0], labels, forget)


def from_confidences(plain: Floats, tuned: Floats, labels: Ints, forget: Mask) -> Evaluation:
    """Scores of confidences (n, C) before and after."""
    gone, classes = forget[labels], len(forget)
    return Evaluation(
        zero_shot=scores(answers(plain), labels, forget),
        label_mask=scores(label_mask_answers(plain, forget), labels, forget),
        tuned=scores(answers(tuned), labels, forget),
        before=per_class_accuracy(answers(plain), labels, classes),
        after=per_class_accuracy(answers(tuned), labels, classes),
        entropy_before=float(entropy(plain[gone]).mean()) if gone.any() else 0.0,
        entropy_after=float(entropy(tuned[gone]).mean()) if gone.any() else 0.0,
        answers_before=answers(plain),
        answers_after=answers(tuned),
        sure_before=plain.max(axis=1),
        sure_after=tuned.max(axis=1),
    )
