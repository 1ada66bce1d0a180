"""CLIP checkpoints in the forms people have, read into one: Hugging Face's names and sizes.

| form          | what is on disk                                                                |
|---------------|--------------------------------------------------------------------------------|
| Hugging Face  | folder or hub id: config.json, model.safetensors (or shards, or pytorch_model.bin) |
| OpenAI        | one .pt: a TorchScript archive or a state dict                                 |
| OpenCLIP      | folder: open_clip_config.json and weights; or `ARCHITECTURE:weights-file`       |

Nothing in a file is ever executed: weights come from safetensors, from `torch.load(weights_only=True)`,
or, for TorchScript, from a reader that knows tensors only: `torch.jit.load` would run the archive's own
`__setstate__`, which can write files. open_clip is not imported.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unsee.errors import ModelError, unknown
from unsee.models.weights import State, floats, read_weights

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True)
class TowerSizes:
    """What is needed to read one tower's weights."""

    width: int
    layers: int
    heads: int
    hidden: int
    activation: str  # "gelu" or "quick_gelu"
    eps: float = 1e-5


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes pixels for the model."""

    resize: int  # the side in pixels that `mode` makes of the image
    crop: int
    mean: tuple[float, ...] = OPENAI_MEAN
    std: tuple[float, ...] = OPENAI_STD
    mode: str = "shortest"  # the shortest side is resized, then cropped; "longest": then padded; "squash": both sides
    interpolation: str = "bicubic"  # or "bilinear"
    fill: int = 0  # grey level of the padding
    crop_rounding: str = "down"  # where the crop starts at half a pixel: "down" (Hugging Face) or "even" (torchvision)


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
    eos: int | None  # id that is read; None: the highest id of a text (old Hugging Face configs, OpenAI)
    preprocess: Preprocess
    state: State = field(repr=False)
    folder: Path | None = None  # where tokenizer files may lie


# Vision head width, and what the weights must show: vision width and patch size.
ARCHITECTURES: dict[str, tuple[int, int, int]] = {
    "ViT-B-32": (64, 768, 32),
    "ViT-B-16": (64, 768, 16),
    "ViT-L-14": (64, 1024, 14),
    "ViT-L-14-336": (64, 1024, 14),
    "ViT-H-14": (80, 1280, 14),
    "ViT-g-14": (88, 1408, 14),
    "ViT-bigG-14": (104, 1664, 14),
}


def read_checkpoint(name: str) -> Checkpoint:
    """The checkpoint of this name; ModelError says the file and the first thing wrong with it."""
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "open_clip_config.json").is_file():
            found = _open_clip_folder(path)
        elif (path / "config.json").is_file():
            found = _hugging_face(path)
        else:
            raise ModelError(f"{path}: no config.json or open_clip_config.json in this folder")
    elif path.is_file():
        if path.suffix in (".bin", ".safetensors"):  # OpenCLIP's: the weights do not say which activation they want
            raise ModelError(f"{path}: say its architecture, as in ViT-B-16:{path.name}")
        found = _openai(path)
    elif ":" in name and (parts := name.split(":", 1))[0] in _architecture_names():
        found = _open_clip_file(parts[0], Path(parts[1]).expanduser())
    elif ":" in name and name.lower().startswith("vit"):
        raise ModelError(unknown("architecture", name.split(":", 1)[0], _architecture_names()))
    elif path.suffix or name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelError(f"model {name!r}: no such file or folder")
    else:
        found = _hugging_face(_from_hub(name))
    check(found)
    return found


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
    for part, sizes in (("text", found.text), ("vision", found.vision)):
        if min(sizes.layers, sizes.heads) < 1:
            raise ModelError(f"{found.source}: {part} has {sizes.layers} layers of {sizes.heads} heads")
        if sizes.width % sizes.heads:
            raise ModelError(f"{found.source}: {part} width {sizes.width} does not divide into {sizes.heads} heads")
        if sizes.activation not in ("gelu", "quick_gelu"):
            raise ModelError(f"{found.source}: {part} activation {sizes.activation!r} is not gelu or quick_gelu")


def is_buffer(key: str) -> bool:
    """Whether this is no weight but a table that older files keep beside the weights."""
    return key.endswith(".position_ids")


def expected(c: Checkpoint) -> Iterable[tuple[str, tuple[int, ...]]]:
    """Names and shapes of every weight."""
    yield "logit_scale", ()
    yield "text_projection.weight", (c.embedding, c.text.width)
    yield "visual_projection.weight", (c.embedding, c.vision.width)
    yield "text_model.embeddings.token_embedding.weight", (c.vocabulary, c.text.width)
    yield "text_model.embeddings.position_embedding.weight", (c.positions, c.text.width)
    yield "vision_model.embeddings.class_embedding", (c.vision.width,)
    yield "vision_model.embeddings.patch_embedding.weight", (c.vision.width, 3, c.patch, c.patch)
    yield "vision_model.embeddings.position_embedding.weight", ((c.image // c.patch) ** 2 + 1, c.vision.width)
    norms = {"text_model.final_layer_norm": c.text, "vision_model.pre_layrnorm": c.vision}
    for name, sizes in (norms | {"vision_model.post_layernorm": c.vision}).items():
        for kind in ("weight", "bias"):
            yield f"{name}.{kind}", (sizes.width,)
    for tower, sizes in (("text_model", c.text), ("vision_model", c.vision)):
        w, h = sizes.width, sizes.hidden
        for i in range(sizes.layers):
            at = f"{tower}.encoder.layers.{i}"
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                yield f"{at}.self_attn.{part}.weight", (w, w)
                yield f"{at}.self_attn.{part}.bias", (w,)
            for part, shape in (("layer_norm1", (w,)), ("layer_norm2", (w,)), ("mlp.fc1", (h, w)), ("mlp.fc2", (w, h))):
                yield f"{at}.{part}.weight", shape
                yield f"{at}.{part}.bias", shape[:1]


def _hugging_face(folder: Path) -> Checkpoint:
    config = _json(folder / "config.json")
    kind = config.get("model_type")
    if kind != "clip":
        raise ModelError(f"{folder / 'config.json'}: model_type is {kind!r}, not 'clip'")
    text, vision = config.get("text_config") or {}, config.get("vision_config") or {}
    try:
        image = int(vision.get("image_size", 224))
        eos = int(text.get("eos_token_id", 49407))
        return Checkpoint(
            source=str(folder),
            text=_hf_sizes(text, 512, 12, 8, 2048),
            vision=_hf_sizes(vision, 768, 12, 12, 3072),
            vocabulary=int(text.get("vocab_size", 49408)),
            positions=int(text.get("max_position_embeddings", 77)),
            embedding=int(config.get("projection_dim", 512)),
            image=image,
            patch=int(vision.get("patch_size", 32)),
            eos=None if eos == 2 else eos,
            preprocess=_hf_preprocess(folder, image),
            state=floats(_hf_weights(folder)),
            folder=folder,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder}: config.json or preprocessor_config.json is not a CLIP's ({error})") from None


def _hf_sizes(config: Mapping[str, Any], width: int, layers: int, heads: int, hidden: int) -> TowerSizes:
    return TowerSizes(
        width=int(config.get("hidden_size", width)),
        layers=int(config.get("num_hidden_layers", layers)),
        heads=int(config.get("num_attention_heads", heads)),
        hidden=int(config.get("intermediate_size", hidden)),
        activation=str(config.get("hidden_act", "quick_gelu")),
        eps=float(config.get("layer_norm_eps", 1e-5)),
    )


def _hf_preprocess(folder: Path, image: int) -> Preprocess:
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return Preprocess(image, image)
    config = _json(path)
    size, crop = config.get("size", image), config.get("crop_size", image)
    if isinstance(size, dict):
        size = size.get("shortest_edge") or size.get("height") or image
    if isinstance(crop, dict):
        crop = crop.get("height", image)
    mean, std = config.get("image_mean", OPENAI_MEAN), config.get("image_std", OPENAI_STD)
    return Preprocess(int(size), int(crop), tuple(mean), tuple(std))


def _hf_weights(folder: Path) -> State:
    for stem in ("model.safetensors", "pytorch_model.bin"):
        if (folder / stem).is_file():
            return read_weights(folder / stem)
        index = folder / f"{stem}.index.json"
        if index.is_file():
            shards = sorted(set(_json(index).get("weight_map", {}).values()))
            return {key: value for shard in shards for key, value in read_weights(folder / shard).items()}
    raise ModelError(f"{folder}: no model.safetensors or pytorch_model.bin")


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.txt", "model*.safetensors", "pytorch_model*.bin", "open_clip*.safetensors"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # the hub client raises many kinds; all mean the same to the user
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"model {name!r} is no local path and could not be fetched from the hub: {reason}") from None


def _openai(path: Path) -> Checkpoint:
    """OpenAI's names; sizes are read off the weights."""
    return _from_openai_names(str(path), read_weights(path), quick_gelu=True, vision_head=64, text_heads=None)


def _open_clip_folder(folder: Path) -> Checkpoint:
    config = _json(folder / "open_clip_config.json")
    model = config.get("model_cfg", {})
    vision, text = model.get("vision_cfg", {}), model.get("text_cfg", {})
    _refuse_unusual(folder / "open_clip_config.json", vision, text)
    for stem in ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin"):
        if (folder / stem).is_file():
            weights = folder / stem
            break
    else:
        raise ModelError(f"{folder}: no open_clip_model.safetensors or open_clip_pytorch_model.bin")
    found = _from_openai_names(
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
    return replace(found, preprocess=_open_clip_preprocess(folder / "open_clip_config.json", settings, found.image))


def _open_clip_preprocess(path: Path, settings: Mapping[str, Any], image: int) -> Preprocess:
    """OpenCLIP's `preprocess_cfg`; its `size` is left out, as OpenCLIP takes the model's image size."""

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
    if interpolation == "random":  # of the training images; OpenCLIP itself evaluates with bicubic
        interpolation = "bicubic"
    return Preprocess(image, image, mean, std, mode, interpolation, fill, crop_rounding="even")


def _open_clip_file(architecture: str, path: Path) -> Checkpoint:
    if not path.is_file():
        raise ModelError(f"model {path}: no such file")
    head, width, patch = ARCHITECTURES[architecture.removesuffix("-quickgelu")]
    found = _from_openai_names(
        str(path), read_weights(path), architecture.endswith("-quickgelu"), vision_head=head, text_heads=None
    )
    if (found.vision.width, found.patch) != (width, patch):
        raise ModelError(
            f"{path}: not a {architecture}: its vision width and patch are {found.vision.width} and {found.patch}, "
            f"not {width} and {patch}"
        )
    return found


def _architecture_names() -> list[str]:
    return [name + suffix for name in ARCHITECTURES for suffix in ("", "-quickgelu")]


def _refuse_unusual(path: Path, vision: Mapping[str, Any], text: Mapping[str, Any]) -> None:
    """Parts of OpenCLIP that are not CLIP's architecture."""
    unusual = {
        "vision_cfg.timm_model_name": vision.get("timm_model_name"),
        "vision_cfg.attentional_pool": vision.get("attentional_pool"),
        "vision_cfg.no_ln_pre": vision.get("no_ln_pre"),
        "vision_cfg.ls_init_value": vision.get("ls_init_value"),
        "vision_cfg.layers": vision.get("layers") if isinstance(vision.get("layers"), list) else None,
        "vision_cfg.pool_type": vision.get("pool_type") if vision.get("pool_type") != "tok" else None,
        "text_cfg.hf_model_name": text.get("hf_model_name"),
        "text_cfg.hf_tokenizer_name": text.get("hf_tokenizer_name"),
        "text_cfg.no_causal_mask": text.get("no_causal_mask"),
        "text_cfg.embed_cls": text.get("embed_cls"),
        "text_cfg.ls_init_value": text.get("ls_init_value"),
        "text_cfg.pool_type": text.get("pool_type") if text.get("pool_type") != "argmax" else None,
    }
    for key, value in unusual.items():
        if value:
            raise ModelError(f"{path}: {key} = {value!r} is not plain CLIP with a ViT; it cannot be loaded")


def _from_openai_names(
    source: str,
    state: State,
    quick_gelu: bool,
    vision_head: int,
    text_heads: int | None,
) -> Checkpoint:
    """OpenAI's and OpenCLIP's weights under Hugging Face's names."""
    state = {key.removeprefix("text.") if key.startswith("text.") else key: value for key, value in state.items()}
    if "visual.layer1.0.conv1.weight" in state:
        raise ModelError(f"{source}: a CLIP with a ResNet image tower; only ViT models are supported")
    for key, axes in _AXES.items():
        if key not in state:
            raise ModelError(f"{source}: not a CLIP checkpoint: {key} is missing")
        if state[key].ndim != axes:
            raise ModelError(f"{source}: {key} has shape {tuple(state[key].shape)}, expected {axes} axes")
    vision_width, patch = state["visual.conv1.weight"].shape[0], state["visual.conv1.weight"].shape[-1]
    text_width = state["token_embedding.weight"].shape[1]
    image = patch * math.isqrt(state["visual.positional_embedding"].shape[0] - 1)
    activation = "quick_gelu" if quick_gelu else "gelu"

    def sizes(prefix: str, width: int, heads: int) -> TowerSizes:
        depth = len({key.split(".")[n] for key in state if key.startswith(prefix)}) if (n := prefix.count(".")) else 0
        hidden = state[f"{prefix}0.mlp.c_fc.weight"].shape[0]
        return TowerSizes(width, depth, heads, hidden, activation)

    return Checkpoint(
        source=source,
        text=sizes("transformer.resblocks.", text_width, text_heads or max(1, text_width // 64)),
        vision=sizes("visual.transformer.resblocks.", vision_width, max(1, vision_width // vision_head)),
        vocabulary=state["token_embedding.weight"].shape[0],
        positions=state["positional_embedding"].shape[0],
        embedding=state["text_projection"].shape[-1],
        image=image,
        patch=patch,
        eos=None,
        preprocess=Preprocess(image, image, crop_rounding="even"),
        state=floats(_renamed(state)),
    )


_AXES = {  # of the weights that sizes are read off
    "visual.conv1.weight": 4,
    "visual.positional_embedding": 2,
    "visual.proj": 2,
    "token_embedding.weight": 2,
    "positional_embedding": 2,
    "text_projection": 2,
    "transformer.resblocks.0.mlp.c_fc.weight": 2,
    "visual.transformer.resblocks.0.mlp.c_fc.weight": 2,
}
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
_TURNED = {"text_projection": "text_projection.weight", "visual.proj": "visual_projection.weight"}
_IN_BLOCK = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}
_TOWERS = {"transformer.resblocks.": "text_model", "visual.transformer.resblocks.": "vision_model"}


def _renamed(state: State) -> State:
    out: State = {}
    for key, value in state.items():
        if key in _RENAMED:
            out[_RENAMED[key]] = value
        elif key in _TURNED:
            out[_TURNED[key]] = value.T.contiguous()
        else:
            prefix = next((p for p in _TOWERS if key.startswith(p)), None)
            if prefix is None:
                continue  # sizes that OpenAI's archive keeps beside the weights
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


def _json(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(loaded, dict):
        raise ModelError(f"{path}: not a JSON object")
    return loaded
