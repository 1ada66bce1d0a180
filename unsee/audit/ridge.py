"""Ridge regression from answers to anything, by kernels: cheap when images are fewer than what is known of each.

The strength is chosen by leave-one-out error on the images that the map is fitted on, never on images to test on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsee.seeds import stream
from unsee.types import Doubles

PENALTIES = np.logspace(-9, 3, 13)  # as a share of the inputs' mean squared length
SKETCHED = 32  # of targets, enough to choose a strength by
VARIANCE_SHARE = 0.999  # of the variance that the dimensions counted by `effective_rank` hold


@dataclass(frozen=True, eq=False)
class Kernels:
    """Inner products of what is known of the images a map is fitted on, and of those it is used on."""

    fit: Doubles  # (n, n)
    use: Doubles  # (t, n)

    def __add__(self, other: Kernels) -> Kernels:
        """As if both kinds of inputs stood side by side."""
        return Kernels(self.fit + other.fit, self.use + other.use)

    def first(self, n: int) -> Kernels:
        """The map fitted on the first n images only."""
        return Kernels(self.fit[:n, :n], self.use[:, :n])


def kernels(fit: Doubles, use: Doubles) -> Kernels:
    """Of inputs (n, d) to fit on and (t, d) to use the map on."""
    return Kernels(fit @ fit.T, use @ fit.T)


def ridge(given: Kernels, *targets: Doubles) -> list[Doubles]:
    """Predictions of each kind of targets (n, k) for the images to use the map on. -> (t, k) each.

    Inputs and targets are centred. Of all strengths the one with the least leave-one-out error is taken.
    """
    middle = given.fit.mean(axis=0)
    fit = given.fit - middle - middle[:, None] + middle.mean()
    use = given.use - middle - given.use.mean(axis=1, keepdims=True) + middle.mean()
    values, vectors = np.linalg.eigh(fit)
    values = np.maximum(values, 0.0)
    scale = values.sum() / len(values)
    means = [target.mean(axis=0) for target in targets]
    if not scale > 1e-12 * max(1.0, float(np.abs(given.fit).max())):  # all answers alike: nothing to learn from
        return [np.tile(mean, (len(use), 1)) for mean in means]
    projected, found = use @ vectors, []
    for target, mean in zip(targets, means, strict=True):
        turned, short = vectors.T @ (target - mean), _sketch(target - mean)
        errors = [_left_out(values, vectors, vectors.T @ short, short, scale * strength) for strength in PENALTIES]
        best = scale * PENALTIES[int(np.argmin(errors))]
        found.append(projected @ (turned / (values + best)[:, None]) + mean)
    return found


def _sketch(target: Doubles) -> Doubles:
    """Random mixtures of the columns where there are many: their error is that of all columns, on average."""
    if target.shape[1] <= SKETCHED:
        return target
    mixed: Doubles = target @ stream(0, "sketch").standard_normal((target.shape[1], SKETCHED))
    return mixed


def _left_out(values: Doubles, vectors: Doubles, turned: Doubles, target: Doubles, strength: float) -> float:
    """The squared error on each image of the map fitted on all others, summed; the mean counts as a parameter."""
    shares = values / (values + strength)
    leverage = (vectors**2) @ shares + 1 / len(values)
    residual = target - vectors @ (shares[:, None] * turned)
    return float(((residual / np.maximum(1 - leverage, 1e-6)[:, None]) ** 2).sum())


def explained(predicted: Doubles, true: Doubles) -> float:
    """R²: the share of the variance of all columns together that a prediction explains.

    Below 0 if it is worse than their mean; NaN if nothing varies.
    """
    total = float(((true - true.mean(axis=0)) ** 2).sum())
    return 1 - float(((true - predicted) ** 2).sum()) / total if total else np.nan


def effective_rank(inputs: Doubles, share: float = VARIANCE_SHARE) -> int:
    """How many dimensions hold this share of the variance. inputs (n, d)."""
    centred = inputs - inputs.mean(axis=0)
    small = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    values = np.maximum(np.linalg.eigvalsh(small)[::-1], 0.0)
    if values.sum() <= 1e-12 * max(1.0, float((inputs**2).sum())):
        return 0
    held = np.cumsum(values) / values.sum()
    return int(np.searchsorted(held, share * (1 - 1e-12)) + 1)
