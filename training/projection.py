"""The trained part of the image tower: features to unit embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Projection(nn.Module):
    """Principal components (n, C) to unit embeddings (n, E): linear plus one hidden layer."""

    def __init__(self, components: int, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(components, width, bias=False)
        self.hidden = nn.Linear(components, hidden)
        self.out = nn.Linear(hidden, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.dropout(x)
        return F.normalize(self.linear(x) + self.out(self.dropout(F.relu(self.hidden(x)))), dim=-1)

    @torch.no_grad()
    def embed(self, x: Tensor) -> Tensor:
        """Embeddings of any number of rows, without dropout."""
        was = self.training
        self.eval()
        found = torch.cat([self(part.float()) for part in torch.split(x, 2048)])
        self.train(was)
        return found
