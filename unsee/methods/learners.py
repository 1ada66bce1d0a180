"""Learners: methods that train weights, of a copy of the model or of a classifier from scratch.

A learner has tensors to train, computes its loss and gradients on the split's images, and gives confidences
for any images. `training.train_weights` runs them all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unsee.errors import InputError, ModelError
from unsee.images import Images, as_rgb, in_batches
from unsee.methods.losses import forgetting_loss_torch
from unsee.methods.task import Task, make_origin
from unsee.models.features import encode_images
from unsee.models.local import LocalModel
from unsee.models.text_tower import Layer, TextTower
from unsee.models.vision import VisionTransformer
from unsee.models.white_box import open_box
from unsee.types import Floats

BATCH = 32  # images through an image tower at once


class ParameterGroup(TypedDict):
    """Tensors that an optimiser trains at one rate."""

    params: list[Tensor]
    lr: float


class Learner(Protocol):
    """Weights that learn from a task's few-shot images."""

    def groups(self) -> list[ParameterGroup]:
        """The tensors to train, as an optimiser's parameter groups."""

    def tensors(self) -> list[Tensor]:
        """Everything that changes in training, buffers included, for a run's checkpoint."""

    def backward(self) -> float:
        """Computes the loss on the training images and adds its gradients to the tensors."""

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
        self._images = task.data.train.subset(task.split.train)
        if s.forget_weight == 0:  # only the classes to keep
            self._images = self._images.subset(np.flatnonzero(~task.forget[self._images.labels]))
        self._labels = torch.from_numpy(self._images.labels)
        self._gone = torch.from_numpy(task.forget[self._images.labels])
        self.model = trainable_copy(model)
        self._text = self.model.bind_names(self._names)
        tokens = self.model.tower.tokens
        self.contexts = torch.from_numpy(make_origin(s, model)).to(tokens.device, tokens.dtype)
        self._tune_contexts = s.method == "coop-params"
        self.contexts.requires_grad_(self._tune_contexts)
        self._rate = s.rate * model.card.token_std
        self._fixed: dict[int, tuple[Images, Tensor]] = {}  # holding the images keeps their id from being reused

    def groups(self) -> list[ParameterGroup]:
        groups: list[ParameterGroup] = [{"params": self._weights(), "lr": self._settings.weight_rate}]
        if self._tune_contexts:
            groups.append({"params": [self.contexts], "lr": self._rate})
        return groups

    def tensors(self) -> list[Tensor]:
        return [*self._weights(), self.contexts]

    def backward(self) -> float:
        """The gradient over all images, computed in batches to limit memory."""
        total, kept, gone = 0.0, int((~self._gone).sum()), int(self._gone.sum())
        weights = self._settings.memorize_weight, self._settings.forget_weight
        for batch in in_batches(len(self._images), BATCH if self._vision else len(self._images)):
            rows = torch.tensor(list(batch))
            log_p = self._log_p(self._features(self._images, rows), self._embeddings())
            labels, away = self._labels[rows].to(log_p.device), self._gone[rows].to(log_p.device)
            loss = forgetting_loss_torch(log_p, labels, away, weights, (kept, gone))
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
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
        return encoder.model if isinstance(encoder, VisionTransformer) else None

    def _weights(self) -> list[Tensor]:
        vision = list(self._vision.parameters()) if self._vision is not None else []
        return [*self.model.tower.tensors(), *vision]

    def _features(self, images: Images, rows: Tensor) -> Tensor:
        tokens = self.model.tower.tokens
        encoder = self.model.encoder
        if isinstance(encoder, VisionTransformer):
            pixels = np.stack([encoder.prepare(images.read(int(row))) for row in rows])
            given = torch.from_numpy(pixels).to(tokens.device, tokens.dtype)
            return F.normalize(encoder.model(pixel_values=given).image_embeds, dim=-1)
        if id(images) not in self._fixed:  # an image tower that is not trained always gives the same features
            found = encode_images(images, encoder, self.model.cache).features
            self._fixed[id(images)] = images, torch.from_numpy(found).to(tokens.device, tokens.dtype)
        return self._fixed[id(images)][1][rows]

    def _embeddings(self) -> Tensor:
        """Class embeddings under the contexts. -> (C, E)."""
        return self._text.embeddings(self.contexts[None])[0]

    def _log_p(self, features: Tensor, embeddings: Tensor) -> Tensor:
        return (self.model.logit_scale * features @ embeddings.T).float().log_softmax(dim=-1)


def trainable_copy(model: LocalModel) -> LocalModel:
    """A copy whose weights can be trained without changing the original."""

    def free(t: Tensor) -> Tensor:
        return t.detach().clone().requires_grad_()

    def pair(p: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return free(p[0]), free(p[1])

    def layer(x: Layer) -> Layer:
        return Layer(pair(x.norm1), pair(x.qkv), pair(x.out), pair(x.norm2), pair(x.fc1), pair(x.fc2))

    old = model.tower
    tower: TextTower = replace(
        old,
        tokens=free(old.tokens),
        positions=free(old.positions),
        layers=tuple(layer(x) for x in old.layers),
        norm=pair(old.norm),
        projection=free(old.projection),
    )
    encoder = model.encoder
    if isinstance(encoder, VisionTransformer):
        encoder = copy.copy(encoder)
        encoder.model = copy.deepcopy(encoder.model).requires_grad_()
    return LocalModel(
        model.card.name,
        tower,
        model.tokenizer,
        encoder,
        model.logit_scale,
        model.cache,
        model.reads_highest,
        model.card.family,
    )


class ScratchLearner:
    """A classifier of only the kept classes, trained from random or given weights."""

    def __init__(self, task: Task) -> None:
        s = task.settings
        keep = np.flatnonzero(~task.forget)
        images = task.data.train.subset(task.split.train)
        self._images = images.subset(np.flatnonzero(~task.forget[images.labels]))
        self._keep, self._classes = keep, len(task.forget)
        self._side = _side(self._images.read(0).size)
        self._labels = torch.from_numpy(np.searchsorted(keep, self._images.labels))
        with torch.random.fork_rng():
            torch.manual_seed(s.seed)
            self.network = _NETWORKS[s.method](len(keep), self._side, s.weights)
        self._pixels = self._prepare(self._images)
        self._rate = s.weight_rate

    def groups(self) -> list[ParameterGroup]:
        return [{"params": list(self.network.parameters()), "lr": self._rate}]

    def tensors(self) -> list[Tensor]:
        return [*self.network.parameters(), *(b for b in self.network.buffers() if b.is_floating_point())]

    def backward(self) -> float:
        self.network.train()
        logits = self.network(pixel_values=self._pixels).logits
        loss = F.cross_entropy(logits, self._labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def confidences(self, images: Images) -> Floats:
        """Confidences for images; those of forgotten classes are 0, as the classifier does not know them."""
        self.network.eval()
        found = np.zeros((len(images), self._classes), dtype=np.float32)
        with torch.no_grad():
            for batch in in_batches(len(images), 256):
                pixels = self._prepare(images.subset(list(batch)))
                shares = self.network(pixel_values=pixels).logits.softmax(dim=-1)
                found[batch.start : batch.stop, self._keep] = shares.numpy()
        return found

    def _prepare(self, images: Images) -> Tensor:
        size = (self._side, self._side)
        rows = [np.asarray(as_rgb(images.read(i)).resize(size)) for i in range(len(images))]
        return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).float() / 127.5 - 1


def _side(size: tuple[int, int]) -> int:
    """The network's input size: the images' own, rounded to a multiple of 32, at most 224."""
    return int(min(224, max(32, 32 * round(min(size) / 32))))


def _resnet18(labels: int, side: int, weights: str) -> torch.nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    if weights:
        return _pretrained(ResNetForImageClassification, weights, labels)
    sizes = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
    made: torch.nn.Module = ResNetForImageClassification(ResNetConfig(**sizes, layer_type="basic", num_labels=labels))
    return made


def _vit(labels: int, side: int, weights: str) -> torch.nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    if weights:
        return _pretrained(ViTForImageClassification, weights, labels)
    made: torch.nn.Module = ViTForImageClassification(ViTConfig(image_size=side, patch_size=16, num_labels=labels))
    return made


def _pretrained(kind: Any, folder: str, labels: int) -> torch.nn.Module:
    try:
        made: torch.nn.Module = kind.from_pretrained(
            folder, num_labels=labels, ignore_mismatched_sizes=True, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"weights {folder!r} cannot be loaded: {str(error).splitlines()[0][:160]}") from None
    return made


_NETWORKS: dict[str, Callable[[int, int, str], torch.nn.Module]] = {"scratch-resnet18": _resnet18, "scratch-vit": _vit}
LEARNERS: dict[str, Callable[[Task], Learner]] = {
    "coop-params": CopyLearner,
    "finetune": CopyLearner,
    "scratch-resnet18": ScratchLearner,
    "scratch-vit": ScratchLearner,
}


def make_learner(task: Task) -> Learner:
    """The learner of a task's method."""
    if task.settings.method not in LEARNERS:
        raise InputError(f"method {task.settings.method!r} trains no weights")
    return LEARNERS[task.settings.method](task)
