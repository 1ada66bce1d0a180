"""Learners: methods that train weights. Here: a copy of the model; classifiers from scratch are in `classifiers.py`.

A learner has tensors to train, computes its loss and gradients on the split's images, and gives confidences
for any images. `training.train_weights` runs them all.
"""

from __future__ import annotations

import copy
from typing import Protocol, TypedDict

import numpy as np
import torch
from torch import Tensor

from unsee.data.images import Images, in_batches
from unsee.data.views import random_view
from unsee.methods.contexts import make_origin
from unsee.methods.descent import rate_of_epoch
from unsee.methods.losses import forgetting_loss_torch
from unsee.methods.shot_batches import rows_of_step, steps_per_epoch
from unsee.methods.task import Task
from unsee.models.fast.vision import TorchEncoder
from unsee.models.features import encode_images
from unsee.models.local import LocalModel
from unsee.models.white_box import open_box
from unsee.types import Floats, Ints

BATCH = 32  # images through an image tower at once
TRAINED = 4  # the same where gradients are wanted: every layer's output is then kept, 150 MB per image in ViT-B/16
NAMES = 64  # class names through the text tower at once, where gradients are wanted


class ParameterGroup(TypedDict):
    """Tensors that an optimiser trains at one rate, which CoOp's SGD changes from step to step."""

    params: list[Tensor]
    lr: float
    optimizer: str


class Learner(Protocol):
    """Weights that learn from a task's few-shot images."""

    def groups(self) -> list[ParameterGroup]:
        """The tensors to train, as an optimiser's parameter groups."""

    def tensors(self) -> list[Tensor]:
        """Everything that changes in training, buffers included and last, for a run's checkpoint."""

    def rate(self, step: int) -> float:
        """The rate of what SGD trains, if anything."""

    def moving(self) -> list[Tensor]:
        """The buffers among them, which a forward pass in training changes, such as running means."""

    @property
    def batches(self) -> int:
        """How many batches the training images go through the network in."""

    def backward(self, batches: int | None = None, step: int = 0) -> float:
        """Computes the loss on a step's images, or on so many batches, and adds its gradients to the tensors."""

    def confidences(self, images: Images) -> Floats:
        """Confidences for images. -> (n, C), rows sum to 1."""


class CopyLearner:
    """A copy of the model whose weights are trained: with the contexts (CoOp + parameter update), or alone.

    The image tower is trained where torch runs it; the embedded model's is an ONNX graph and stays as it is.
    """

    def __init__(self, task: Task) -> None:
        s = task.settings
        self._settings = s
        model = open_box(task.model, s.method, "weights")
        self._names = task.data.class_names
        self._images, _ = task.tuning_images
        if s.forget_weight == 0:  # only the classes to keep
            self._images = self._images.subset(np.flatnonzero(~task.forget[self._images.labels]))
        self._gone = task.forget
        self._views: dict[int, Images] = {}
        self.model = trainable_copy(model)
        names = self._names
        parts = in_batches(len(names), NAMES)
        self._text = [self.model.bind_names(names[part.start : part.stop], s.position) for part in parts]
        tokens = self.model.tower.tokens
        self.contexts = torch.from_numpy(make_origin(s, model)).to(tokens.device, tokens.dtype)
        self._tune_contexts = s.method == "coop-params"
        self.contexts.requires_grad_(self._tune_contexts)
        self._rate = s.rate * (model.card.token_std if s.rate_unit == "token-std" else 1)
        self._fixed: dict[int, tuple[Images, Tensor]] = {}  # holding the images keeps their id from being reused

    def groups(self) -> list[ParameterGroup]:
        s = self._settings
        groups: list[ParameterGroup] = [{"params": self._weights(), "lr": s.weight_rate, "optimizer": "adam"}]
        if self._tune_contexts:
            groups.append({"params": [self.contexts], "lr": self._rate, "optimizer": s.optimizer})
        return groups

    def rate(self, step: int) -> float:
        """Of the contexts, by CoOp's schedule."""
        s = self._settings
        return rate_of_epoch(self._rate, step, s.iterations, steps_per_epoch(len(self._images), s.batch))

    def tensors(self) -> list[Tensor]:
        return [*self._weights(), self.contexts]

    def moving(self) -> list[Tensor]:
        return []

    @property
    def batches(self) -> int:
        return len(self._parts(0))

    def _parts(self, step: int) -> list[Ints]:
        """Rows of a step's images, as many at once as memory allows."""
        s, count = self._settings, len(self._images)
        rows = rows_of_step(s.seed, step, count, min(s.batch, count)) if s.batch else np.arange(count)
        return [rows[list(part)] for part in in_batches(len(rows), TRAINED if self._vision else len(rows))]

    def _shown(self, step: int) -> Images:
        """The shots, or the random view of them that this step's epoch has."""
        s = self._settings
        if not s.views:
            return self._images
        number = step // steps_per_epoch(len(self._images), s.batch) % s.views
        if number not in self._views:
            self._views[number] = random_view(self._images, s.seed, number, s.smallest_crop)
        return self._views[number]

    def backward(self, batches: int | None = None, step: int = 0) -> float:
        """The gradient over a step's images, computed in batches of images and then of class names to limit memory.

        Batches of images leave their slope on the class embeddings; each batch of names then passes its part of it
        on to the weights. The sum is the gradient of the whole.
        """
        parts, images, total = self._parts(step), self._shown(step), 0.0
        away = self._gone[images.labels[np.concatenate(parts)]]
        kept, gone = int((~away).sum()), int(away.sum())
        weights = self._settings.memorize_weight, self._settings.forget_weight
        with torch.no_grad():
            embeddings = self._embeddings()
        embeddings.requires_grad_()
        for part in parts[:batches]:
            log_p = self._log_p(self._features(images, torch.from_numpy(part)), embeddings)
            labels = torch.from_numpy(images.labels[part]).to(log_p.device)
            forgotten = torch.from_numpy(self._gone[images.labels[part]]).to(log_p.device)
            loss = forgetting_loss_torch(log_p, labels, forgotten, weights, (kept, gone))
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        assert embeddings.grad is not None  # every image is scored against every name
        for text, slope in zip(self._text, torch.split(embeddings.grad, NAMES), strict=True):
            text.embeddings(self.contexts[None])[0].backward(slope)  # type: ignore[no-untyped-call]
        return total

    def confidences(self, images: Images) -> Floats:
        with torch.no_grad():
            embeddings = self._embeddings()
            parts = [
                self._log_p(self._features(images, torch.tensor(list(batch))), embeddings).exp()
                for batch in in_batches(len(images), BATCH if self._vision else 1024)
            ]
        found: Floats = torch.cat(parts).float().cpu().numpy()
        return found

    @property
    def _vision(self) -> torch.nn.Module | None:
        encoder = self.model.encoder
        return encoder.model if isinstance(encoder, TorchEncoder) else None

    def _weights(self) -> list[Tensor]:
        vision = list(self._vision.parameters()) if self._vision is not None else []
        return [*self.model.tower.tensors(), *vision]

    def _features(self, images: Images, rows: Tensor) -> Tensor:
        tokens = self.model.tower.tokens
        encoder = self.model.encoder
        if isinstance(encoder, TorchEncoder):
            return encoder.embed([encoder.prepare(images.read(int(row))) for row in rows])
        if id(images) not in self._fixed:  # an image tower that is not trained always gives the same features
            found = encode_images(images, encoder, self.model.cache).features
            self._fixed[id(images)] = images, torch.from_numpy(found).to(tokens.device)
        return self._fixed[id(images)][1][rows.to(tokens.device)]

    def _embeddings(self) -> Tensor:
        """Class embeddings under the contexts. -> (C, E)."""
        return torch.cat([text.embeddings(self.contexts[None])[0] for text in self._text])

    def _log_p(self, features: Tensor, embeddings: Tensor) -> Tensor:
        return (self.model.logit_scale * features.float() @ embeddings.float().T).log_softmax(dim=-1)


def trainable_copy(model: LocalModel) -> LocalModel:
    """A copy whose weights can be trained without changing the original."""
    encoder = model.encoder
    if isinstance(encoder, TorchEncoder):
        encoder = copy.copy(encoder)
        encoder.model = copy.deepcopy(encoder.model).requires_grad_()
    return LocalModel(
        model.card.name,
        model.tower.trainable_copy(),
        model.tokenizer,
        encoder,
        model.logit_scale,
        model.cache,
        model.reads_highest,
        model.logit_bias,
    )
