"""Scores on a set of images: a tuned prompt beside the plain prompt and beside a shorter label list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsee.answers.metrics import entropy, per_class_accuracy, scores, top_classes, top_labels
from unsee.answers.rules import label_mask_answers, serve
from unsee.errors import InputError
from unsee.types import Doubles, Floats, Ints, Mask, Scores


@dataclass(frozen=True)
class BeforeAfter:
    """One measure under the plain prompt and the tuned one; None where nothing could be measured."""

    before: float | None  # plain prompt
    after: float | None  # prompt alone
    served: float | None = None  # as served; also None in results of earlier versions


@dataclass(frozen=True)
class ServedScores:
    """Scores of what a caller sees: answers after the rule that the prompt carries."""

    rule: str
    scores: Scores


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores on one set of images. "Before" is None where the model answers no plain-text prompt.

    "After" is the prompt alone, "served" what a caller sees; without a rule they are the same.
    """

    zero_shot: Scores | None
    label_mask: Scores | None
    tuned: Scores  # prompt alone
    served: ServedScores | None  # as served; None without a rule
    rule: str
    before: Doubles  # (C,) accuracy of each class under the plain prompt; NaN without images
    after: Doubles  # (C,) prompt alone
    after_served: Doubles  # (C,) as served
    entropy_before: float  # of forgotten images' answers, 1 = uninformative; NaN without images
    entropy_after: float
    entropy_served: float
    answers_before: Ints | None  # (n,) top class of each image
    answers_after: Ints
    answers_served: Ints  # -1 where the rule leaves no top label
    sure_before: Floats | None  # (n,) its confidence
    sure_after: Floats
    sure_served: Floats

    def arrays(self) -> dict[str, Ints | Floats]:
        """Top answers and their confidences, image by image; those before are left out where there are none."""
        names = [f"{what}_{when}" for what in ("answers", "sure") for when in ("before", "after", "served")]
        return {name: found for name in names if (found := getattr(self, name)) is not None}

    def per_class(self, class_names: tuple[str, ...]) -> dict[str, BeforeAfter]:
        """Accuracy of each class by name."""
        rows = zip(class_names, self.before, self.after, self.after_served, strict=True)
        return {name: BeforeAfter(*map(_number, shares)) for name, *shares in rows}

    @property
    def entropy_forgotten(self) -> BeforeAfter:
        return BeforeAfter(*map(_number, (self.entropy_before, self.entropy_after, self.entropy_served)))


def evaluate(plain: Floats | None, tuned: Floats, labels: Ints, forget: Mask, rule: str = "as-is") -> Evaluation:
    """Scores of confidences (n, C) under the plain prompt, if there are any, and under the tuned one.

    rule: what is done to answers under the tuned one before they leave; scored apart, because removing names alone
    makes every answer to a forgotten image wrong.
    """
    if len(labels) == 0:
        raise InputError("there are no images to evaluate on")
    gone, classes = forget[labels], len(forget)
    seen = serve(tuned, forget, rule)

    def mean_entropy(confidences: Floats) -> float:
        return float(entropy(confidences[gone]).mean()) if gone.any() else float("nan")

    return Evaluation(
        zero_shot=None if plain is None else scores(top_classes(plain), labels, forget),
        label_mask=None if plain is None else scores(label_mask_answers(plain, forget), labels, forget),
        tuned=scores(top_classes(tuned), labels, forget),
        served=None if rule == "as-is" else ServedScores(rule, scores(top_classes(seen), labels, forget)),
        rule=rule,
        before=np.full(classes, np.nan) if plain is None else per_class_accuracy(top_classes(plain), labels, classes),
        after=per_class_accuracy(top_classes(tuned), labels, classes),
        after_served=per_class_accuracy(top_classes(seen), labels, classes),
        entropy_before=float("nan") if plain is None else mean_entropy(plain),
        entropy_after=mean_entropy(tuned),
        entropy_served=mean_entropy(seen),
        answers_before=None if plain is None else top_classes(plain),
        answers_after=top_classes(tuned),
        answers_served=top_labels(seen),
        sure_before=None if plain is None else plain.max(axis=1),
        sure_after=tuned.max(axis=1),
        sure_served=seen.max(axis=1),
    )


def _number(x: float) -> float | None:
    return None if np.isnan(x) else float(x)
