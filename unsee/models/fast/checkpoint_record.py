"""The record that every format of CLIP checkpoint is read into, and the check that it is complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unsee.errors import ModelError
from unsee.models.fast.weights import Weights

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class TowerSizes:
    """The sizes of one transformer tower."""

    width: int
    layers: int
    heads: int
    hidden: int
    activation: str  # "gelu" or "quick_gelu"
    eps: float = 1e-5


@dataclass(frozen=True)
class Preprocess:
    """How images are prepared for the model."""

    resize: int  # in pixels; `mode` says of which side
    crop: int
    mean: tuple[float, ...] = OPENAI_MEAN
    std: tuple[float, ...] = OPENAI_STD
    mode: str = "shortest"  # and crop the rest; "longest" and pad the rest; "squash": both sides; "none": only crop
    interpolation: str = "bicubic"  # or another of Pillow's filters
    fill: int = 0  # grey level of the padding
    crop_rounding: str = "down"  # of a crop that starts at half a pixel: "down" (Hugging Face), "even" (torchvision)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A CLIP model as read from disk, under Hugging Face's names."""

    source: str
    text: TowerSizes
    vision: TowerSizes
    vocabulary: int
    positions: int
    embedding: int
    image: int
    patch: int
    eos: int | None  # the token whose output is the text embedding; None: the highest id (OpenAI, old configs)
    preprocess: Preprocess
    state: Weights = field(repr=False)
    folder: Path | None = None  # that may have tokenizer files
    resnet: Weights | None = field(default=None, repr=False)  # of an image tower that is a ResNet, under OpenAI's names
    assumed: str = ""  # what the file does not say, and was taken for granted
    tokenizer: str = "clip"  # in the form CLIP has it; or "library": whatever the folder's config names


def check(found: Checkpoint) -> None:
    """Refuses a checkpoint whose towers lack a weight, have one too many, or have one of the wrong shape."""
    if found.patch < 1:
        raise ModelError(f"{found.source}: vision patch size is {found.patch}")
    wanted = dict(expected(found))
    for key, shape in wanted.items():
        if key not in found.state:
            raise ModelError(f"{found.source}: not a CLIP checkpoint: {key} is missing")
        have = tuple(found.state[key].shape)
        if have != shape:
            raise ModelError(f"{found.source}: {key} has shape {have}, expected {shape}")
    for key in sorted(found.state.keys() - wanted.keys()):
        if key.startswith(("text_", "vision_", "visual_")) and not is_buffer(key):
            tower = "text" if key.startswith("text_") else "image"
            raise ModelError(f"{found.source}: {key} does not belong to this CLIP {tower} tower")
    parts = {"text": found.text} | ({"vision": found.vision} if found.resnet is None else {})
    for part, sizes in parts.items():
        if min(sizes.layers, sizes.heads) < 1:
            raise ModelError(f"{found.source}: {part} has {sizes.layers} layers of {sizes.heads} heads")
        if sizes.width % sizes.heads:
            raise ModelError(f"{found.source}: {part} width {sizes.width} does not divide into {sizes.heads} heads")
        if sizes.activation not in ("gelu", "quick_gelu"):
            raise ModelError(f"{found.source}: {part} activation {sizes.activation!r} is not gelu or quick_gelu")


def is_buffer(key: str) -> bool:
    """Whether this is a constant table that older files store with the weights."""
    return key.endswith(".position_ids")


def expected(c: Checkpoint) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Names and shapes of every weight."""
    yield "logit_scale", ()
    yield "text_projection.weight", (c.embedding, c.text.width)
    yield "text_model.embeddings.token_embedding.weight", (c.vocabulary, c.text.width)
    yield "text_model.embeddings.position_embedding.weight", (c.positions, c.text.width)
    norms, towers = {"text_model.final_layer_norm": c.text}, {"text_model": c.text}
    if c.resnet is None:  # a ResNet checks its weights itself, as it loads them
        yield "visual_projection.weight", (c.embedding, c.vision.width)
        yield "vision_model.embeddings.class_embedding", (c.vision.width,)
        yield "vision_model.embeddings.patch_embedding.weight", (c.vision.width, 3, c.patch, c.patch)
        yield "vision_model.embeddings.position_embedding.weight", ((c.image // c.patch) ** 2 + 1, c.vision.width)
        norms |= {"vision_model.pre_layrnorm": c.vision, "vision_model.post_layernorm": c.vision}
        towers["vision_model"] = c.vision
    for name, sizes in norms.items():
        for kind in ("weight", "bias"):
            yield f"{name}.{kind}", (sizes.width,)
    for tower, sizes in towers.items():
        w, h = sizes.width, sizes.hidden
        for i in range(sizes.layers):
            at = f"{tower}.encoder.layers.{i}"
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                yield f"{at}.self_attn.{part}.weight", (w, w)
                yield f"{at}.self_attn.{part}.bias", (w,)
            for part, shape in (("layer_norm1", (w,)), ("layer_norm2", (w,)), ("mlp.fc1", (h, w)), ("mlp.fc2", (w, h))):
                yield f"{at}.{part}.weight", shape
                yield f"{at}.{part}.bias", shape[:1]


def read_json(path: Path) -> Mapping[str, Any]:
    """A configuration file: one JSON object."""
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(loaded, dict):
        raise ModelError(f"{path}: not a JSON object")
    return loaded
