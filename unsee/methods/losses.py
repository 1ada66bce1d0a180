"""What tuning minimises (paper sec. 3.2): pure functions on log-confidences, in NumPy and, for gradients, in torch.

Everything is deterministic over the whole few-shot set. Log-confidences are finite by construction, so no epsilon
stands inside a logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unsee.types import Doubles, Floats, Ints, Mask

if TYPE_CHECKING:
    from torch import Tensor

ALMOST = -1e-6  # log-confidences above it count as this, so that 1 - p never vanishes
STEEP = 10.0  # weight of a memorize loss that is above what is allowed


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


def push_loss(log_p: Floats, labels: Ints) -> Doubles:
    """Mean of -log(1 - p) of the true class: 0 when it is never answered, whatever is. (b, n, c), (n,) -> (b,)."""
    if log_p.shape[1] == 0:
        return np.zeros(len(log_p))
    picked = log_p[:, np.arange(len(labels)), labels].astype(np.float64)
    loss: Doubles = -np.log(-np.expm1(np.minimum(picked, ALMOST))).mean(axis=1)
    return loss


def mask_loss(log_p: Floats, target: Floats) -> Doubles:
    """Mean cross-entropy from given answers, those of a label mask: least when answers are these. target (n, c)."""
    if log_p.shape[1] == 0:
        return np.zeros(len(log_p))
    loss: Doubles = -np.einsum("bnc,nc->b", log_p, target, dtype=np.float64) / len(target)
    return loss


@dataclass(frozen=True, eq=False)
class Goal:
    """What is asked of answers to forgotten images, and how much keeping may give way.

    `target` is the label mask's answer to each image of the set, for goal "mask". `allowed` is the largest memorize
    loss that costs nothing, for goal "constrained"; what is above counts STEEP times.
    """

    name: str = "entropy"
    target: Floats | None = None  # (n, c), of all images of the set
    allowed: float = 0.0


def forgetting_loss(
    log_p: Floats,
    labels: Ints,
    forget: Mask,
    memorize_weight: float = 1.0,
    forget_weight: float = 1.0,
    goal: Goal | None = None,
) -> Doubles:
    """What the search minimises: both losses, weighted. log_p (b, n, c), labels (n,), forget (c,) -> (b,)."""
    gone, goal = forget[labels], goal or Goal()  # (n,)
    kept = ~gone
    memorize = memorize_loss(log_p[:, kept], labels[kept])
    if goal.name == "constrained":
        memorize = STEEP * np.maximum(0, memorize - goal.allowed)
    total = memorize_weight * memorize
    if goal.name == "push":
        total += forget_weight * push_loss(log_p[:, gone], labels[gone])
    elif goal.target is not None:
        total += forget_weight * mask_loss(log_p[:, gone], goal.target[gone])
    else:
        total += forget_weight * forget_loss(log_p[:, gone])
    return total


def forgetting_loss_torch(
    log_p: Tensor,
    labels: Tensor,
    gone: Tensor,
    weights: tuple[float, float],
    counts: tuple[int, int],
    goal: Goal | None = None,
) -> Tensor:
    """The same loss in torch, of a batch of a set's images. log_p (n, c), labels (n,), gone (n,) -> ().

    counts are the numbers of kept and forgotten images in the whole set: the losses of its batches add up to its loss.
    Goal "constrained" does not add up, so it takes the whole set as one batch.
    """
    (memorize, forget), (kept_images, gone_images), goal = weights, counts, goal or Goal()
    total = log_p.new_zeros(())
    if (~gone).any():
        kept = -log_p[~gone].gather(1, labels[~gone, None]).sum() / kept_images
        total = total + memorize * (STEEP * (kept - goal.allowed).relu() if goal.name == "constrained" else kept)
    if gone.any():
        total = total + forget * _forget_torch(log_p[gone], labels[gone], gone, goal) / gone_images
    return total


def _forget_torch(log_p: Tensor, labels: Tensor, gone: Tensor, goal: Goal) -> Tensor:
    """Sum over forgotten images, log_p (g, c)."""
    if goal.name == "push":
        return -(-log_p.gather(1, labels[:, None]).clamp(max=ALMOST).expm1()).log().sum()
    if goal.target is not None:
        target = log_p.new_tensor(goal.target[gone.cpu().numpy()])
        return -(log_p * target).sum()
    return -log_p.mean(dim=1).sum()


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
