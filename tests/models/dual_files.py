"""Random dual encoders of every family that `transformers` knows, written by the library in their true forms."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram

from tests.tiny import NAMES
from unsee.models.library.dual_encoder import OLDEST

modern = pytest.mark.skipif(
    int(transformers.__version__.split(".")[0]) < OLDEST, reason=f"dual encoders need transformers {OLDEST}"
)

FAMILIES = ("siglip", "siglip2", "altclip", "chinese_clip", "align", "vision-text-dual-encoder", "metaclip_2")
LONG_NAME = "three toed woodpecker of the far north"
WORDS = sorted({*NAMES, *["a", "photo", "of", "the", "an", "old", "kind", "which", "is", "not"], *LONG_NAME.split()})
SIZES = {  # width, layers, heads, hidden, side of images
    "tiny": (32, 2, 4, 64, 32),
    "larger": (128, 4, 8, 512, 64),
}


def write(folder: Path, family: str, size: str = "tiny", seed: int = 0) -> Path:
    """A folder with model, tokenizer and image processor."""
    width, layers, heads, hidden, side = SIZES[size]
    text = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": hidden,
    }
    vision = text | {"image_size": side, "patch_size": 8}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MAKERS[family](text, vision, width)
        _spread(model, seed)
    model.eval().save_pretrained(folder)
    tokenizer(family).save_pretrained(folder)
    image_processor(family, side).save_pretrained(folder)
    return folder


def _spread(model: torch.nn.Module, seed: int) -> None:
    """Weights of a size that makes prompts matter, and biases that are not 0."""
    generator = torch.Generator().manual_seed(seed + 1)
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and "embedding" not in name:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5, generator=generator)
        elif weight.ndim == 4:
            torch.nn.init.normal_(weight, std=weight[0].numel() ** -0.5, generator=generator)
        elif name.endswith("bias") and weight.ndim == 1 and name != "logit_bias":
            torch.nn.init.normal_(weight, std=0.1, generator=generator)
        elif "token_embedding" in name or "word_embeddings" in name:
            torch.nn.init.normal_(weight, std=0.5, generator=generator)


def _siglip(text: dict[str, Any], vision: dict[str, Any], width: int) -> Any:
    from transformers import SiglipConfig, SiglipModel

    words = vocabulary_size("siglip")
    text = text | {"vocab_size": words, "max_position_embeddings": 16, "projection_size": width}
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision))
    model.logit_scale.data.fill_(2.3)
    model.logit_bias.data.fill_(-3.0)
    return model


def _siglip2(text: dict[str, Any], vision: dict[str, Any], width: int) -> Any:
    from transformers import Siglip2Config, Siglip2Model

    words = vocabulary_size("siglip2")
    text = text | {"vocab_size": words, "max_position_embeddings": 16, "projection_size": width}
    vision = {key: value for key, value in vision.items() if key != "image_size"} | {"num_patches": 16}
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config=vision))
    model.logit_scale.data.fill_(2.3)
    model.logit_bias.data.fill_(-3.0)
    return model


def _altclip(text: dict[str, Any], vision: dict[str, Any], width: int) -> Any:
    from transformers import AltCLIPConfig, AltCLIPModel

    text = text | {"vocab_size": vocabulary_size("altclip"), "max_position_embeddings": 40, "project_dim": width // 2}
    return AltCLIPModel(AltCLIPConfig(text_config=text, vision_config=vision, projection_dim=width))


def _chinese_clip(text: dict[str, Any], vision: dict[str, Any], width: int) -> Any:
    from transformers import ChineseCLIPConfig, ChineseCLIPModel

    text = text | {"vocab_size": vocabulary_size("chinese_clip"), "max_position_embeddings": 40}
    return ChineseCLIPModel(ChineseCLIPConfig(text_config=text, vision_config=vision, projection_dim=width))


def _align(text: dict[str, Any], vision: dict[str, Any], width: int) -> Any:
    from transformers import AlignConfig, AlignModel

    text = text | {"vocab_size": vocabulary_size("align"), "max_position_embeddings": 40}
    small = {
        "image_size": vision["image_size"],
        "hidden_dim": width,
        "in_channels": [32, 16],
        "out_channels": [16, width],
        "kernel_sizes": [3, 3],
        "strides": [1, 2],
        "num_block_repeats": [1, 1],
        "expand_ratios": [1, 2],
        "depthwise_padding": [],
        "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
        "depth_divisor": 8,
    }
    model = AlignModel(AlignConfig(text_config=text, vision_config=small, projection_dim=width))
    model.temperature.data.fill_(0.05)
    for module in model.modules():  # as after training: running statistics that are not the initial ones
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return model


def _paired(text: dict[str, Any], vision: dict[str, Any], width: int) -> Any:
    from transformers import BertConfig, VisionTextDualEncoderConfig, VisionTextDualEncoderModel, ViTConfig

    words = vocabulary_size("vision-text-dual-encoder")
    config = VisionTextDualEncoderConfig.from_vision_text_configs(
        ViTConfig(**vision), BertConfig(**text, vocab_size=words, max_position_embeddings=40), projection_dim=width
    )
    return VisionTextDualEncoderModel(config)


def _metaclip_2(text: dict[str, Any], vision: dict[str, Any], width: int) -> Any:
    from transformers import MetaClip2Config, MetaClip2Model

    text = text | {"vocab_size": vocabulary_size("metaclip_2"), "max_position_embeddings": 24, "eos_token_id": 2}
    return MetaClip2Model(MetaClip2Config(text_config=text, vision_config=vision, projection_dim=width))


MAKERS = {
    "siglip": _siglip,
    "siglip2": _siglip2,
    "altclip": _altclip,
    "chinese_clip": _chinese_clip,
    "align": _align,
    "vision-text-dual-encoder": _paired,
    "metaclip_2": _metaclip_2,
}


def tokenizer(family: str) -> Any:
    """A small vocabulary in the form that the family's checkpoints have."""
    from transformers import PreTrainedTokenizerFast

    if family in ("chinese_clip", "align", "vision-text-dual-encoder"):
        return _bert()
    if family == "siglip2":
        return _gemma()
    if family == "siglip":  # padded to 16, no mask, no start token
        made = _pieces(["<pad>", "<eos>", "<unk>"], start=None, end="<eos>", unknown=2)
        special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
        return PreTrainedTokenizerFast(
            tokenizer_object=made,
            model_max_length=16,
            padding_side="right",
            model_input_names=["input_ids"],
            **special,
        )
    made = _pieces(["<s>", "<pad>", "</s>", "<unk>"], start="<s>", end="</s>", unknown=3)
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=24, **special)


def _bert() -> Any:
    from tokenizers.models import WordPiece
    from transformers import PreTrainedTokenizerFast

    letters = [*"abcdefghijklmnopqrstuvwxyz."]
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(known))}
    made = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=24, **special)


def _gemma() -> Any:
    """Byte pairs in the class of SigLIP 2, as it is saved by itself: padding comes first, with a mask."""
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer
    from transformers import Siglip2Tokenizer

    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    trained = Tokenizer(BPE(unk_token="<unk>"))
    trained.normalizer, trained.pre_tokenizer = normalizers.Replace(" ", "▁"), pre_tokenizers.Metaspace()
    trainer = BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False, initial_alphabet=["."])
    trained.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    model = json.loads(trained.to_str())["model"]
    made = Siglip2Tokenizer(model["vocab"], [tuple(pair) for pair in model["merges"]], model_max_length=16)
    made._tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return made


def _pieces(special: list[str], start: str | None, end: str, unknown: int) -> Tokenizer:
    """Sentence pieces: known words, and letters for the others."""
    pieces = [*special, *(f"▁{word}" for word in WORDS), "▁", *"abcdefghijklmnopqrstuvwxyz."]
    made = Tokenizer(Unigram([(piece, -float(i > 3 + len(WORDS)) * 9 - 1) for i, piece in enumerate(pieces)], unknown))
    made.normalizer, made.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Metaspace()
    template = f"$A {end}" if start is None else f"{start} $A {end}"
    ids = [(token, pieces.index(token)) for token in (start, end) if token is not None]
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return made


@cache
def vocabulary_size(family: str) -> int:
    """A few more than the tokenizer has, as published models have for alignment."""
    return len(tokenizer(family)) + 5


def image_processor(family: str, side: int) -> Any:
    """As the family's checkpoints have it, for small images."""
    square = {"height": side, "width": side}
    if family == "siglip2":
        return _pil("Siglip2ImageProcessor")(patch_size=8, max_num_patches=20)
    if family == "siglip":
        return _pil("SiglipImageProcessor")(size=square)
    if family == "align":
        return _pil("EfficientNetImageProcessor")(size=square, crop_size=square)
    if family == "chinese_clip":
        return _pil("ChineseCLIPImageProcessor")(size=square, crop_size=square)
    if family == "vision-text-dual-encoder":
        return _pil("ViTImageProcessor")(size=square)
    return _pil("CLIPImageProcessor")(size={"shortest_edge": side}, crop_size=square)


def _pil(name: str) -> Any:
    """The image processor that prepares with Pillow, under the name that this version of the library gives it."""
    import transformers

    return getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)


def pixels(n: int = 5) -> np.ndarray:
    """Images of one colour each, with some noise."""
    rng = np.random.default_rng(0)
    colours = rng.integers(40, 216, (n, 1, 1, 3))
    return (colours + rng.integers(-40, 40, (n, 42, 36, 3))).astype(np.uint8)
