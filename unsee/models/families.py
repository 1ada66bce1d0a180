"""The models that can be used, one line each, and the embedded model's card. Imports nothing heavy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from unsee.errors import InputError, did_you_mean
from unsee.settings import PRECISIONS

EMBEDDED = Path(__file__).parent.parent / "assets" / "mini"


@dataclass(frozen=True)
class ModelFamily:
    """One kind of model."""

    name: str
    write: str  # what to give as --model
    about: str
    text: str  # how its text tower runs: "fast" (the exact fast tower), "generic" (the library's own), elsewhere
    tested: str  # against what; on random weights in the family's own form, unless it says otherwise


_FORM = "transformers"
_SIZES = "transformers, two sizes"
FAMILIES = (
    ModelFamily("embedded", "mini", "for research", "fast", "transformers"),
    ModelFamily("CLIP's image tower", "FOLDER", "see training/README.md", "fast", _FORM),
    ModelFamily("CLIP", "openai/clip-vit-base-patch16", "hub id or folder", "fast", _FORM),
    ModelFamily("MetaCLIP 2", "facebook/metaclip-2-worldwide-huge-quickgelu", "hub id or folder", "fast", _SIZES),
    ModelFamily("OpenAI CLIP", "ViT-B-16.pt", "a .pt as published", "fast", _FORM),
    ModelFamily("OpenAI CLIP, ResNets", "RN50.pt", "RN50 … RN50x64", "fast", "a reference of our own"),
    ModelFamily("CLIP, fine-tuned", "tuned.pt", "a saved state_dict", "fast", _FORM),
    ModelFamily("OpenCLIP", "FOLDER or ViT-B-16:weights.safetensors", "plain ViTs", "fast", _FORM),
    ModelFamily("OpenCLIP, timm towers", "FOLDER", "needs open_clip_torch", "fast", "open_clip"),
    ModelFamily("SigLIP, SigLIP 2", "google/siglip2-base-patch16-224", "NaFlex too", "generic", _SIZES),
    ModelFamily("AltCLIP", "BAAI/AltCLIP", "hub id or folder", "generic", _SIZES),
    ModelFamily("Chinese-CLIP", "OFA-Sys/chinese-clip-vit-base-patch16", "hub id or folder", "generic", _SIZES),
    ModelFamily("ALIGN", "kakaobrain/align-base", "hub id or folder", "generic", _SIZES),
    ModelFamily("VisionTextDualEncoder", "FOLDER", "LiT and the like", "generic", _SIZES),
    ModelFamily("served", "http://HOST:PORT", "of unsee serve", "served", "the model in this process"),
    ModelFamily("your own", "Python only", "examples/own_service.py", "yours", "–"),
)


def check_precision(dtype: str) -> None:
    """Refuses a precision that no model has."""
    if dtype not in PRECISIONS:
        raise InputError(f"dtype is one of {', '.join(PRECISIONS)}, not {dtype!r}")


def nearest_model(given: str) -> str:
    """A hint at the model that may be meant, for the end of a message."""
    return did_you_mean(given, [family.write for family in FAMILIES if " " not in family.write])


def embedded_card() -> dict[str, object]:
    """The embedded model's card."""
    found: dict[str, object] = json.loads((EMBEDDED / "card.json").read_text(encoding="utf-8"))
    return found
