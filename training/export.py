"""Writes the shipped folder: config.json, text.safetensors, tokenizer.json, image.onnx, card.json."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from training.data import CLASS_NAMES
from training.image_graph import SIDE, save_image_graph
from training.image_side import Projection
from training.text_tower import TextSizes, TextTower
from training.tokenizer import EOT, SOS


def halved(tower: TextTower) -> TextTower:
    """Return the tower with its weights rounded to float16 and back: what the shipped file gives."""
    copy = TextTower(tower.sizes)
    copy.load_state_dict({k: v.half().float() if v.ndim else v for k, v in tower.state_dict().items()})
    return copy.eval().requires_grad_(False)


def export(
    folder: Path, tower: TextTower, tokenizer: Tokenizer, projection: Projection, facts: dict[str, object]
) -> None:
    """Write all files of the model but its card."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.half().contiguous() if v.ndim else v.float() for k, v in tower.state_dict().items()}
    save_file(state, str(folder / "text.safetensors"), metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    save_image_graph(folder / "image.onnx", {k: v.detach().numpy() for k, v in projection.state_dict().items()})
    config = {
        "model_type": "clip_text_model",
        "architectures": ["CLIPTextModelWithProjection"],
        **tower.sizes.as_dict(),
        "hidden_act": "quick_gelu",
        "attention_dropout": 0.0,
        "bos_token_id": tokenizer.token_to_id(SOS),
        "eos_token_id": tokenizer.token_to_id(EOT),
        "pad_token_id": tokenizer.token_to_id(EOT),
        "logit_scale": round(math.exp(tower.logit_scale.item()), 4),
        "torch_dtype": "float16",
        "image": {
            "file": "image.onnx",
            "input": "pixels",
            "output": "embeddings",
            "dtype": "uint8",
            "layout": "NHWC",
            "colour": "RGB",
            "side": SIDE,
            "resize": "squeeze to side x side, Pillow bicubic; no cropping",
            "scaling": "inside the graph: (x - 127) / 128",
        },
        "class_names": list(CLASS_NAMES),
        "training": facts,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_tower(folder: Path) -> TextTower:
    """Return the shipped text tower, computing in float32."""
    config = json.loads((folder / "config.json").read_text())
    sizes = TextSizes(**{name: config[name] for name in TextSizes.__dataclass_fields__})
    tower = TextTower(sizes)
    tower.load_state_dict({k: v.float() for k, v in load_file(str(folder / "text.safetensors")).items()})
    return tower.eval().requires_grad_(False)


def difference_from_transformers(folder: Path, texts: list[str]) -> float:
    """Return the largest difference between our embeddings and those of Hugging Face's CLIP class on the same file."""
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    from training.text_side import Reader

    config = CLIPTextConfig(**json.loads((folder / "config.json").read_text()))
    model = CLIPTextModelWithProjection(config).float().eval()
    state = {k: v.float() for k, v in load_file(str(folder / "text.safetensors")).items() if k != "logit_scale"}
    lacking = model.load_state_dict(state, strict=False)
    if lacking.unexpected_keys or [k for k in lacking.missing_keys if not k.endswith("position_ids")]:
        raise ValueError(f"text.safetensors does not fit CLIPTextModelWithProjection: {lacking}")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = Reader(tokenizer).read(load_tower(folder), texts)
    worst = 0.0
    for text, own in zip(texts, ours, strict=True):
        with torch.no_grad():
            theirs = model(input_ids=torch.tensor([tokenizer.encode(text).ids])).text_embeds[0]
        worst = max(worst, (torch.nn.functional.normalize(theirs, dim=-1) - own).abs().max().item())
    return worst
