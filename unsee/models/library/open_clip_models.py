"""OpenCLIP models beyond plain CLIP, run by `open_clip` where it is installed: ConvNeXt, EVA, MobileCLIP.

Only a folder's config and weights are used; `open_clip` builds the towers and fetches nothing. A text tower that is
CLIP's runs through the fast one; one that looks both ways (some MobileCLIPs) runs in `open_clip`, at its full length.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unsee.errors import MissingExtra, ModelError
from unsee.models.fast.checkpoint_record import Preprocess, read_json
from unsee.models.fast.clip import text_tower
from unsee.models.fast.open_clip import (
    OPEN_CLIP_CONFIG,
    find_weights,
    read_text_sizes,
    refuse_unusual_text,
    settings_to_preprocess,
)
from unsee.models.fast.tokenizers import find_tokenizer
from unsee.models.fast.vision import PixelTower
from unsee.models.fast.weights import Weights, floats, read_weights
from unsee.models.features import FeatureCache
from unsee.models.library.text_towers import LibraryTower, TokenLayout, place_contexts, token_table
from unsee.models.local import LocalModel, Tower

TEXT_PARTS = ("text_projection", "positional_embedding", "token_embedding.", "transformer.", "ln_final.")
SCALE_NAMES = ("logit_scale", "logit_bias")


def needs_open_clip(folder: Path) -> bool:
    """Whether a folder's towers are built by `open_clip`."""
    if not (folder / OPEN_CLIP_CONFIG).is_file():
        return False
    model = read_json(folder / OPEN_CLIP_CONFIG).get("model_cfg") or {}
    vision, text = model.get("vision_cfg") or {}, model.get("text_cfg") or {}
    return bool(vision.get("timm_model_name") or text.get("no_causal_mask"))


def load_open_clip(name: str, folder: Path, cache: FeatureCache | None, device: str, dtype: torch.dtype) -> LocalModel:
    """The OpenCLIP model in this folder; MissingExtra names the install line where `open_clip` is not there."""
    config = read_json(folder / OPEN_CLIP_CONFIG)
    cfg = dict(config["model_cfg"])
    text = dict(cfg.get("text_cfg") or {})
    usual = {key: value for key, value in text.items() if key != "no_causal_mask"}
    refuse_unusual_text(folder / OPEN_CLIP_CONFIG, usual)
    weights = floats(read_weights(find_weights(folder)))
    model = _build(folder, cfg, weights)
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(False)
    how = settings_to_preprocess(folder / OPEN_CLIP_CONFIG, config.get("preprocess_cfg") or {}, _side(cfg, folder))
    encoder = OpenClipVision(model.visual, how, json.dumps(cfg.get("vision_cfg"), sort_keys=True), device, dtype)
    tower = _text(folder, cfg, text, model, weights, device, dtype)
    tokenizer = find_tokenizer(None, tower.tokens.shape[0])
    scale, bias = float(weights["logit_scale"]), weights.get("logit_bias")
    return LocalModel(
        name,
        tower,
        tokenizer,
        encoder,
        math.exp(scale),
        cache,
        reads_highest=tower.causal,
        logit_bias=None if bias is None else float(bias),
    )


def _build(folder: Path, cfg: Mapping[str, Any], weights: Weights) -> Any:
    """`open_clip`'s model with exactly these weights."""
    try:
        import open_clip
    except ImportError:
        raise MissingExtra("open_clip_torch", "open-clip") from None
    custom = bool(cfg.get("custom_text"))
    parts = {key: value for key, value in cfg.items() if key != "custom_text"}
    parts["vision_cfg"] = dict(cfg.get("vision_cfg") or {}) | {"timm_model_pretrained": False}  # nothing is fetched
    try:
        with torch.random.fork_rng():
            model = (open_clip.CustomTextCLIP if custom else open_clip.CLIP)(**parts)
    except Exception as error:  # timm and open_clip raise all types on a config that is not theirs
        raise ModelError(f"{folder / OPEN_CLIP_CONFIG}: open_clip cannot build it ({_line(error)})") from None
    if "logit_bias" in weights and model.logit_bias is None:
        raise ModelError(f"{folder}: has a logit_bias, but its config does not say init_logit_bias")
    try:
        model.load_state_dict(_named(weights, custom))
    except RuntimeError as error:  # on many lines
        raise ModelError(f"{folder}: its weights do not fit ({str(error).splitlines()[-1].strip()[:200]})") from None
    return model


def _named(weights: Weights, custom: bool) -> Weights:
    """Weights under the names of the class that holds them: text parts are below `text.` in one of the two."""
    bare = {key.removeprefix("text."): value for key, value in weights.items()}
    return {f"text.{key}" if custom and key.startswith(TEXT_PARTS) else key: value for key, value in bare.items()}


def _side(cfg: Mapping[str, Any], folder: Path) -> int:
    side = (cfg.get("vision_cfg") or {}).get("image_size", 224)
    if not isinstance(side, int):
        raise ModelError(f"{folder / OPEN_CLIP_CONFIG}: vision_cfg.image_size is {side!r}; it must be one number")
    return side


def _text(
    folder: Path,
    cfg: Mapping[str, Any],
    text: Mapping[str, Any],
    model: Any,
    weights: Weights,
    device: str,
    dtype: torch.dtype,
) -> Tower:
    if not text.get("no_causal_mask"):
        state, sizes = read_text_sizes(
            str(folder), _named(weights, False), bool(cfg.get("quick_gelu")), text.get("heads")
        )
        return text_tower(state, sizes, device, dtype)
    half = copy.copy(model)
    half._modules = {key: part for key, part in model._modules.items() if key != "visual"}
    half._parameters = {key: weight for key, weight in model._parameters.items() if key not in SCALE_NAMES}
    asked = TextHalf(half)
    table = token_table(asked)
    place_contexts(table)
    limit, width = int(text.get("context_length", 77)), table.embedding_dim
    layout = TokenLayout(limit, placeholder=1, pad=0)  # OpenCLIP pads with 0; any id below the end token's may stand in
    return LibraryTower(asked, table, layout, json.dumps(dict(text), sort_keys=True), 4 * (8 + 8) * width)


class TextHalf(torch.nn.Module):
    """The text half of an `open_clip` model, asked as `transformers`' are."""

    def __init__(self, half: Any) -> None:
        super().__init__()
        self.text = half

    def get_text_features(self, input_ids: Tensor) -> Tensor:
        found: Tensor = self.text.encode_text(input_ids)
        return found


class OpenClipVision(PixelTower):
    """An image tower that `open_clip` built."""

    def __init__(self, model: torch.nn.Module, how: Preprocess, recipe: str, device: str, dtype: torch.dtype) -> None:
        weights = {key: weight.float() for key, weight in model.state_dict().items()}
        super().__init__(model, how, f"open_clip {recipe}", weights, device, dtype)


def _line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
