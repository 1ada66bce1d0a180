"""What can be had without tuning: the plain prompt, a shorter label list, a gate before the answer.

Rules on class embeddings instead of answers are in `null_space.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsee.answers.metrics import scores, top_classes
from unsee.answers.rules import gate, mask
from unsee.errors import InputError
from unsee.methods.asked import bind_images
from unsee.methods.best import Evaluated
from unsee.methods.fitted import Fitted
from unsee.methods.null_space import NULL_SPACES, project_classifier
from unsee.methods.plain import warn_if_near_chance
from unsee.methods.recorder import Recorder
from unsee.methods.task import Task
from unsee.models.black_box import BoundImages
from unsee.seeds import stream
from unsee.types import Floats, Mask


def _plain(p: Floats, forget: Mask, rng: np.random.Generator) -> Floats:
    return p


RULES: dict[str, Callable[[Floats, Mask, np.random.Generator], Floats]] = {
    "zero-shot": _plain,
    "label-mask": mask,
    "uniform-gate": gate,
}


@dataclass(frozen=True, eq=False)
class FixedRule:
    """A fixed rule on the plain prompt's confidences."""

    task: Task

    def confidences(self, images: BoundImages) -> Floats:
        plain = images.zero_shot(self.task.settings.template)
        if plain is None:
            method = self.task.settings.method
            raise InputError(f"method {method!r} needs answers to a plain-text prompt; this model gives none")
        return self.apply(plain)

    def apply(self, plain: Floats) -> Floats:
        """What the rule makes of the plain prompt's answers (n, C)."""
        settings = self.task.settings
        return RULES[settings.method](plain, self.task.forget, stream(settings.seed, "gate"))


def apply_rule(task: Task, recorder: Recorder) -> Fitted:
    """Nothing is learned; validation scores are taken."""
    fitted: Fitted = project_classifier(task) if task.settings.method in NULL_SPACES else FixedRule(task)
    if recorder.history:
        return fitted
    images, template = bind_images(task, task.data.train.subset(task.split.valid)), task.settings.template
    plain = images.zero_shot(template)
    if plain is not None and (warning := warn_if_near_chance(plain, images.labels, template)):
        recorder.warn(warning)
    asked = int(plain is not None)
    if isinstance(fitted, FixedRule) and plain is not None:
        found = fitted.apply(plain)
    else:
        found, asked = fitted.confidences(images), asked + 1
    valid = scores(top_classes(found), images.labels, task.forget)
    recorder.ledger.image_queries += asked * len(images.labels)
    recorder.ledger.prompts_encoded += asked * len(images.class_names)
    recorder.append(recorder.record(Evaluated(np.zeros(1), {0: valid}), spent=0))
    return fitted
