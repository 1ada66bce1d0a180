"""What stands behind the frozen encoder: features to unit embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Projection(nn.Module):
    """Principal components (n, C) to unit embeddings (n, E): linear plus one hidden layer.

    Without hidden units nothing is trained: the features are the embeddings, normalised, as in LiT.
    """

    def __init__(self, components: int, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.trained = hidden > 0
        if self.trained:
            self.linear = nn.Linear(components, width, bias=False)
            self.hidden = nn.Linear(components, hidden)
            self.out = nn.Linear(hidden, width, bias=False)
        elif components != width or dropout:
            raise ValueError(f"{components} numbers cannot be the {width} of the texts, or be dropped, untrained")

    def forward(self, x: Tensor) -> Tensor:
        if not self.trained:
            return F.normalize(x, dim=-1)
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
