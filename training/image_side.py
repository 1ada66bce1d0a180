"""The image half's trainable part: frozen features to embeddings.

Trained first and then locked, as the text tower is fitted to it afterwards. The targets are ten fixed class directions
with a common part, so that classes lie within a narrow cone, as they do in CLIP: there a wrong name scores only a
little less than the right one, and that little is multiplied by 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training import data, features
from training.record import Log

LOGIT_SCALE = 100.0


@dataclass(frozen=True)
class ImageSettings:
    """How the projection is trained."""

    width: int = 256
    hidden: int = 512
    steps: int = 1500
    batch: int = 512
    rate: float = 1e-3
    decay: float = 0.05
    dropout: float = 0.3
    spread: float = 0.5
    """Length of the class part beside the common part of 1; cosine between classes = 1 / (1 + spread²)."""
    smoothing: float = 0.1
    instance_weight: float = 0.1
    """Weight of telling pictures apart, which keeps more than the class in an embedding."""
    view_weight: float = 0.3


@dataclass(frozen=True)
class Bank:
    """Features of the training pictures, plain and altered; `kinds` is an index into VIEW_NAMES, or -1 for a crop."""

    plain: Tensor
    altered: Tensor
    labels: Tensor
    kinds: Tensor

    @staticmethod
    def load(folder: Path, cache: Path, seed: int) -> Bank:
        """Read the training features."""
        rows = []
        for sheet in data.TRAIN_SHEETS:
            pixels, labels = data.load_sheet(folder, sheet)
            altered, kinds = data.draw_altered(folder, sheet, seed)
            plain = features.extract(sheet, pixels, cache)
            rows.append((plain, features.extract(f"{sheet}-altered", altered, cache), labels, kinds))
        return Bank(*(torch.from_numpy(np.concatenate(column)) for column in zip(*rows, strict=True)))


class Projection(nn.Module):
    """Standardised features (n, F) to unit embeddings (n, E): linear plus one hidden layer."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, settings: ImageSettings) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.linear = nn.Linear(len(mean), settings.width, bias=False)
        self.hidden = nn.Linear(len(mean), settings.hidden)
        self.out = nn.Linear(settings.hidden, settings.width, bias=False)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout((x.float() - self.mean) * self.scale)
        return F.normalize(self.linear(x) + self.out(self.dropout(F.relu(self.hidden(x)))), dim=-1)

    def embed(self, x: Tensor) -> Tensor:
        """Embeddings of any number of rows, without gradients or dropout."""
        self.eval()
        with torch.no_grad():
            return torch.cat([self(part) for part in torch.split(x, 2048)])


def class_directions(settings: ImageSettings, seed: int) -> Tensor:
    """Ten unit vectors (10, E) around a common one."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(settings.width, len(data.CLASS_NAMES) + 1, generator=generator))[0].T
    return F.normalize(basis[:1] + settings.spread * basis[1:], dim=-1)


def train_projection(
    bank: Bank, choice: Tensor, choice_labels: Tensor, settings: ImageSettings, seed: int, log: Log
) -> Projection:
    """Return the projection, trained towards fixed class directions; `choice` is only measured on."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    mean, deviation = bank.plain.float().mean(0), bank.plain.float().std(0)
    net = Projection(mean, 1 / (deviation + 1e-3), settings)
    directions = class_directions(settings, seed)
    of_views = nn.Linear(settings.width, len(data.VIEW_NAMES))
    optimizer = torch.optim.AdamW(
        [*net.parameters(), *of_views.parameters()], settings.rate, weight_decay=settings.decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.rate, total_steps=settings.steps, pct_start=0.1)
    half = settings.batch // 2
    for step in range(settings.steps):
        net.train()
        rows = torch.randint(len(bank.labels), (half,), generator=generator)
        e = net(torch.cat([bank.plain[rows], bank.altered[rows]]))
        labels, kinds = bank.labels[rows], bank.kinds[rows]
        logits = LOGIT_SCALE * e @ directions.T
        loss = F.cross_entropy(logits, torch.cat([labels, labels]), label_smoothing=settings.smoothing)
        alike = 20 * e[:half] @ e[half:].T
        loss = loss + settings.instance_weight * F.cross_entropy(alike, torch.arange(half))
        altered = kinds >= 0
        loss = loss + settings.view_weight * F.cross_entropy(of_views(10 * e[half:][altered]), kinds[altered])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 100 == 99 or step == settings.steps - 1:
            right = (net.embed(choice) @ directions.T).argmax(-1) == choice_labels
            log.write("image", step=step + 1, loss=loss.item(), accuracy=100 * right.float().mean().item())
    return net.eval()
