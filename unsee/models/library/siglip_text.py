"""SigLIP's text tower without what its last layer computes for nothing.

The tower is read at its last position, so in the last layer that position alone needs a query, an output map and an
MLP; the others only lend their keys and values. All other layers are the library's own, and the answer is the same.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor


def siglip_features(model: Any, ids: Tensor, mask: Tensor | None) -> Tensor:
    """Text embeddings of a `transformers` SigLIP, not normalised. (n, s) -> (n, E)."""
    if mask is not None:  # the library makes its own form of the mask
        output = model.get_text_features(input_ids=ids, attention_mask=mask)
        found: Tensor = output if isinstance(output, Tensor) else output.pooler_output
        return found
    tower = model.text_model
    x = tower.embeddings(input_ids=ids)
    *layers, last = tower.encoder.layers
    for layer in layers:
        output = layer(x, None)
        x = output if isinstance(output, Tensor) else output[0]  # a tuple before transformers 5
    attention, near = last.self_attn, last.layer_norm1(x)

    def heads(rows: Tensor) -> Tensor:
        return rows.view(*rows.shape[:2], attention.num_heads, -1).transpose(1, 2)

    q, k, v = attention.q_proj(near[:, -1:]), attention.k_proj(near), attention.v_proj(near)
    seen = F.scaled_dot_product_attention(heads(q), heads(k), heads(v)).transpose(1, 2).flatten(2)
    end = x[:, -1:] + attention.out_proj(seen)
    end = end + last.mlp(last.layer_norm2(end))
    read: Tensor = tower.head(tower.final_layer_norm(end)[:, 0])
    return read
