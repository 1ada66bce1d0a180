"""The gradient of the forgetting loss with respect to contexts, for a model in this process (CoOp)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unsee.errors import InputError
from unsee.methods.asked import AskedImages, bind_images
from unsee.methods.losses import Goal, forgetting_loss_torch
from unsee.models.black_box import BoundImages
from unsee.models.local import LocalBound
from unsee.models.white_box import open_box
from unsee.types import Doubles


class LossSlope:
    """The gradient at a point and step, by back-propagation. (m * D,) -> (m * D,)."""

    def __init__(self, asked: AskedImages, goal: Callable[[], Goal], shape: tuple[int, int]) -> None:
        task, settings = asked.task, asked.task.settings
        self._device = open_box(task.model, settings.method, "gradients").tower.tokens.device
        self._forget = torch.from_numpy(task.forget).to(self._device)
        self._batches = asked.batches
        shots = task.data.train.subset(task.split_rows[0])
        self._images = bind_images(task, shots) if asked.batches is None else asked.batches.shots
        self._weights = settings.memorize_weight, settings.forget_weight
        self._goal = goal
        self._shape = shape

    def __call__(self, contexts: Doubles, step: int) -> Doubles:
        images = self._images if self._batches is None else self._batches.at(step)
        bound, labels, gone = self._parts(images)
        tokens = bound.model.tower.tokens
        point = torch.tensor(contexts, dtype=tokens.dtype, device=tokens.device).view(1, *self._shape).requires_grad_()
        log_p = bound.log_softmax(bound.text.embeddings(point))[0]
        counts = int((~gone).sum()), int(gone.sum())
        loss = forgetting_loss_torch(log_p, labels, gone, self._weights, counts, self._goal())
        (slope,) = torch.autograd.grad(loss, point)
        found: Doubles = slope.cpu().double().numpy().ravel()  # in this order: mps has no double precision
        return found

    def _parts(self, images: BoundImages) -> tuple[LocalBound, Tensor, Tensor]:
        """The bound model, and the labels and whether each is forgotten, on its device."""
        if not isinstance(images.bound, LocalBound):
            raise InputError("gradients need images bound to a model in this process")
        labels = torch.from_numpy(images.labels).to(self._device)
        return images.bound, labels, self._forget[labels]
