"""The models that can be used, one line each, and the embedded model's card. Imports nothing heavy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

EMBEDDED = Path(__file__).parent.parent / "assets" / "mini"


@dataclass(frozen=True)
class ModelFamily:
    """One kind of model."""

    name: str
    write: str  # what to give as --model
    about: str


FAMILIES = (
    ModelFamily("embedded", "mini", "a small model in the package that knows 1,100 names (unsee models show mini)"),
    ModelFamily("Hugging Face CLIP", "openai/clip-vit-base-patch16", "a hub id, or a folder with its files"),
    ModelFamily("OpenAI CLIP", "ViT-B-16.pt", "a .pt file as OpenAI published it; nothing in it is executed"),
    ModelFamily("OpenCLIP", "FOLDER or ViT-B-16:weights.safetensors", "a folder with open_clip_config.json, or a file"),
    ModelFamily("served", "http://HOST:PORT", "a model that unsee serve answers for: confidences over HTTP"),
    ModelFamily("your own", "Python only", "any object with `card` and `bind`: see examples/own_service.py"),
)


def embedded_card() -> dict[str, object]:
    """The embedded model's card."""
    found: dict[str, object] = json.loads((EMBEDDED / "card.json").read_text(encoding="utf-8"))
    return found
