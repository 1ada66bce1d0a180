"""CLIP's text transformer, with Hugging Face's parameter names, taking embeddings instead of ids.

Pre-norm, causal, read at EOT, final layer norm, bias-free projection, L2-normalised. Embeddings come in from outside
because that is what prompt tuning replaces.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class TextSizes:
    """The sizes of a text tower, in the words of Hugging Face's CLIPTextConfig."""

    vocab_size: int = 6144
    hidden_size: int = 128
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    intermediate_size: int = 512
    max_position_embeddings: int = 32
    projection_dim: int = 256
    layer_norm_eps: float = 1e-5

    def as_dict(self) -> dict[str, int | float]:
        """Return the fields for config.json."""
        return asdict(self)


class Attention(nn.Module):
    def __init__(self, sizes: TextSizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.heads = sizes.num_attention_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)  # (b, heads, t, width / heads)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        if past is not None:
            k, v = torch.cat([past[0], k], -2), torch.cat([past[1], v], -2)
        new, all_ = q.shape[-2], k.shape[-2]
        mask = torch.ones(new, all_, dtype=torch.bool).tril(all_ - new)
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out_proj((weights @ v).transpose(-3, -2).flatten(-2)), (k, v)


class Mlp(nn.Module):
    def __init__(self, sizes: TextSizes) -> None:
        super().__init__()
        self.fc1 = nn.Linear(sizes.hidden_size, sizes.intermediate_size)
        self.fc2 = nn.Linear(sizes.intermediate_size, sizes.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        return self.fc2(x * torch.sigmoid(1.702 * x))  # quick_gelu


class Layer(nn.Module):
    def __init__(self, sizes: TextSizes) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(sizes.hidden_size, sizes.layer_norm_eps)
        self.self_attn = Attention(sizes)
        self.layer_norm2 = nn.LayerNorm(sizes.hidden_size, sizes.layer_norm_eps)
        self.mlp = Mlp(sizes)

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        seen, kept = self.self_attn(self.layer_norm1(x), past)
        x = x + seen
        return x + self.mlp(self.layer_norm2(x)), kept


class Transformer(nn.Module):
    """Holds the parameters under Hugging Face's prefix `text_model`."""

    def __init__(self, sizes: TextSizes) -> None:
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "token_embedding": nn.Embedding(sizes.vocab_size, sizes.hidden_size),
                "position_embedding": nn.Embedding(sizes.max_position_embeddings, sizes.hidden_size),
            }
        )
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(Layer(sizes) for _ in range(sizes.num_hidden_layers))})
        self.final_layer_norm = nn.LayerNorm(sizes.hidden_size, sizes.layer_norm_eps)


class TextTower(nn.Module):
    """Token embeddings to unit text embeddings."""

    logit_scale: Tensor

    def __init__(self, sizes: TextSizes, logit_scale: float = 100.0) -> None:
        super().__init__()
        self.sizes = sizes
        self.text_model = Transformer(sizes)
        self.text_projection = nn.Linear(sizes.hidden_size, sizes.projection_dim, bias=False)
        self.register_buffer("logit_scale", torch.tensor(logit_scale).log())
        self._initialise()

    @property
    def table(self) -> Tensor:
        """The token embeddings, (vocabulary, width)."""
        return self.text_model.embeddings["token_embedding"].weight

    def _initialise(self) -> None:
        """CLIP's own initial scales."""
        width, depth = self.sizes.hidden_size, self.sizes.num_hidden_layers
        nn.init.normal_(self.table, std=0.02)
        nn.init.normal_(self.text_model.embeddings["position_embedding"].weight, std=0.01)
        for layer in self.text_model.encoder["layers"]:
            attention, mlp = layer.self_attn, layer.mlp
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
                nn.init.normal_(linear.weight, std=width**-0.5)
            nn.init.normal_(attention.out_proj.weight, std=width**-0.5 * (2 * depth) ** -0.5)
            nn.init.normal_(mlp.fc1.weight, std=(2 * width) ** -0.5)
            nn.init.normal_(mlp.fc2.weight, std=width**-0.5 * (2 * depth) ** -0.5)
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj, mlp.fc1, mlp.fc2):
                nn.init.zeros_(linear.bias)
        nn.init.normal_(self.text_projection.weight, std=width**-0.5)

    def run(
        self, embedded: Tensor, past: list[tuple[Tensor, Tensor]] | None = None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """States (b, t, width) of embedded tokens that follow an already run prefix, and the keys and values so far."""
        start = 0 if past is None else past[0][0].shape[-2]
        positions = self.text_model.embeddings["position_embedding"].weight[start : start + embedded.shape[-2]]
        x = embedded + positions
        kept = []
        for i, layer in enumerate(self.text_model.encoder["layers"]):
            x, keys_values = layer(x, None if past is None else past[i])
            kept.append(keys_values)
        return x, kept

    def project(self, states: Tensor) -> Tensor:
        """States at EOT (b, width) to unit embeddings (b, E)."""
        return F.normalize(self.text_projection(self.text_model.final_layer_norm(states)), dim=-1)

    def forward(self, embedded: Tensor, ends: Tensor) -> Tensor:
        """Embedded sequences (b, t, width), with EOT at position ends[b], to unit embeddings (b, E)."""
        states, _ = self.run(embedded)
        return self.project(states[torch.arange(len(ends)), ends])
