"""Loads a CLIP checkpoint of any format as a local model."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from unsee.errors import InputError, ModelError
from unsee.models.families import check_precision
from unsee.models.fast.checkpoint_record import Checkpoint, TowerSizes
from unsee.models.fast.checkpoints import read_checkpoint
from unsee.models.fast.resnet import ResNetEncoder
from unsee.models.fast.text_tower import Layer, TextTower
from unsee.models.fast.tokenizers import find_tokenizer
from unsee.models.fast.vision import VisionTransformer
from unsee.models.fast.weights import Weights
from unsee.models.features import FeatureCache
from unsee.models.library.dual_encoder import load_tokenizer
from unsee.models.local import LocalModel, Tokenizer
from unsee.settings import PRECISIONS

GPUS = {"cuda": torch.cuda, "mps": torch.backends.mps}
TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in PRECISIONS}


def load_clip(
    name: str,
    cache: FeatureCache | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    folder: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> LocalModel:
    """Loads the CLIP of this name or path, or in this folder. Half precision is for GPUs."""
    check_device(device, dtype)
    checkpoint = read_checkpoint(name if folder is None else str(folder))
    if say is not None and checkpoint.assumed:
        say(checkpoint.assumed)
    return from_checkpoint(name, checkpoint, cache, device, TORCH_DTYPES[dtype])


def check_device(device: str, dtype: str) -> None:
    """Refuses a device that this machine does not have, and half precision on a CPU."""
    check_precision(dtype)
    if device == "cpu" and dtype != "float32":
        raise InputError(f"{dtype} needs a GPU (device 'cuda' or 'mps'); on a CPU use float32")
    there = ["cpu", *(kind for kind, module in GPUS.items() if module.is_available())]
    if device.partition(":")[0] not in there:
        raise InputError(f"device {device!r} is not there; this machine has: {', '.join(there)}")


def from_checkpoint(
    name: str,
    checkpoint: Checkpoint,
    cache: FeatureCache | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> LocalModel:
    """Makes a model of a checkpoint that was read and checked."""
    tokenizer = _tokenizer(checkpoint)
    if max(tokenizer.sos or 0, tokenizer.eot) >= checkpoint.vocabulary:
        raise ModelError(f"{checkpoint.source}: the tokenizer has more tokens than the model's {checkpoint.vocabulary}")
    if checkpoint.eos is not None and checkpoint.eos != tokenizer.eot:
        raise ModelError(
            f"{checkpoint.source}: eos_token_id is {checkpoint.eos}, but the tokenizer ends with {tokenizer.eot}"
        )
    tower = text_tower(checkpoint.state, checkpoint.text, device, dtype)
    scale = math.exp(float(checkpoint.state["logit_scale"]))
    kind = VisionTransformer if checkpoint.resnet is None else ResNetEncoder
    vision = kind(checkpoint, device, dtype)
    return LocalModel(name, tower, tokenizer, vision, scale, cache, reads_highest=checkpoint.eos is None)


def _tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    if checkpoint.tokenizer == "clip" or checkpoint.folder is None:
        return find_tokenizer(checkpoint.folder, checkpoint.vocabulary)
    found = load_tokenizer(checkpoint.folder)
    if found.sos is None:
        raise ModelError(f"{checkpoint.source}: its tokenizer puts no start token before a text")
    return found


def text_tower(state: Weights, sizes: TowerSizes, device: str = "cpu", dtype: torch.dtype = torch.float32) -> TextTower:
    """Makes a text tower of weights with Hugging Face's names."""

    def get(name: str) -> Tensor:
        return state[name].to(device=device, dtype=dtype).contiguous()

    def pair(name: str) -> tuple[Tensor, Tensor]:
        return get(f"{name}.weight"), get(f"{name}.bias")

    def layer(at: str) -> Layer:
        scale = (sizes.width // sizes.heads) ** -0.5
        (q, qb), (k, kb), (v, vb) = (pair(f"{at}.self_attn.{part}_proj") for part in "qkv")
        return Layer(
            norm1=pair(f"{at}.layer_norm1"),
            qkv=(torch.cat([q * scale, k, v]), torch.cat([qb * scale, kb, vb])),
            out=pair(f"{at}.self_attn.out_proj"),
            norm2=pair(f"{at}.layer_norm2"),
            fc1=pair(f"{at}.mlp.fc1"),
            fc2=pair(f"{at}.mlp.fc2"),
        )

    return TextTower(
        tokens=get("text_model.embeddings.token_embedding.weight"),
        positions=get("text_model.embeddings.position_embedding.weight"),
        layers=tuple(layer(f"text_model.encoder.layers.{i}") for i in range(sizes.layers)),
        norm=pair("text_model.final_layer_norm"),
        projection=get("text_projection.weight"),
        heads=sizes.heads,
        activation=sizes.activation,
        eps=sizes.eps,
    )
