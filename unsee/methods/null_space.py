"""Forgetting in closed form: directions of the forgotten names are removed from the classifier. No images, no tuning.

A class embedding w and an image embedding f are compared by f·w. With P the projection that removes some directions,
f·Pw = Pf·w: it makes no difference whether class embeddings or image embeddings are projected, and class embeddings are
known without a single image. The idea is that of arXiv 2512.14137 and 2512.14113.

| name               | directions removed                                        | a forgotten name then scores      |
|--------------------|-----------------------------------------------------------|-----------------------------------|
| null-space         | the forgotten names' embeddings                           | 0, whatever the image             |
| null-space-centred | their differences from the mean of the kept embeddings    | the mean of what kept names score |

In CLIP all texts point in much the same direction, so a score of 0 can be above what the kept names have left, and a
forgotten name then still wins. A mean is never above the highest: the centred rule leaves no forgotten name on top.
By both rules all forgotten names score alike, so which of them comes first is left to chance, not to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsee.errors import InputError
from unsee.methods.task import Task
from unsee.models.black_box import BoundImages
from unsee.seeds import stream
from unsee.types import Doubles, Floats, Mask

NULL_SPACES = ("null-space", "null-space-centred")
SMALLEST = 1e-4  # length at which what is left of a unit embedding is rounding; in half precision, about its last digit


@dataclass(frozen=True, eq=False)
class ProjectedClassifier:
    """Class embeddings without the removed directions, on a model in this process."""

    embeddings: Floats  # (C, E), not of length 1
    forget: Mask  # (C,)
    seed: int

    def confidences(self, images: BoundImages) -> Floats:
        from unsee.models.white_box import answer_embeddings  # imports torch

        found = answer_embeddings(images, self.embeddings)
        chance = stream(self.seed, "ties").random((len(found), int(self.forget.sum())))
        found[:, self.forget] = found[:, self.forget].mean(axis=1, keepdims=True) * (1 - 1e-4 * chance)
        return found


def project_classifier(task: Task) -> ProjectedClassifier:
    """The classifier of a task's method; refuses a black box."""
    from unsee.models.white_box import class_embeddings, open_box  # imports torch

    settings = task.settings
    model = open_box(task.model, settings.method, "class embeddings")
    embeddings = class_embeddings(model, task.data.class_names, settings.template).astype(np.float64)
    removed = directions(embeddings, task.forget, centred=settings.method == "null-space-centred")
    if len(removed) == embeddings.shape[1]:
        raise InputError(
            f"the names to forget take up all {len(removed)} dimensions of the class embeddings; "
            f"method {settings.method!r} would leave nothing"
        )
    return ProjectedClassifier(project_out(embeddings, removed).astype(np.float32), task.forget, settings.seed)


def directions(embeddings: Doubles, forget: Mask, centred: bool) -> Doubles:
    """An orthonormal basis of what is to be removed, one direction per forgotten name or fewer. (C, E) -> (r, E)."""
    gone = embeddings[forget] - (embeddings[~forget].mean(axis=0) if centred else 0)
    _, sizes, basis = np.linalg.svd(gone, full_matrices=False)
    found: Doubles = basis[sizes > SMALLEST]
    return found


def project_out(embeddings: Doubles, basis: Doubles) -> Doubles:
    """Embeddings without these directions. (C, E), (r, E) -> (C, E)."""
    found: Doubles = embeddings - embeddings @ basis.T @ basis
    return found
