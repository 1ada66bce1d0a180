"""Measures of answers: pure functions on confidences (n, C), labels (n,) and the forgotten classes (C,).

Every measure that has an interval takes weights, one per image: how often the image counts. A bootstrap draw is such
a row of weights, so no array of images is ever copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from unsee.metrics import answers
from unsee.types import Doubles, Floats, Ints, Mask

BINS = 15  # of calibration
DRAWS = 200  # of a bootstrap
Weighted = Callable[[Doubles], float]  # weights (n,) -> a measure


@dataclass(frozen=True)
class Estimate:
    """A measure with the interval that holds 95 % of its bootstrap draws; NaN where there are no images."""

    value: float
    low: float
    high: float


def bootstrap(measure: Weighted, images: int, rng: np.random.Generator, draws: int = DRAWS) -> Estimate:
    """The measure on all images, and on as many drawn from them with replacement, again and again."""
    if images == 0:
        return Estimate(np.nan, np.nan, np.nan)
    found = [measure(weights) for weights in _draws(images, rng, draws)]
    low, high = np.nanquantile(found, (0.025, 0.975)) if np.isfinite(found).any() else (np.nan, np.nan)
    return Estimate(measure(np.ones(images)), float(low), float(high))


def _draws(images: int, rng: np.random.Generator, draws: int) -> Iterator[Doubles]:
    for _ in range(draws):
        yield np.bincount(rng.integers(images, size=images), minlength=images).astype(np.float64)


def mean_of(values: Doubles) -> Weighted:
    """The mean of one value per image."""

    def measure(weights: Doubles) -> float:
        total = weights.sum()
        return float(weights @ values / total) if total else np.nan

    return measure


def kl_to_uniform(confidences: Floats) -> Doubles:
    """Kullback-Leibler divergence of each answer from the uniform one, in nats: log C minus its entropy. -> (n,)."""
    p = confidences.astype(np.float64)
    terms = np.where(p > 0, p * np.log(np.maximum(p, np.finfo(np.float64).tiny)), 0.0)
    found: Doubles = np.log(p.shape[1]) + terms.sum(axis=1)
    return found


def largest_share(top: Ints, classes: int) -> Weighted:
    """The share of images that land on the class most of them land on. top (n,)."""

    def measure(weights: Doubles) -> float:
        total = weights.sum()
        return float(np.bincount(top, weights, classes).max() / total) if total else np.nan

    return measure


def mutual_information(labels: Ints, top: Ints, classes: int) -> Weighted:
    """Bits that the top answer tells of the true class, counted from these images. labels, top (n,).

    Of few images it is too high, by about (true classes - 1) * (answers - 1) / (2 ln 2 n) bits.
    """
    pairs = labels * classes + top

    def measure(weights: Doubles) -> float:
        total = weights.sum()
        if not total:
            return np.nan
        joint = np.bincount(pairs, weights, classes * classes).reshape(classes, classes) / total
        product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
        some = joint > 0
        return float(max(0.0, (joint[some] * np.log2(joint[some] / product[some])).sum()))

    return measure


def auroc(values: Doubles, positive: Mask) -> Weighted:
    """How well a value tells the positive images from the others: 0.5 by chance, 1 (or 0) perfectly.

    The probability that a positive image has the higher value, ties counted half. values (n,), positive (n,).
    """
    order = np.argsort(values, kind="stable")
    ordered, sign = values[order], positive[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(order) else np.zeros(0, np.int64)

    def measure(weights: Doubles) -> float:
        w = weights[order]
        ups = np.add.reduceat(w * sign, starts) if len(starts) else np.zeros(0)
        downs = np.add.reduceat(w * ~sign, starts) if len(starts) else np.zeros(0)
        total = ups.sum() * downs.sum()
        if not total:
            return np.nan
        below = np.cumsum(downs) - downs
        return float((ups * (below + downs / 2)).sum() / total)

    return measure


def calibration_error(confidences: Floats, labels: Ints, bins: int = BINS) -> float:
    """ECE: by how much the confidence of the top answer misses its accuracy, on average over bins of confidence."""
    if len(labels) == 0:
        return np.nan
    sure, right = confidences.max(axis=1).astype(np.float64), answers(confidences) == labels
    bin_of = np.minimum((sure * bins).astype(np.int64), bins - 1)
    gap = np.bincount(bin_of, right - sure, bins)  # per bin: images times (accuracy - confidence)
    return float(np.abs(gap).sum() / len(labels))
