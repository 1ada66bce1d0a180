"""How well forward differences of several lengths find the slope, in float32 and in float16, at CBBT's start.

    python -m benchmarks.difference_length

The embedded model on `demo`, 256 directions. Prints the cosine between measured and true slope along them.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import torch

import unsee
from unsee.methods.contexts import make_origin
from unsee.methods.descent import orthonormal
from unsee.methods.gradient import LossSlope
from unsee.methods.losses import forgetting_loss
from unsee.methods.task import make_task
from unsee.models.fast.text_tower import Layer
from unsee.models.local import LocalModel

FORGET = ["airplane", "automobile", "bird", "cat"]
DIRECTIONS = 256


def in_half_precision(model: LocalModel) -> LocalModel:
    """The same model with its text tower in float16; a CPU is slow at it, but rounds as a GPU does."""

    def half(x: object) -> object:
        if isinstance(x, tuple):
            return tuple(map(half, x))
        assert isinstance(x, torch.Tensor)
        return x.half()

    tower = model.tower
    layers = tuple(Layer(*(half(getattr(layer, field.name)) for field in fields(Layer))) for layer in tower.layers)
    names = ("tokens", "positions", "norm", "projection")
    rounded = replace(tower, layers=layers, **{name: half(getattr(tower, name)) for name in names})
    return LocalModel("half", rounded, model.tokenizer, model.encoder, model.logit_scale, model.cache)


def main() -> None:
    """Prints a line for every length."""
    model, data = unsee.load_model("mini", threads=1), unsee.load_data("demo")
    assert isinstance(model, LocalModel)
    task = make_task(model, data, FORGET, "cbbt", "paper", 0, {})
    origin = make_origin(task.settings, model)
    start, images = origin.ravel().astype(np.float64), data.train.subset(task.split.train)
    slope = LossSlope(task, (origin.shape[0], origin.shape[1]))(start, 0)
    directions = orthonormal(np.random.default_rng(0), DIRECTIONS, slope.size)
    true, bound = directions @ slope, [m.bind(images, data.class_names) for m in (model, in_half_precision(model))]
    own, std = max(1 / slope.size, 1e-3), model.card.token_std
    for share in (own / np.sqrt(slope.size) / std, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4):
        length = share * std * np.sqrt(slope.size)
        contexts = np.concatenate([start[None], start + length * directions]).reshape(-1, *origin.shape)
        found = []
        for each in bound:
            losses = forgetting_loss(each.log_confidences(contexts.astype(np.float32)), images.labels, task.forget)
            rises = losses[1:] - losses[0]
            found.append(float(rises @ true / np.linalg.norm(rises) / np.linalg.norm(true)))
        print(f"difference {share:.4f}, length {length:.4f}: float32 {found[0]:.2f}, float16 {found[1]:.2f}")


if __name__ == "__main__":
    main()
