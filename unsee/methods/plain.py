"""What a run asks under the plain prompt, before and beside its own candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from unsee.answers.intervals import share_of
from unsee.answers.metrics import near_chance, scores, top_classes
from unsee.data.class_names import listed
from unsee.errors import InputError
from unsee.models.black_box import BoundImages
from unsee.types import Floats, Ints, Ledger, Mask

SEEN = 0.5  # of a class's images: a class that may still be recognised so often is not called unknown


class PlainPrompt:
    """The plain prompt's answers to the images of a task: asked for once, when first needed, and counted."""

    def __init__(self, bound: Callable[[], Sequence[BoundImages]], template: str, ledger: Ledger) -> None:
        self._bound = bound
        self._template = template
        self._ledger = ledger

    @cached_property
    def confidences(self) -> Floats | None:
        """Answers (n, C) to the images to tune on, then to those to validate on; None if the model gives none."""
        parts = self._bound()
        found = [part.zero_shot(self._template) for part in parts]
        given = [each for each in found if each is not None]
        if len(given) < len(parts):
            return None
        self._ledger.prompts_encoded += sum(each.shape[1] for each in given)
        self._ledger.image_queries += sum(len(each) for each in given)
        return np.concatenate(given)

    @property
    def labels(self) -> Ints:
        """Labels (n,) of these images."""
        return np.concatenate([part.labels for part in self._bound()])

    def acc_mem(self, forget: Mask) -> float:
        """Acc_mem of the plain prompt on these images. forget (C,)."""
        if self.confidences is None:
            raise InputError("Acc_mem of the plain prompt is not known: this model answers no plain-text prompt")
        return scores(top_classes(self.confidences), self.labels, forget).acc_mem

    def warning(self, names: Sequence[str], model: str) -> str | None:
        """A sentence if these answers are near chance, for all classes or for some: there is little to forget."""
        if self.confidences is None:
            return None
        return warn_if_not_known(self.confidences, self.labels, self._template, names, model)


def warn_if_not_known(plain: Floats, labels: Ints, template: str, names: Sequence[str], model: str) -> str | None:
    """A sentence if the model's plain answers (n, C) are near chance, or the names of classes that it does not know."""
    if overall := _near_chance(plain, labels, template):
        return overall
    unknown = [names[c] for c in classes_not_known(plain, labels)]
    if not unknown:
        return None
    return f"{model} does not know: {listed(unknown)} (at or below chance under {template!r})"


def classes_not_known(plain: Floats, labels: Ints) -> list[int]:
    """Classes recognised no more often than by chance, where there are images enough to notice if half of them were."""
    right, classes = top_classes(plain) == labels, plain.shape[1]
    found = []
    for c in np.unique(labels):
        share = share_of(right[labels == c])
        if share.value <= 1 / classes and share.high < SEEN:
            found.append(int(c))
    return found


def _near_chance(plain: Floats, labels: Ints, template: str) -> str | None:
    """A sentence if the answers are near chance over all classes."""
    accuracy, classes = float((top_classes(plain) == labels).mean()), plain.shape[1]
    if not near_chance(accuracy, classes, len(labels)):
        return None
    return (
        f"the model hardly knows these classes: {100 * accuracy:.3g} % of the images to tune on are recognised under "
        f"{template!r}, chance is {100 / classes:.3g} %; the scores say little"
    )
