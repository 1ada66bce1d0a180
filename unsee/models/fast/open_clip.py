"""Reads an OpenCLIP folder, and weights with the names that OpenAI and OpenCLIP give them.

Here they are renamed as Hugging Face does. open_clip is not imported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unsee.errors import ModelError
from unsee.models.fast.checkpoint_record import OPENAI_MEAN, OPENAI_STD, Checkpoint, Preprocess, TowerSizes, read_json
from unsee.models.fast.weights import Weights, floats, read_weights

OPEN_CLIP_CONFIG = "open_clip_config.json"


def read_open_clip_folder(folder: Path) -> Checkpoint:
    """The checkpoint in a folder with `open_clip_config.json`."""
    config = read_json(folder / OPEN_CLIP_CONFIG)
    model = config.get("model_cfg", {})
    vision, text = model.get("vision_cfg", {}), model.get("text_cfg", {})
    _refuse_unusual(folder / OPEN_CLIP_CONFIG, vision, text)
    weights = find_weights(folder)
    found = from_openai_names(
        str(weights),
        read_weights(weights),
        quick_gelu=bool(model.get("quick_gelu", False)),
        vision_head=int(vision.get("head_width", 64)),
        text_heads=int(text["heads"]) if "heads" in text else None,
    )
    wanted = {"width": found.vision.width, "layers": found.vision.layers, "patch_size": found.patch}
    for key, have in wanted.items():
        if key in vision and int(vision[key]) != have:
            raise ModelError(f"{weights}: vision {key} is {have}, open_clip_config.json says {vision[key]}")
    settings = config.get("preprocess_cfg") or {}
    return replace(found, preprocess=settings_to_preprocess(folder / OPEN_CLIP_CONFIG, settings, found.image))


def find_weights(folder: Path) -> Path:
    """The weights file of an OpenCLIP folder."""
    for stem in ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"):
        if (folder / stem).is_file():
            return folder / stem
    raise ModelError(f"{folder}: no open_clip_model.safetensors or open_clip_pytorch_model.bin")


def settings_to_preprocess(path: Path, settings: Mapping[str, Any], image: int) -> Preprocess:
    """OpenCLIP's `preprocess_cfg`. Its `size` is ignored: OpenCLIP, too, uses the model's image size."""

    def refuse(key: str, wanted: str) -> ModelError:
        return ModelError(f"{path}: preprocess_cfg.{key} is {settings[key]!r}; it must be {wanted}")

    def three(key: str, default: tuple[float, ...]) -> tuple[float, ...]:
        given = default if settings.get(key) is None else settings[key]
        values = tuple(given) if isinstance(given, (list, tuple)) else (given,) * 3
        if len(values) != 3 or not all(isinstance(v, (int, float)) for v in values):
            raise refuse(key, "three numbers")
        return values

    mean, std = three("mean", OPENAI_MEAN), three("std", OPENAI_STD)
    mode = settings.get("resize_mode") or "shortest"
    interpolation = settings.get("interpolation") or "bicubic"
    fill = settings.get("fill_color") or 0
    if min(std) <= 0:
        raise refuse("std", "above 0")
    if mode not in ("shortest", "longest", "squash"):
        raise refuse("resize_mode", "shortest, longest or squash")
    if interpolation not in ("bicubic", "bilinear", "random"):
        raise refuse("interpolation", "bicubic, bilinear or random")
    if not isinstance(fill, int) or not 0 <= fill <= 255:
        raise refuse("fill_color", "a whole number from 0 to 255")
    if settings.get("mode", "RGB") != "RGB":
        raise refuse("mode", "RGB")
    if interpolation == "random":  # in training only; OpenCLIP, too, evaluates with bicubic
        interpolation = "bicubic"
    return Preprocess(image, image, mean, std, mode, interpolation, fill, crop_rounding="even")


def _refuse_unusual(path: Path, vision: Mapping[str, Any], text: Mapping[str, Any]) -> None:
    """Raises ModelError for architectures that are not plain CLIP."""
    refuse_unusual_text(path, text)
    _refuse(
        path,
        {
            "vision_cfg.timm_model_name": vision.get("timm_model_name"),
            "vision_cfg.attentional_pool": vision.get("attentional_pool"),
            "vision_cfg.no_ln_pre": vision.get("no_ln_pre"),
            "vision_cfg.ls_init_value": vision.get("ls_init_value"),
            "vision_cfg.layers": vision.get("layers") if isinstance(vision.get("layers"), list) else None,
            "vision_cfg.pool_type": vision.get("pool_type") if vision.get("pool_type") != "tok" else None,
        },
    )


def refuse_unusual_text(path: Path, text: Mapping[str, Any]) -> None:
    """Raises ModelError for text towers that are not CLIP's."""
    _refuse(
        path,
        {
            "text_cfg.hf_model_name": text.get("hf_model_name"),
            "text_cfg.hf_tokenizer_name": text.get("hf_tokenizer_name"),
            "text_cfg.no_causal_mask": text.get("no_causal_mask"),
            "text_cfg.embed_cls": text.get("embed_cls"),
            "text_cfg.ls_init_value": text.get("ls_init_value"),
            "text_cfg.pool_type": text.get("pool_type") if text.get("pool_type") != "argmax" else None,
        },
    )


def _refuse(path: Path, unusual: Mapping[str, Any]) -> None:
    for key, value in unusual.items():
        if value:
            raise ModelError(f"{path}: {key} = {value!r} is not plain CLIP with a ViT; it cannot be loaded")


def read_text_sizes(source: str, state: Weights, quick_gelu: bool, heads: int | None) -> tuple[Weights, TowerSizes]:
    """The text tower alone: its weights under Hugging Face's names, and its sizes."""
    text = {key: value for key, value in state.items() if not key.startswith("visual.")}
    check_axes(source, text, _AXES)
    width = text["token_embedding.weight"].shape[1]
    sizes = _sizes(text, "transformer.resblocks.", width, heads or max(1, width // 64), quick_gelu)
    return _renamed(text), sizes


def check_axes(source: str, state: Weights, wanted: Mapping[str, int]) -> None:
    """Refuses weights that lack one of these, or have one with another number of axes."""
    for key, axes in wanted.items():
        if key not in state:
            raise ModelError(f"{source}: not a CLIP checkpoint: {key} is missing")
        if state[key].ndim != axes:
            raise ModelError(f"{source}: {key} has shape {tuple(state[key].shape)}, expected {axes} axes")


def _sizes(state: Weights, prefix: str, width: int, heads: int, quick_gelu: bool) -> TowerSizes:
    depth = len({key.split(".")[prefix.count(".")] for key in state if key.startswith(prefix)})
    hidden = state[f"{prefix}0.mlp.c_fc.weight"].shape[0]
    return TowerSizes(width, depth, heads, hidden, "quick_gelu" if quick_gelu else "gelu")


def from_openai_names(
    source: str,
    state: Weights,
    quick_gelu: bool,
    vision_head: int,
    text_heads: int | None,
) -> Checkpoint:
    """A checkpoint of weights with OpenAI's names; sizes come from the weights' shapes."""
    state = {key.removeprefix("text.") if key.startswith("text.") else key: value for key, value in state.items()}
    resnet = "visual.layer1.0.conv1.weight" in state
    check_axes(source, state, _AXES | (_RESNET_AXES if resnet else _VIT_AXES))
    text_width = state["token_embedding.weight"].shape[1]

    tower: Weights | None = None
    if resnet:
        width, patch = state["visual.layer1.0.conv1.weight"].shape[0], RESNET_STRIDE
        image = patch * math.isqrt(state["visual.attnpool.positional_embedding"].shape[0] - 1)
        vision = TowerSizes(width, 0, max(1, width * 32 // vision_head), 0, "relu")
        tower = {key.removeprefix("visual."): value for key, value in state.items() if key.startswith("visual.")}
        state = {key: value for key, value in state.items() if not key.startswith("visual.")}
    else:
        width, patch = state["visual.conv1.weight"].shape[0], state["visual.conv1.weight"].shape[-1]
        image = patch * math.isqrt(state["visual.positional_embedding"].shape[0] - 1)
        vision = _sizes(state, "visual.transformer.resblocks.", width, max(1, width // vision_head), quick_gelu)
    return Checkpoint(
        source=source,
        text=_sizes(state, "transformer.resblocks.", text_width, text_heads or max(1, text_width // 64), quick_gelu),
        vision=vision,
        vocabulary=state["token_embedding.weight"].shape[0],
        positions=state["positional_embedding"].shape[0],
        embedding=state["text_projection"].shape[-1],
        image=image,
        patch=patch,
        eos=None,
        preprocess=Preprocess(image, image, crop_rounding="even"),
        state=floats(_renamed(state)),
        resnet=None if tower is None else floats(tower),
    )


_AXES = {  # of the weights whose shapes give the sizes
    "token_embedding.weight": 2,
    "positional_embedding": 2,
    "text_projection": 2,
    "transformer.resblocks.0.mlp.c_fc.weight": 2,
}
_VIT_AXES = {
    "visual.conv1.weight": 4,
    "visual.positional_embedding": 2,
    "visual.proj": 2,
    "visual.transformer.resblocks.0.mlp.c_fc.weight": 2,
}
_RESNET_AXES = {"visual.layer1.0.conv1.weight": 4, "visual.attnpool.positional_embedding": 2}
RESNET_STRIDE = 32  # pixels per position of a ResNet's attention
_RENAMED = {
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "logit_scale": "logit_scale",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_TRANSPOSED = {"text_projection": "text_projection.weight", "visual.proj": "visual_projection.weight"}
_IN_BLOCK = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_TOWERS = {"transformer.resblocks.": "text_model", "visual.transformer.resblocks.": "vision_model"}


def _renamed(state: Weights) -> Weights:
    out: Weights = {}
    for key, value in state.items():
        if key in _RENAMED:
            out[_RENAMED[key]] = value
        elif key in _TRANSPOSED:
            out[_TRANSPOSED[key]] = value.T.contiguous()
        else:
            prefix = next((p for p in _TOWERS if key.startswith(p)), None)
            if prefix is None:
                continue  # for example the sizes stored in OpenAI's archives
            number, _, part = key.removeprefix(prefix).partition(".")
            at = f"{_TOWERS[prefix]}.encoder.layers.{number}"
            if part.startswith("attn.in_proj_"):
                kind = part.removeprefix("attn.in_proj_")
                for name, third in zip(
                    ("q_proj", "k_proj", "v_proj"), value.reshape(value.shape or (1,)).chunk(3), strict=False
                ):
                    out[f"{at}.self_attn.{name}.{kind}"] = third.clone()
            else:
                stem, _, kind = part.rpartition(".")
                if stem in _IN_BLOCK:
                    out[f"{at}.{_IN_BLOCK[stem]}.{kind}"] = value
    return out
