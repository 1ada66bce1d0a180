"""How good a tower is, by measures that favour no forgetting method (data_batch_5 only until the very end)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from training import captions
from training.data import CLASS_NAMES
from training.text_side import Reader
from training.text_tower import TextTower


@dataclass(frozen=True)
class Shots:
    """Few-shot image embeddings for forgetting: training and validation, and the pictures to measure on."""

    train: Tensor
    train_labels: Tensor
    valid: Tensor
    valid_labels: Tensor
    test: Tensor
    test_labels: Tensor
    forget: Tensor  # (classes,) bool


def draw_shots(
    pool: Tensor,
    pool_labels: Tensor,
    test: Tensor,
    test_labels: Tensor,
    seed: int,
    forget: tuple[int, ...] = (0, 1, 2, 3),
) -> Shots:
    """16 training and 16 other validation pictures a class."""
    rng = np.random.default_rng(seed)
    train, valid = [], []
    for k in range(len(CLASS_NAMES)):
        rows = rng.permutation(np.flatnonzero(pool_labels.numpy() == k))[:32]
        train.append(rows[:16])
        valid.append(rows[16:])
    a, b = torch.from_numpy(np.concatenate(train)), torch.from_numpy(np.concatenate(valid))
    mask = torch.zeros(len(CLASS_NAMES), dtype=torch.bool)
    mask[list(forget)] = True
    return Shots(pool[a], pool_labels[a], pool[b], pool_labels[b], test, test_labels, mask)


class Prompted:
    """A tower that reads `[SOS] contexts name. [EOT]` for every class; the prefix is run once for all classes."""

    def __init__(self, tower: TextTower, reader: Reader) -> None:
        self.tower = tower
        self.words = tower.table[reader.tokenizer.encode("a photo of a", add_special_tokens=False).ids].detach()
        self.reader = reader

    def classes(self, contexts: Tensor) -> Tensor:
        """Contexts (b, m, width) to class embeddings (b, classes, E)."""
        return self.reader.read_names(self.tower, contexts)

    def log_confidences(self, contexts: Tensor, images: Tensor) -> Tensor:
        """Log-probabilities (b, n, classes)."""
        return (self.tower.logit_scale.exp() * images @ self.classes(contexts).transpose(1, 2)).log_softmax(-1)


def forgetting_loss(log_p: Tensor, labels: Tensor, forget: Tensor) -> Tensor:
    """Cross-entropy on memorised pictures + cross-entropy to the uniform answer on forgotten ones, (b,)."""
    gone = forget[labels]
    keep = -log_p[:, ~gone].gather(-1, labels[~gone].expand(len(log_p), -1)[..., None]).squeeze(-1).mean(-1)
    return keep - log_p[:, gone].mean((-1, -2))


def harmonic(log_p: Tensor, labels: Tensor, forget: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """H, Err_for, Acc_mem in percent, each (b,)."""
    right = (log_p.argmax(-1) == labels).float()
    gone = forget[labels]
    error, accuracy = 100 * (1 - right[:, gone].mean(-1)), 100 * right[:, ~gone].mean(-1)
    return 2 * error * accuracy / (error + accuracy).clamp(min=1e-9), error, accuracy


def template_accuracies(tower: TextTower, reader: Reader, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Accuracy in percent for every template, seen ones first."""
    found = {}
    with torch.no_grad():
        for template in (*captions.SEEN_TEMPLATES, *captions.UNSEEN_TEMPLATES):
            texts = reader.read(tower, [captions.fill(template, k) for k in range(len(CLASS_NAMES))])
            found[template] = 100 * ((images @ texts.T).argmax(-1) == labels).float().mean().item()
    return found


def gradient_forgetting(
    prompted: Prompted, shots: Shots, start: Tensor, basis: Tensor | None, steps: int, rate: float
) -> tuple[float, float, float, float]:
    """H, Err_for, Acc_mem, loss by gradients on contexts (m, width), or on z (m, d) with contexts = start + z A^T.

    Validation H picks the step; a tie goes to the lower loss.
    """
    z = torch.zeros(len(start), start.shape[-1] if basis is None else basis.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([z], rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    best, best_contexts = (-1.0, 0.0), start
    for _ in range(steps):
        contexts = (start + (z if basis is None else z @ basis.T))[None]
        both = prompted.log_confidences(contexts, torch.cat([shots.train, shots.valid]))
        loss = forgetting_loss(both[:, : len(shots.train)], shots.train_labels, shots.forget).sum()
        h, _, _ = harmonic(both[:, len(shots.train) :].detach(), shots.valid_labels, shots.forget)
        if (h.item(), -loss.item()) > best:
            best, best_contexts = (h.item(), -loss.item()), contexts[0].detach()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        log_p = prompted.log_confidences(best_contexts[None], shots.test)
    h, error, accuracy = harmonic(log_p, shots.test_labels, shots.forget)
    return h.item(), error.item(), accuracy.item(), -best[1]


def scatter(prompted: Prompted, images: Tensor, labels: Tensor, latent: int = 25, draws: int = 200) -> dict[str, float]:
    """How far random contexts move each class's recall: mean over classes of its std, and the mean recall."""
    table = prompted.tower.table.detach()
    generator = torch.Generator().manual_seed(0)
    width = table.shape[1]
    recalls = []
    with torch.no_grad():
        for _ in range(draws // 20):
            basis = table.std() * torch.randn(width, latent, generator=generator)
            contexts = table.mean(0) + torch.randn(20, 4, latent, generator=generator) @ basis.T
            right = (prompted.log_confidences(contexts, images).argmax(-1) == labels).float()
            recalls.append(torch.stack([right[:, labels == k].mean(-1) for k in range(len(CLASS_NAMES))], -1))
    recall = 100 * torch.cat(recalls)  # (draws, classes)
    within = recall.std(1).mean().item()
    return {"scatter": recall.std(0).mean().item(), "within": within, "recall": recall.mean().item()}


def judge(tower: TextTower, reader: Reader, images: Tensor, labels: Tensor, splits: int = 3) -> dict[str, object]:
    """All neutral measures of one tower on data_batch_5: shots from its first half, results on its second half."""
    tower.eval().requires_grad_(False)
    half = len(labels) // 2
    accuracies = template_accuracies(tower, reader, images, labels)
    prompted = Prompted(tower, reader)
    table = tower.table.detach()
    origin = table.mean(0).expand(4, -1)
    coop, inside = [], []
    for seed in range(splits):
        shots = draw_shots(images[:half], labels[:half], images[half:], labels[half:], seed)
        coop.append(gradient_forgetting(prompted, shots, prompted.words, None, 200, 0.3 * table.std().item()))
        basis = table.std() * torch.randn(table.shape[1], 25, generator=torch.Generator().manual_seed(seed))
        inside.append(gradient_forgetting(prompted, shots, origin, basis, 300, 0.15))
    values = list(accuracies.values())
    return {
        "accuracy": values[0],
        "lowest": min(values),
        "highest": max(values),
        "coop_h": [round(r[0], 1) for r in coop],
        "subspace_h": [round(r[0], 1) for r in inside],
        "subspace_err": [round(r[1], 1) for r in inside],
        "subspace_acc": [round(r[2], 1) for r in inside],
        "subspace_loss": [round(r[3], 2) for r in inside],
        **scatter(prompted, images[half : half + 1000], labels[half : half + 1000]),
    }
