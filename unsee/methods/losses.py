"""What tuning minimises (paper sec. 3.2): pure functions on log-confidences, in NumPy and, for gradients, in torch.

Everything is deterministic over the whole few-shot set. Log-confidences are finite by construction, so no epsilon
stands inside a logarithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unsee.types import Doubles, Floats, Ints, Mask

if TYPE_CHECKING:
    from torch import Tensor


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


def forgetting_loss_torch(
    log_p: Tensor, labels: Tensor, gone: Tensor, weights: tuple[float, float], counts: tuple[int, int]
) -> Tensor:
    """The same loss in torch, of a batch of a set's images. log_p (n, c), labels (n,), gone (n,) -> ().

    counts are the numbers of kept and forgotten images in the whole set: the losses of its batches add up to its loss.
    """
    (memorize, forget), (kept_images, gone_images) = weights, counts
    total = log_p.new_zeros(())
    if (~gone).any():
        total = total - memorize * log_p[~gone].gather(1, labels[~gone, None]).sum() / kept_images
    if gone.any():
        total = total - forget * log_p[gone].mean(dim=1).sum() / gone_images
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
