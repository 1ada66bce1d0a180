"""Scores on a set of images: a tuned prompt beside the plain prompt and beside a shorter label list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsee.answers.metrics import entropy, per_class_accuracy, scores, top_classes
from unsee.answers.rules import label_mask_answers, serve
from unsee.errors import InputError
from unsee.types import Doubles, Floats, Ints, Mask, Scores


@dataclass(frozen=True)
class BeforeAfter:
    """One measure before and after; None where nothing could be measured."""

    before: float | None
    after: float | None


@dataclass(frozen=True)
class ServedScores:
    """Scores of what a caller sees: answers after the rule that the prompt carries."""

    rule: str
    scores: Scores


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores on one set of images, before and after. "Before" is None where the model answers no plain-text prompt."""

    zero_shot: Scores | None
    label_mask: Scores | None
    tuned: Scores  # before any rule for answers
    served: ServedScores | None  # after it; None without one
    before: Doubles  # (C,) accuracy of each class under the plain prompt; NaN without images
    after: Doubles  # (C,) under the tuned one
    entropy_before: float  # of forgotten images' answers, 1 = uninformative; NaN without images
    entropy_after: float
    answers_before: Ints | None  # (n,) top class of each image
    answers_after: Ints
    sure_before: Floats | None  # (n,) its confidence
    sure_after: Floats

    def arrays(self) -> dict[str, Ints | Floats]:
        """Top answers and their confidences, image by image; those before are left out where there are none."""
        names = ("answers_before", "answers_after", "sure_before", "sure_after")
        return {name: found for name in names if (found := getattr(self, name)) is not None}

    def per_class(self, class_names: tuple[str, ...]) -> dict[str, BeforeAfter]:
        """Accuracy of each class by name."""
        pairs = zip(class_names, self.before, self.after, strict=True)
        return {name: BeforeAfter(_number(b), _number(a)) for name, b, a in pairs}

    @property
    def entropy_forgotten(self) -> BeforeAfter:
        return BeforeAfter(_number(self.entropy_before), _number(self.entropy_after))


def evaluate(plain: Floats | None, tuned: Floats, labels: Ints, forget: Mask, rule: str = "as-is") -> Evaluation:
    """Scores of confidences (n, C) under the plain prompt, if there are any, and under the tuned one.

    rule: what is done to answers under the tuned one before they leave; scored apart, because removing names alone
    makes every answer to a forgotten image wrong.
    """
    if len(labels) == 0:
        raise InputError("there are no images to evaluate on")
    gone, classes = forget[labels], len(forget)

    def mean_entropy(confidences: Floats) -> float:
        return float(entropy(confidences[gone]).mean()) if gone.any() else float("nan")

    return Evaluation(
        zero_shot=None if plain is None else scores(top_classes(plain), labels, forget),
        label_mask=None if plain is None else scores(label_mask_answers(plain, forget), labels, forget),
        tuned=scores(top_classes(tuned), labels, forget),
        served=None if rule == "as-is" else _served(tuned, labels, forget, rule),
        before=np.full(classes, np.nan) if plain is None else per_class_accuracy(top_classes(plain), labels, classes),
        after=per_class_accuracy(top_classes(tuned), labels, classes),
        entropy_before=float("nan") if plain is None else mean_entropy(plain),
        entropy_after=mean_entropy(tuned),
        answers_before=None if plain is None else top_classes(plain),
        answers_after=top_classes(tuned),
        sure_before=None if plain is None else plain.max(axis=1),
        sure_after=tuned.max(axis=1),
    )


def _served(tuned: Floats, labels: Ints, forget: Mask, rule: str) -> ServedScores:
    return ServedScores(rule=rule, scores=scores(top_classes(serve(tuned, forget, rule)), labels, forget))


def _number(x: float) -> float | None:
    return None if np.isnan(x) else float(x)
