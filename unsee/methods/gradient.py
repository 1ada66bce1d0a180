"""The gradient of the forgetting loss with respect to contexts, for a model in this process (CoOp)."""

from __future__ import annotations

import torch

from unsee.methods.losses import forgetting_loss_torch
from unsee.methods.task import Task
from unsee.models.black_box import bind
from unsee.models.local import LocalBound
from unsee.models.white_box import open_box
from unsee.types import Doubles


class LossSlope:
    """The gradient at a point, by back-propagation. (m * D,) -> (m * D,)."""

    def __init__(self, task: Task, shape: tuple[int, int]) -> None:
        settings = task.settings
        model = open_box(task.model, settings.method, "gradients")
        images = task.data.train.subset(task.split.train)
        bound = LocalBound(model, images, images.class_names)
        applies_to = task.applies_to
        self._bound = bound if applies_to is None else bound.apply_to(applies_to, settings.template)
        device = model.tower.tokens.device
        self._labels = torch.from_numpy(images.labels).to(device)
        self._gone = torch.from_numpy(task.forget[images.labels]).to(device)
        self._counts = int((~self._gone).sum()), int(self._gone.sum())
        self._weights = settings.memorize_weight, settings.forget_weight
        self._goal = task.goal(bind(model, images))
        self._shape = shape

    def __call__(self, contexts: Doubles) -> Doubles:
        tokens = self._bound.model.tower.tokens
        point = torch.tensor(contexts, dtype=tokens.dtype, device=tokens.device).view(1, *self._shape).requires_grad_()
        log_p = self._bound.log_softmax(self._bound.text.embeddings(point))[0]
        loss = forgetting_loss_torch(log_p, self._labels, self._gone, self._weights, self._counts, self._goal)
        (slope,) = torch.autograd.grad(loss, point)
        found: Doubles = slope.double().cpu().numpy().ravel()
        return found
