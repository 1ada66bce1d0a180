"""Writes the shipped folder: config.json, text.safetensors, tokenizer.json, image.onnx (card.py adds card.json)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from training.bank import Bank
from training.encoders import Encoder
from training.fit import Model
from training.recipe import Recipe
from training.tokenizer import EOT, SOS


def export(
    folder: Path,
    model: Model,
    tokenizer: Tokenizer,
    bank: Bank,
    recipe: Recipe,
    seed: int,
    encoder: Encoder,
    sources: Path,
) -> None:
    """Write all files of the model but its card."""
    folder.mkdir(parents=True, exist_ok=True)
    tower = model.tower
    state = {k: v.detach().half().contiguous() if v.ndim else v.detach() for k, v in tower.state_dict().items()}
    save_file(state, str(folder / "text.safetensors"), metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    image = encoder.export(folder, sources, model, bank)
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
        "image": image,
        "training": {"seed": seed, **asdict(recipe)},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def difference_from_transformers(folder: Path, texts: list[str]) -> float:
    """Return the largest difference between the package's embeddings and those of Hugging Face's CLIP class."""
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    from unsee.models.fast.embedded import load_mini

    config = CLIPTextConfig(**json.loads((folder / "config.json").read_text()))
    theirs = CLIPTextModelWithProjection(config).float().eval()
    state = {k: v.float() for k, v in load_file(str(folder / "text.safetensors")).items() if k != "logit_scale"}
    lacking = theirs.load_state_dict(state, strict=False)
    if lacking.unexpected_keys or [k for k in lacking.missing_keys if not k.endswith("position_ids")]:
        raise ValueError(f"text.safetensors does not fit CLIPTextModelWithProjection: {lacking}")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    worst = 0.0
    with torch.no_grad():
        ours = load_mini(folder=folder).texts(texts)
        for text, own in zip(texts, ours, strict=True):
            found = theirs(input_ids=torch.tensor([tokenizer.encode(text).ids])).text_embeds[0]
            worst = max(worst, (torch.nn.functional.normalize(found, dim=-1) - own).abs().max().item())
    return worst
