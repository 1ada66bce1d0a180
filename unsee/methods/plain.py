"""What a run asks under the plain prompt, before and beside its own candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from unsee.answers.metrics import near_chance, scores, top_classes
from unsee.errors import InputError
from unsee.models.black_box import BoundImages
from unsee.types import Floats, Ints, Ledger, Mask


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

    def warning(self) -> str | None:
        """A sentence if these answers are near chance, so that there is little to forget."""
        return None if self.confidences is None else warn_if_near_chance(self.confidences, self.labels, self._template)


def warn_if_near_chance(plain: Floats, labels: Ints, template: str) -> str | None:
    """A sentence if the model's plain answers (n, C) are near chance."""
    accuracy, classes = float((top_classes(plain) == labels).mean()), plain.shape[1]
    if not near_chance(accuracy, classes, len(labels)):
        return None
    return (
        f"the model hardly knows these classes: {100 * accuracy:.3g} % of the images to tune on are recognised under "
        f"{template!r}, chance is {100 / classes:.3g} %; the scores say little"
    )
