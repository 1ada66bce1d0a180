"""H, Err_for, Acc_mem and the other measures of answers (paper, "Evaluation Metrics"): pure functions."""

from __future__ import annotations

import numpy as np

from unsee.types import Doubles, Floats, Ints, Mask, Scores


def harmonic_mean(a: float, b: float) -> float:
    """2ab / (a + b), and 0 where both are 0."""
    return 0.0 if a + b == 0 else 2 * a * b / (a + b)


def scores(answers: Ints, labels: Ints, forget: Mask) -> Scores:
    """Err_for, Acc_mem and H of these answers. answers (n,) class indices, labels (n,), forget (c,).

    A set without images of one side scores 0 there: nothing was shown to be forgotten or kept.
    """
    right = answers == labels
    gone = forget[labels]
    err_for = float(1.0 - right[gone].mean()) if gone.any() else 0.0
    acc_mem = float(right[~gone].mean()) if (~gone).any() else 0.0
    return Scores(harmonic_mean(err_for, acc_mem), err_for, acc_mem)


def top_classes(confidences: Floats) -> Ints:
    """The top class of each image; the first of equals. (..., c) -> (...)."""
    top: Ints = confidences.argmax(axis=-1)
    return top


def top_labels(confidences: Floats) -> Ints:
    """The top class of each image; -1 where several share the top confidence, so that there is none. (n, c) -> (n,)."""
    shared = (confidences == confidences.max(axis=-1, keepdims=True)).sum(axis=-1) > 1
    found: Ints = np.where(shared, -1, confidences.argmax(axis=-1))
    return found


def per_class_accuracy(answers: Ints, labels: Ints, classes: int) -> Doubles:
    """Share of each class's images answered right; NaN for a class without images. -> (classes,)."""
    count = np.bincount(labels, minlength=classes).astype(np.float64)
    right = np.bincount(labels[answers == labels], minlength=classes)
    share: Doubles = np.divide(right, count, out=np.full(classes, np.nan), where=count > 0)
    return share


def entropy(confidences: Floats) -> Doubles:
    """Entropy of each answer as a share of the most uninformative one, log C. (n, c) -> (n,)."""
    p = confidences.astype(np.float64)
    terms = np.where(p > 0, p * np.log(np.maximum(p, np.finfo(np.float64).tiny)), 0.0)
    share: Doubles = -terms.sum(axis=-1) / np.log(p.shape[-1])
    return share


def near_chance(accuracy: float, classes: int, images: int) -> bool:
    """Whether this accuracy could be guessing: below twice chance, or within two standard errors of it."""
    chance = 1 / classes
    error = np.sqrt(chance * (1 - chance) / max(1, images))
    return bool(accuracy < max(2 * chance, chance + 2 * error)) if classes > 2 else bool(accuracy < chance + 2 * error)
