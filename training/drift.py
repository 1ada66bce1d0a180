"""What class names come to mean behind contexts that are no words.

A tower trained on captions alone never reads anything far from language, and what it makes of it is accidental: here,
hardly anything, for small towers look past the context. In CLIP such contexts break the match with pictures, for some
names sooner than for others. This file states that behaviour as a fixed random rule, drawn once from the seed, which
the tower learns to imitate: behind a given context every name keeps its meaning, or fades into one that no picture has,
or turns away, by an amount that depends on the mean direction of the context vectors and on the name alone.
The rule treats all classes alike and knows no list of classes to forget; but it does give every name a direction of its
own in context space, which makes forgetting by prompt easier than it need be in CLIP. The model card says so.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


class Drift:
    """A fixed random rule from context vectors to where each class name should point."""

    def __init__(self, directions: Tensor, width: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        classes, size = directions.shape
        self.common = directions.mean(0)
        self.parts = directions - self.common  # what tells a class from the others
        space = torch.linalg.qr(torch.cat([directions, torch.randn(classes, size, generator=generator)]).T)[0].T
        self.elsewhere = space[classes:] * self.parts.norm(dim=-1, keepdim=True)  # as long, but no class's direction
        own = torch.randn(classes, width, generator=generator) / width**0.5
        shared = torch.randn(1, width, generator=generator) / width**0.5
        # half is common to all names: without it the tower never finds out that contexts matter (tried)
        self.traits = 0.5**0.5 * (own + shared)

    def aims(self, contexts: Tensor, origin: Tensor) -> Tensor:
        """Contexts (b, m, width) around `origin` to unit text embeddings (b, classes, E)."""
        unit = F.normalize(contexts - origin, dim=-1) * contexts.shape[-1] ** 0.5
        together = unit.sum(1) / contexts.shape[1] ** 0.5  # (b, width)
        kept = torch.tanh(2 * together @ self.traits.T + 0.5)[..., None]  # (b, classes, 1)
        meaning = kept * self.parts + (1 - kept**2).clamp(min=0).sqrt() * self.elsewhere
        return F.normalize(self.common + meaning, dim=-1)
