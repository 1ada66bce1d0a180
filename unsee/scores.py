"""Losses and metrics: pure functions on (log) confidences (paper sec. 3.2 and "Evaluation Metrics").

Everything is deterministic over the whole few-shot set. Losses work on log-confidences, which are
finite by construction, so no epsilon stands inside a logarithm.
"""

from __future__ import annotations

import numpy as np

from unsee.records import Doubles, Floats, Ints, Mask, Scores

# The log of the smallest normal float32: what a confidence of exactly 0 counts as. Only providers
# that round their confidences to 0 ever reach it; log-softmax itself does not.
LOG_FLOOR = float(np.log(np.finfo(np.float32).tiny))


def safe_log(confidences: Floats) -> Floats:
    """Logs of confidences, floored at LOG_FLOOR; NaN stays NaN, to be found by the caller."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(confidences)
    return np.maximum(logs, np.float32(LOG_FLOOR), out=logs)


def memorize_loss(log_p: Floats, labels: Ints) -> Doubles:
    """Mean cross-entropy of each candidate (eq. 1). log_p (b, n, c), labels (n,) -> (b,)."""
    if len(labels) == 0:
        return np.zeros(len(log_p))
    picked = log_p[:, np.arange(len(labels)), labels]  # (b, n)
    loss: Doubles = -picked.mean(axis=1, dtype=np.float64)
    return loss


def forget_loss(log_p: Floats) -> Doubles:
    """Mean of -(1/C) sum_i log p_i (eq. 2): least, log C, when every answer is uniform. (b, n, c) -> (b,)."""
    if log_p.shape[1] == 0:
        return np.zeros(len(log_p))
    loss: Doubles = -log_p.mean(axis=(1, 2), dtype=np.float64)
    return loss


def forgetting_loss(
    log_p: Floats, labels: Ints, forget: Mask, memorize_weight: float = 1.0, forget_weight: float = 1.0
) -> Doubles:
    """What the search minimises: both losses, weighted. log_p (b, n, c), labels (n,), forget (c,) -> (b,)."""
    gone = forget[labels]  # (n,)
    kept = ~gone
    total = memorize_weight * memorize_loss(log_p[:, kept], labels[kept])
    total += forget_weight * forget_loss(log_p[:, gone])
    return total


def embedding_loss(after: Floats, before: Floats, gone: Mask, kept: Mask, tau: float) -> Doubles:
    """Negative NT-Xent on class embeddings (eq. 3), a mean over the classes in `gone`.

    after (b, C, E) under the candidates, before (C, E) under the plain prompt; each forgotten class is driven
    away from what it was and towards the classes in `kept`. -> (b,).
    """
    near = np.einsum("bce,ce->bc", after[:, gone], before[gone], dtype=np.float64) / tau
    others = np.einsum("bce,ke->bck", after[:, gone], before[kept], dtype=np.float64) / tau
    peak = others.max(axis=2, keepdims=True)
    total = peak[..., 0] + np.log(np.exp(others - peak).sum(axis=2))
    loss: Doubles = (near - total).mean(axis=1)
    return loss


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


def answers(confidences: Floats) -> Ints:
    """The top class of each image; the first of equals. (..., c) -> (...)."""
    top: Ints = confidences.argmax(axis=-1)
    return top


def label_mask_answers(confidences: Floats, forget: Mask) -> Ints:
    """The top class once the forgotten names are struck from the list: forgetting without tuning. (n, c) -> (n,)."""
    struck = np.where(forget, -np.inf, confidences)
    top: Ints = struck.argmax(axis=-1)
    return top


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
