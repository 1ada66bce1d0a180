"""Loads dual encoders that `transformers` knows, in the library's own classes: SigLIP, AltCLIP and others.

The library builds the model, reads the weights, tokenizes and prepares images; only the contexts are put in by us. No
code in a folder is ever run: a config that names any, or an attention kernel to be fetched, is refused before the
library sees it.
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from unsee.errors import MissingExtra, ModelError
from unsee.models.fast.checkpoint_record import is_buffer, read_json
from unsee.models.features import FeatureCache
from unsee.models.library.image_towers import LibraryVision
from unsee.models.library.siglip_text import siglip_features
from unsee.models.library.text_towers import LibraryTower, TokenLayout, place_contexts, token_table, whole_forward
from unsee.models.library.token_tables import LibraryTokenizer
from unsee.models.local import LocalModel

# Whether the text tower looks at its padding, so that every text has the length it was trained with.
DUAL_ENCODERS = {
    "siglip": True,  # SigLIP, and SigLIP 2 at a fixed resolution
    "siglip2": True,  # SigLIP 2 that takes images as they are (NaFlex)
    "altclip": False,
    "chinese_clip": False,
    "align": False,
    "vision-text-dual-encoder": False,
}
# Text towers of a vision-text-dual-encoder: they mask padding and give one pooled output.
PAIRED_TEXT = ("bert", "roberta", "xlm-roberta", "camembert", "clip_text_model")
PREPARING = ("preprocessor_config.json", "processor_config.json")
CONFIGS = ("config.json", "tokenizer_config.json", *PREPARING)
OLDEST = 5  # release of the library whose own classes are used
VOLATILE = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
FOREIGN = ("auto_map", "quantization_config", "attn_implementation", "_attn_implementation", "custom_pipelines")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A checkpoint as the library loads it."""

    model: Any
    tokenizer: Any | None
    image_processor: Any | None


def model_type(folder: Path) -> str:
    """The architecture that a folder's config.json names, "" without one."""
    path = folder / "config.json"
    return str(read_json(path).get("model_type", "")) if path.is_file() else ""


def load_dual_encoder(
    name: str, folder: Path, cache: FeatureCache | None, device: str, dtype: torch.dtype
) -> LocalModel:
    """The dual encoder in this folder as a local model."""
    loaded = load_with_library(folder, device, dtype)
    return as_local(name, folder, loaded, cache, device, dtype)


def load_with_library(
    folder: Path, device: str = "cpu", dtype: torch.dtype = torch.float32, whole: bool = True
) -> Loaded:
    """Model, tokenizer and image processor by the library alone; what does not fit is one line.

    Not whole: the last two may be missing, as they are from some folders of CLIP, and are None then.
    """
    refuse_code(folder)
    kind = model_type(folder)
    if (folder / "adapter_config.json").is_file():
        raise ModelError(f"{folder}: an adapter of another model; merge it into that model and save the whole first")
    try:
        return _load(folder, device, dtype, whole)
    except (MemoryError, ModelError, MissingExtra):
        raise
    except Exception as error:  # the library and the readers below it raise all types
        raise _one_line(folder, kind, error) from None


def load_tokenizer(folder: Path) -> LibraryTokenizer:
    """The tokenizer in a folder, by the library alone."""
    from transformers import AutoTokenizer

    try:
        with quiet():
            found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises all types
        raise _one_line(folder, "a tokenizer", error) from None
    return LibraryTokenizer(found, str(folder))


def _one_line(folder: Path, what: str, error: Exception) -> ModelError | MissingExtra:
    reason = " ".join(str(error).split()) or type(error).__name__
    if "sentencepiece" in reason.lower() or "protobuf" in reason.lower():
        return MissingExtra("sentencepiece", "sentencepiece")
    return ModelError(f"{folder}: cannot be loaded as {what} ({reason[:200]})")


def refuse_code(folder: Path) -> None:
    """Raises ModelError if a config names code of its own, quantized weights or an attention kernel."""
    for path in (folder / name for name in CONFIGS):
        if path.is_file():
            for key, value in _pairs(read_json(path)):
                if key in FOREIGN and value:
                    raise ModelError(f"{path}: has {key!r}, which asks for code beyond the library's; it was not run")
    text = read_json(folder / "config.json").get("text_config") or {}
    if model_type(folder) == "vision-text-dual-encoder" and text.get("model_type") not in PAIRED_TEXT:
        known = ", ".join(PAIRED_TEXT)
        raise ModelError(f"{folder}: its text tower is {text.get('model_type')!r}; those that can be used: {known}")


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value of a JSON tree."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key), inner
            yield from _pairs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _pairs(inner)


def _load(folder: Path, device: str, dtype: torch.dtype, whole: bool) -> Loaded:
    import transformers
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    if int(transformers.__version__.split(".")[0]) < OLDEST:
        have = transformers.__version__
        raise ModelError(f"{folder}: needs transformers {OLDEST} or newer, not {have}; pip install -U transformers")
    safe = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = images = None
    with quiet():
        model, info = AutoModel.from_pretrained(
            folder, **safe, dtype=dtype, weights_only=True, output_loading_info=True, ignore_mismatched_sizes=True
        )
        if whole or any((folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
            tokenizer = AutoTokenizer.from_pretrained(folder, **safe)
        if whole or any((folder / name).is_file() for name in PREPARING):
            # Pillow prepares the images, whether or not torchvision is there: answers must not depend on it.
            images = AutoImageProcessor.from_pretrained(folder, **safe, backend="pil")
    _check_fit(folder, info)
    return Loaded(model.to(device).eval().requires_grad_(False), tokenizer, images)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's progress bars and its warnings about formats; what matters is checked by us."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _check_fit(folder: Path, info: Mapping[str, Any]) -> None:
    """Weights must fit: the library fills what is missing with random numbers, and says so in a log only."""
    for kind, said in (("missing_keys", "is missing"), ("mismatched_keys", "has another shape")):
        wrong = sorted(str(key if isinstance(key, str) else key[0]) for key in info.get(kind, ()))
        wrong = [key for key in wrong if not is_buffer(key)]
        if wrong:
            raise ModelError(f"{folder}: {wrong[0]} {said}" + (f", and {len(wrong) - 1} more" if wrong[1:] else ""))
    surplus = sorted(key for key in info.get("unexpected_keys", ()) if not is_buffer(key) and ".pooler." not in key)
    if surplus:  # a pooler is left out by towers that are read at their first token
        raise ModelError(f"{folder}: {surplus[0]} does not belong to this model")


def as_local(
    name: str, folder: Path, loaded: Loaded, cache: FeatureCache | None, device: str, dtype: torch.dtype
) -> LocalModel:
    """The two halves of a loaded model, behind the common interface."""
    config = loaded.model.config
    text_config = config.text_config
    tokens = LibraryTokenizer(loaded.tokenizer, str(folder))
    text, vision = _half(loaded.model, images=False), _half(loaded.model, images=True)
    table = token_table(text)
    if tokens.size > table.num_embeddings:
        raise ModelError(f"{folder}: the tokenizer has {tokens.size} tokens, the model {table.num_embeddings}")
    place_contexts(table)
    layout = _layout(tokens, text_config, DUAL_ENCODERS[config.model_type], str(folder))
    hidden = int(getattr(text_config, "intermediate_size", 4 * table.embedding_dim))
    row_bytes = 4 * (2 * hidden + 8 * table.embedding_dim)  # as in the fast tower: hidden rows twice; x, qkv, copies
    read = siglip_features if config.model_type in ("siglip", "siglip2") else whole_forward
    tower = LibraryTower(text, table, layout, f"{_said(folder, 'text_config')}|{layout}", row_bytes, read)
    encoder = LibraryVision(vision, loaded.image_processor, _said(folder, "vision_config"), device, dtype)
    if config.model_type == "align":  # its scores are divided by a temperature
        scale = 1 / float(loaded.model.temperature)
    else:
        scale = math.exp(float(loaded.model.logit_scale))
    bias = getattr(loaded.model, "logit_bias", None)
    model = LocalModel(name, tower, tokens, encoder, scale, cache, logit_bias=None if bias is None else float(bias))
    _try(model, folder)
    return model


def _layout(tokens: LibraryTokenizer, config: Any, padded: bool, source: str) -> TokenLayout:
    positions = int(config.max_position_embeddings)
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "altclip_text_model"):
        positions -= int(config.pad_token_id) + 1  # these number their positions from after the padding's id
    limit = min(positions, tokens.longest)
    if padded and tokens.pad is None:
        raise ModelError(f"{source}: its text tower needs padding, and its tokenizer has no padding token")
    pad = tokens.pad if padded else None
    return TokenLayout(limit, tokens.placeholder(), pad, tokens.left, tokens.masked and padded)


def _said(folder: Path, part: str) -> str:
    """What the files say of a tower, besides its weights; library versions and paths do not change answers."""
    config = read_json(folder / "config.json")
    kept = {key: value for key, value in dict(config.get(part) or {}).items() if key not in VOLATILE}
    files = [folder / name for name in PREPARING if part == "vision_config"]
    prepared = [read_json(path) for path in files if path.is_file()]
    return json.dumps([config.get("model_type"), kept, *prepared], sort_keys=True)


def _half(model: Any, images: bool) -> Any:
    """One tower with its projection, in a shallow copy of the model, so that it can be hashed and trained alone."""
    half = copy.copy(model)
    half._modules = {name: part for name, part in model._modules.items() if name.startswith("vis") == images}
    half._parameters = {}  # the scale and the bias belong to neither
    return half


def _try(model: LocalModel, folder: Path) -> None:
    """One image and one text through the model: a pair of towers that do not fit is found now, not in a run."""
    from PIL import Image

    try:
        image = model.encoder.encode([model.encoder.prepare(Image.new("RGB", (48, 40)))])
        with torch.inference_mode():
            text = model.texts(["a"])
    except Exception as error:  # whatever the library raises
        raise ModelError(f"{folder}: its towers do not run ({' '.join(str(error).split())[:200]})") from None
    if image.shape[1] != text.shape[1]:
        raise ModelError(f"{folder}: image embeddings are {image.shape[1]} wide, text embeddings {text.shape[1]}")
