"""Measures of answers without an interval of their own: pure functions on confidences (n, C)."""

from __future__ import annotations

import numpy as np

from unsee.answers.metrics import top_classes
from unsee.types import Doubles, Floats, Ints

BINS = 15  # of calibration


def kl_to_uniform(confidences: Floats) -> Doubles:
    """Kullback-Leibler divergence of each answer from the uniform one, in nats: log C minus its entropy. -> (n,)."""
    p = confidences.astype(np.float64)
    terms = np.where(p > 0, p * np.log(np.maximum(p, np.finfo(np.float64).tiny)), 0.0)
    found: Doubles = np.log(p.shape[1]) + terms.sum(axis=1)
    return found


def calibration_error(confidences: Floats, labels: Ints, bins: int = BINS) -> float:
    """ECE: by how much the confidence of the top answer misses its accuracy, on average over bins of confidence."""
    if len(labels) == 0:
        return np.nan
    sure, right = confidences.max(axis=1).astype(np.float64), top_classes(confidences) == labels
    bin_of = np.minimum((sure * bins).astype(np.int64), bins - 1)
    gap = np.bincount(bin_of, right - sure, bins)  # per bin: images times (accuracy - confidence)
    return float(np.abs(gap).sum() / len(labels))
