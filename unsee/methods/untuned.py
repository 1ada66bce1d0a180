"""What can be had without tuning: the plain prompt, a shorter label list, a gate before the answer.

Rules on class embeddings instead of answers are in `null_space.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsee.answers.metrics import scores, top_classes
from unsee.answers.rules import RULES
from unsee.errors import InputError
from unsee.methods.asked import bind_images
from unsee.methods.best import Evaluated
from unsee.methods.fitted import Fitted
from unsee.methods.null_space import NULL_SPACES, project_classifier
from unsee.methods.plain import warn_if_not_known
from unsee.methods.recorder import Recorder
from unsee.methods.task import Task
from unsee.models.black_box import BoundImages
from unsee.seeds import stream
from unsee.types import Floats, Mask


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

    def apply(self, plain: Floats, listed: Mask | None = None) -> Floats:
        """What the rule makes of the plain prompt's answers (n, C). listed: the names on its list, if not its own."""
        settings = self.task.settings
        names = self.task.forget if listed is None else listed
        return RULES[settings.method](plain, names, stream(settings.seed, "gate"))


def apply_rule(task: Task, recorder: Recorder) -> Fitted:
    """Nothing is learned; validation scores are taken."""
    fitted: Fitted = project_classifier(task) if task.settings.method in NULL_SPACES else FixedRule(task)
    if recorder.history:
        return fitted
    images, template = bind_images(task, task.data.train.subset(task.split.valid)), task.settings.template
    plain = images.zero_shot(template)
    if plain is not None:
        names, model = task.data.class_names, task.model.card.name
        if warning := warn_if_not_known(plain, images.labels, template, names, model):
            recorder.warn(warning)
    asked = int(plain is not None)
    if isinstance(fitted, FixedRule) and plain is not None:
        found = fitted.apply(plain)
    else:
        found, asked = fitted.confidences(images), asked + 1
    valid = scores(top_classes(found), images.labels, task.forget)
    recorder.ledger.image_queries += asked * len(images.labels)
    recorder.ledger.prompts_encoded += asked * len(images.class_names)
    recorder.append(recorder.count(Evaluated(np.zeros(1), {0: valid}), spent=0))
    return fitted
