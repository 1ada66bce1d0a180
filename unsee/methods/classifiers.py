"""Classifiers of the kept classes alone, trained from random or given weights (the paper's "from scratch" rows).

Images are prepared as the authors' loaders do it: the shorter side resized, the centre cropped, CLIP's mean and
standard deviation. Given weights are fed what they were trained on instead: the size, mean and standard deviation of
the `preprocessor_config.json` beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from unsee.data.images import Images, in_batches
from unsee.errors import InputError, ModelError
from unsee.methods.learners import ParameterGroup
from unsee.methods.task import Task
from unsee.models.fast.checkpoint_record import OPENAI_MEAN, OPENAI_STD, Preprocess, read_json
from unsee.models.fast.vision import crop_image
from unsee.models.white_box import device_of
from unsee.seeds import stream
from unsee.types import Floats, Ints

PAPER_SIDE = 224  # of the authors' loaders
REMEMBERED = 1000  # images at most whose pixels stay in memory, so that each step does not decode them again
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)  # mean and deviation of Google's ViT weights


@dataclass(frozen=True)
class Architecture:
    """A network: how to make it, and how many images of 224 pixels are trained on at once, to fit in 4 GB."""

    make: Callable[[int, int, str], torch.nn.Module]  # classes, side, folder of weights or ""
    batch: int
    mean: tuple[float, ...]  # of the images its published weights were trained on
    std: tuple[float, ...]


class ScratchLearner:
    """A classifier of only the kept classes, trained from random or given weights.

    The gradient is over all images, computed in batches that limit memory. Batch normalisation sees one batch at a
    time, so images are put in batches in an order drawn from the seed, not class by class.
    """

    def __init__(self, task: Task) -> None:
        s = task.settings
        keep = np.flatnonzero(~task.forget)
        images, _ = task.tuning_images
        self._images = images.subset(np.flatnonzero(~task.forget[images.labels]))
        self._keep, self._classes = keep, len(task.forget)
        self._device = device_of(task.model)
        architecture = ARCHITECTURES[s.method]
        self._how = _preparation(architecture, s.weights, s.image_size, self._images.read(0).size)
        side = self._how.crop
        self._labels = torch.from_numpy(np.searchsorted(keep, self._images.labels)).to(self._device)
        with torch.random.fork_rng():
            torch.manual_seed(s.seed)
            self.network = architecture.make(len(keep), side, s.weights).to(self._device)
        self._batch = max(1, architecture.batch * PAPER_SIDE**2 // side**2)
        order = stream(s.seed, "batches").permutation(len(self._images))
        self._parts: list[Ints] = np.array_split(order, -(-len(order) // self._batch))  # about equal
        self._rate = s.weight_rate
        self._seen: dict[int, tuple[Images, NDArray[np.uint8]]] = {}  # holding the images keeps their id from reuse

    def groups(self) -> list[ParameterGroup]:
        return [{"params": list(self.network.parameters()), "lr": self._rate, "optimizer": "adam"}]

    def tensors(self) -> list[Tensor]:
        return [*self.network.parameters(), *self.moving()]

    def moving(self) -> list[Tensor]:
        return [b for b in self.network.buffers() if b.is_floating_point()]

    @property
    def batches(self) -> int:
        return len(self._parts)

    def rate(self, step: int) -> float:
        return 0.0

    def backward(self, batches: int | None = None, step: int = 0) -> float:
        self.network.train()
        total = 0.0
        for rows in self._parts[:batches]:
            loss = self.loss(rows)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        return total

    def loss(self, rows: Ints) -> Tensor:
        """The share of these training images in the mean cross-entropy over all."""
        logits = self.network(pixel_values=self.pixels(self._images, rows)).logits
        labels = self._labels[torch.from_numpy(rows).to(self._device)]
        return F.cross_entropy(logits, labels, reduction="sum") / len(self._images)

    def confidences(self, images: Images) -> Floats:
        """Confidences for images; those of forgotten classes are 0, as the classifier does not know them."""
        self.network.eval()
        found = np.zeros((len(images), self._classes), dtype=np.float32)
        with torch.no_grad():
            for batch in in_batches(len(images), self._batch):
                logits = self.network(pixel_values=self.pixels(images, np.array(batch))).logits
                found[batch.start : batch.stop, self._keep] = logits.softmax(dim=-1).cpu().numpy()
        return found

    def pixels(self, images: Images, rows: Ints) -> Tensor:
        """Images as the network takes them, on its device. -> (n, 3, side, side)."""
        if len(images) > REMEMBERED:
            crops = self._crops(images, rows)
        else:
            if id(images) not in self._seen:
                self._seen[id(images)] = images, self._crops(images, np.arange(len(images)))
            crops = self._seen[id(images)][1][rows]
        pixels = torch.from_numpy(crops).to(self._device).permute(0, 3, 1, 2).float() / 255
        mean, std = (torch.tensor(x, device=self._device).view(3, 1, 1) for x in (self._how.mean, self._how.std))
        return (pixels - mean) / std

    def _crops(self, images: Images, rows: Ints) -> NDArray[np.uint8]:
        return np.stack([np.asarray(crop_image(images.read(int(row)), self._how)) for row in rows])


def _preparation(kind: Architecture, weights: str, wanted: int, size: tuple[int, int]) -> Preprocess:
    """How images are prepared. wanted: `image_size`, 0 to go by the weights, or else by the images (of this size)."""
    if not weights:
        return Preprocess(wanted or _own_side(size), wanted or _own_side(size), OPENAI_MEAN, OPENAI_STD, **_TORCHVISION)
    if not (Path(weights) / "config.json").is_file():
        raise ModelError(
            f"weights {weights!r} cannot be loaded: wanted a folder with config.json and model.safetensors"
        )
    mean, std, side = kind.mean, kind.std, PAPER_SIDE
    try:
        config = read_json(Path(weights) / "config.json")
        side = int(config.get("image_size", side))
        if wanted and wanted != side and "image_size" in config:
            raise InputError(f"the weights in {weights!r} take images of {side} pixels: use image_size={side}, or 0")
        if (Path(weights) / "preprocessor_config.json").is_file():
            given = read_json(Path(weights) / "preprocessor_config.json")
            mean, std = tuple(given.get("image_mean", mean)), tuple(given.get("image_std", std))
            side = side if "image_size" in config else _published_side(given.get("size"), side)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise ModelError(f"weights {weights!r}: config.json or preprocessor_config.json is damaged ({error})") from None
    return Preprocess(wanted or side, wanted or side, mean, std, **_TORCHVISION)


_TORCHVISION: dict[str, Any] = {"crop_rounding": "even"}  # what the authors' loaders use


def _published_side(size: Any, otherwise: int) -> int:
    if isinstance(size, dict):
        size = size.get("shortest_edge", size.get("height"))
    return otherwise if size is None else int(size)


def _own_side(size: tuple[int, int]) -> int:
    """The images' own size, rounded to a multiple of 32, at most the paper's."""
    return int(min(PAPER_SIDE, max(32, 32 * round(min(size) / 32))))


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
    if side % 16:
        raise InputError(f"image_size must be a multiple of 16, the size of a patch of ViT-B/16, not {side}")
    made: torch.nn.Module = ViTForImageClassification(ViTConfig(image_size=side, patch_size=16, num_labels=labels))
    return made


def _pretrained(kind: Any, folder: str, labels: int) -> torch.nn.Module:
    try:
        made: torch.nn.Module = kind.from_pretrained(
            folder, num_labels=labels, ignore_mismatched_sizes=True, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"weights {folder!r} cannot be loaded: {str(error).splitlines()[0][:160]}") from None
    return made


ARCHITECTURES = {
    "scratch-resnet18": Architecture(_resnet18, 32, IMAGENET_MEAN, IMAGENET_STD),
    "scratch-vit": Architecture(_vit, 8, HALF, HALF),
}
