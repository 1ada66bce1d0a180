"""CLIP's text transformer, with Hugging Face's parameter names, for training on texts that share their beginnings.

Pre-norm, causal, read at EOT, final layer norm, bias-free projection, L2-normalised. Texts are packed without padding;
only attention is padded. A text may follow another one's tokens (a name behind a context), whose keys and values are
computed once for all names.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

Past = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class TextSizes:
    """The sizes of a text tower, in the words of Hugging Face's CLIPTextConfig."""

    vocab_size: int = 8192
    hidden_size: int = 128
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    intermediate_size: int = 512
    max_position_embeddings: int = 40
    projection_dim: int = 256
    layer_norm_eps: float = 1e-5

    def as_dict(self) -> dict[str, int | float]:
        """Return the fields for config.json."""
        return asdict(self)


@dataclass(frozen=True)
class Packed:
    """Token sequences in one long row, and where each token lies in a padded table (sequences, longest)."""

    ids: Tensor  # (rows,)
    sequence: Tensor  # (rows,)
    place: Tensor  # (rows,) within its sequence
    lengths: Tensor  # (sequences,)
    ends: Tensor  # (sequences,) row of each sequence's last token

    @staticmethod
    def of(sequences: list[list[int]]) -> Packed:
        """Pack sequences."""
        lengths = np.array([len(s) for s in sequences])
        sequence = np.repeat(np.arange(len(sequences)), lengths)
        ends = np.cumsum(lengths) - 1
        place = np.arange(lengths.sum()) - np.repeat(ends - lengths + 1, lengths)
        flat = np.fromiter((i for s in sequences for i in s), dtype=np.int64, count=int(lengths.sum()))
        return Packed(*(torch.from_numpy(x) for x in (flat, sequence, place, lengths, ends)))

    @property
    def longest(self) -> int:
        return int(self.lengths.max())


class Attention(nn.Module):
    def __init__(self, sizes: TextSizes) -> None:
        super().__init__()
        width = sizes.hidden_size
        self.heads = sizes.num_attention_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def padded(self, x: Tensor, packed: Packed) -> Tensor:
        """Rows (r, width) to (sequences, heads, longest, width / heads)."""
        table = x.new_zeros(len(packed.lengths), packed.longest, x.shape[-1])
        table = table.index_put((packed.sequence, packed.place), x)
        return table.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(
        self, x: Tensor, packed: Packed, past: tuple[Tensor, Tensor] | None, hidden: Tensor, last: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Attended rows (all of them, or in the last layer the ends alone), and the keys and values."""
        k, v = self.padded(self.k_proj(x), packed), self.padded(self.v_proj(x), packed)
        kept = (k, v)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        if last:
            q = self.q_proj(x[packed.ends]).unflatten(-1, (self.heads, -1))[:, :, None]
            mask = hidden[torch.arange(len(packed.ends)), :, packed.lengths - 1, None]
            found = attend(q, k, v, mask)[:, :, 0].flatten(1)
        else:
            q = self.padded(self.q_proj(x), packed)
            found = attend(q, k, v, hidden).transpose(1, 2).flatten(2)[packed.sequence, packed.place]
        return self.out_proj(found), kept


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """Softmax attention; `hidden` is True where a query may not look."""
    weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(hidden, float("-inf")).softmax(-1)
    return weights @ v


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

    def forward(
        self, x: Tensor, packed: Packed, past: tuple[Tensor, Tensor] | None, hidden: Tensor, last: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        seen, kept = self.self_attn(self.layer_norm1(x), packed, past, hidden, last)
        x = (x[packed.ends] if last else x) + seen
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
    """Token ids to unit text embeddings."""

    def __init__(self, sizes: TextSizes, logit_scale: float = 20.0) -> None:
        super().__init__()
        self.sizes = sizes
        self.text_model = Transformer(sizes)
        self.text_projection = nn.Linear(sizes.hidden_size, sizes.projection_dim, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(logit_scale).log())
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

    def read(self, texts: Packed) -> tuple[Tensor, Past]:
        """Unit embeddings (sequences, E) at each sequence's end, and the keys and values of every layer."""
        x = self.table[texts.ids] + self._positions(texts.place)
        t = torch.arange(texts.longest)
        hidden = (t[None, :] > t[:, None]).expand(len(texts.lengths), 1, -1, -1)
        return self._run(x, texts, None, hidden)

    def read_behind(self, texts: Packed, owner: Tensor, before: Tensor, past: Past) -> Tensor:
        """Unit embeddings of texts that follow others: text i follows sequence owner[i], `before` tokens long.

        past: keys and values of the others, (others, heads, longest, width / heads).
        """
        x = self.table[texts.ids] + self._positions(texts.place + before[owner][texts.sequence])
        t, p = torch.arange(texts.longest), torch.arange(past[0][0].shape[2])
        own = (t[None, :] > t[:, None]).expand(len(owner), 1, -1, -1)
        beyond = (p[None, :] >= before[owner][:, None])[:, None, None].expand(-1, 1, texts.longest, -1)
        gathered = [(k[owner], v[owner]) for k, v in past]
        return self._run(x, texts, gathered, torch.cat([beyond, own], -1))[0]

    def _positions(self, places: Tensor) -> Tensor:
        return self.text_model.embeddings["position_embedding"](places)

    def _run(self, x: Tensor, texts: Packed, past: Past | None, hidden: Tensor) -> tuple[Tensor, Past]:
        kept = []
        layers = self.text_model.encoder["layers"]
        for i, layer in enumerate(layers):
            x, keys_values = layer(x, texts, None if past is None else past[i], hidden, i + 1 == len(layers))
            kept.append(keys_values)
        return F.normalize(self.text_projection(self.text_model.final_layer_norm(x)), dim=-1), kept
