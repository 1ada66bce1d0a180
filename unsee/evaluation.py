"""A tuned prompt on a set of images, beside the plain prompt and beside a struck label list."""

from __future__ import annotations

from dataclasses import dataclass

from unsee.models.border import Bound
from unsee.records import Doubles, Floats, Ints, Mask, Scores
from unsee.scores import answers, entropy, label_mask_answers, per_class_accuracy, scores


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


def evaluate(bound: Bound, labels: Ints, contexts: Floats, forget: Mask, template: str) -> Evaluation:
    """Scores of contexts (m, D) on the images a model is bound to, whose classes are labels (n,)."""
    plain = bound.zero_shot(template)
    tuned = bound.confidences(contexts[None])[0]
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
