"""One random CLIP, written in every format of checkpoint."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.tiny import NAMES, make_clip
from unsee.errors import ModelError
from unsee.models import load_model
from unsee.models.fast.checkpoints import read_checkpoint

TEXT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
VISION = TEXT | {"image_size": 32, "patch_size": 8}
WIDE = TEXT | {  # the vision width and patch of a ViT-B-32, cut down in depth
    "hidden_size": 768,
    "num_hidden_layers": 1,
    "num_attention_heads": 12,
    "image_size": 64,
    "patch_size": 32,
}
IN_BLOCK = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
OUTSIDE = {
    "logit_scale": "logit_scale",
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight",
    "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight",
    "vision_model.post_layernorm.bias": "visual.ln_post.bias",
}


def few(default: int, *cases):
    """Cases of a test that write a whole checkpoint each: some by default, the others are slow."""
    return [*cases[:default], *(pytest.param(*case, marks=pytest.mark.slow) for case in cases[default:])]


@cache
def clip(activation: str = "quick_gelu", wide: bool = False):
    vision = WIDE if wide else VISION
    return make_clip(TEXT | {"hidden_act": activation}, vision | {"hidden_act": activation}, projection=64, seed=3)


def openai_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A Hugging Face CLIP's weights under the names that OpenAI gave them."""
    out = {new: state[old] for old, new in OUTSIDE.items()}
    out["text_projection"] = state["text_projection.weight"].T
    out["visual.proj"] = state["visual_projection.weight"].T
    for tower, prefix in (("text_model", "transformer"), ("vision_model", "visual.transformer")):
        depth = sum(key.startswith(tower) and key.endswith("fc1.bias") for key in state)
        for i in range(depth):
            theirs, ours = f"{tower}.encoder.layers.{i}", f"{prefix}.resblocks.{i}"
            for kind in ("weight", "bias"):
                qkv = [state[f"{theirs}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
                out[f"{ours}.attn.in_proj_{kind}"] = torch.cat(qkv)
                for old, new in IN_BLOCK.items():
                    out[f"{ours}.{new}.{kind}"] = state[f"{theirs}.{old}.{kind}"]
    return {key: value.detach().clone().contiguous() for key, value in out.items()}


class Nest(torch.nn.Module):
    """Parameters under dotted names, as the modules of a CLIP would hold them."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        inner: dict[str, dict[str, torch.Tensor]] = {}
        for key, value in weights.items():
            first, _, rest = key.partition(".")
            if rest:
                inner.setdefault(first, {})[rest] = value
            else:
                self.register_parameter(first, torch.nn.Parameter(value, requires_grad=False))
        for name, part in inner.items():
            self.add_module(name, Nest(part))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def write_torchscript(path: Path, weights: dict[str, torch.Tensor]) -> Path:
    """As OpenAI published them: an archive with three sizes beside the weights."""
    module = Nest(weights)
    for name, size in (("input_resolution", 32), ("context_length", 77), ("vocab_size", 49408)):
        module.register_buffer(name, torch.tensor(size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(module, torch.zeros(1)), str(path))
    return path


def write_open_clip(folder: Path, weights: dict[str, torch.Tensor], name: str, **settings) -> Path:
    folder.mkdir(exist_ok=True)
    model = {
        "embed_dim": 64,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 128, "patch_size": 8},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 2},
    }
    config = {"model_cfg": model | settings, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    if name.endswith(".safetensors"):
        save_file(weights, folder / name)
    else:
        torch.save(weights, folder / name)
    return folder


def answers(name: str | Path) -> np.ndarray:
    """Log-confidences of a model on the same images, names and contexts.

    The images' shape is one where Hugging Face's centre crop and OpenCLIP's start at the same pixel.
    """
    rng = np.random.default_rng(0)
    bound = load_model(name).bind(rng.integers(0, 256, (3, 42, 36, 3), dtype=np.uint8), NAMES)
    return bound.log_confidences(rng.standard_normal((2, 4, 128)).astype(np.float32) * 0.05)


def same_weights(a: str | Path, b: str | Path) -> bool:
    one, two = read_checkpoint(str(a)).state, read_checkpoint(str(b)).state
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def refusal(name: str | Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(name)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message
