"""What can be had without tuning: the plain prompt, a shorter label list, a gate before the answer.

Rules on class embeddings instead of answers are in `null_space.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsee.errors import InputError
from unsee.methods.null_space import NULL_SPACES, project_classifier
from unsee.methods.objective import warn_if_names_unknown
from unsee.methods.recorder import Evaluated, Recorder
from unsee.methods.serving import gate, mask
from unsee.methods.task import Fitted, Task
from unsee.metrics import answers, scores
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
        settings = self.task.settings
        plain = images.zero_shot(settings.template)
        if plain is None:
            raise InputError(f"method {settings.method!r} needs answers to a plain-text prompt; this model gives none")
        return RULES[settings.method](plain, self.task.forget, stream(settings.seed, "gate"))


def apply_rule(task: Task, recorder: Recorder) -> Fitted:
    """Nothing is learned; validation scores are taken."""
    fitted: Fitted = project_classifier(task) if task.settings.method in NULL_SPACES else FixedRule(task)
    images = task.bind_images(task.split.valid)
    if recorder.history:
        return fitted
    if warning := warn_if_names_unknown(images, task.settings.template):
        recorder.warn(warning)
    valid = scores(answers(fitted.confidences(images)), images.labels, task.forget)
    recorder.ledger.image_queries += len(images.labels)
    recorder.ledger.prompts_encoded += len(images.class_names)
    recorder.append(recorder.record(Evaluated(np.zeros(1), {0: valid}), population=1, spent=0))
    return fitted
