"""All training photos as principal components of their features, with labels, captions and colours.

Held out for choosing: CIFAR-10's data_batch_5, every tenth CIFAR-100 training photo, Flickr8k's dev and test photos.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training import features, photos
from training.image_graph import STAGES, load_backbone
from training.vocabulary import Vocabulary

COMPONENTS = 640
WHITENING = 0.5
"""Power of the standard deviation that each component is divided by; 1 would be full whitening."""
GUESS = 0.6
"""Least confidence of the encoder's own ImageNet classifier for a captioned photo to be used as labelled."""


@dataclass(frozen=True)
class Labelled:
    """Labelled photos of one source."""

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Bank:
    """Everything that training and choosing read."""

    photos: Tensor  # (n, COMPONENTS), or the features themselves
    colours: NDArray[np.float32]  # (n, COLOURS)
    labelled: dict[str, Labelled]
    mirrored: dict[str, list[Labelled]]  # second views of some of them
    captioned: NDArray[np.int64]  # rows of photos with captions
    captions: list[list[str]]
    held_out: dict[str, Labelled]
    dev: NDArray[np.int64]  # rows of held-out photos with captions
    dev_captions: list[list[str]]
    mean: Tensor | None  # (FEATURES,)
    components: (
        Tensor | None
    )  # (COMPONENTS, FEATURES), whitening and scale included; None where features stay as they are
    dev_name: str = "flickr8k dev"


def load_bank(sources: Path, cache: Path, vocabulary: Vocabulary) -> Bank:
    """Read all features that are in the cache and reduce them."""
    names = ["cifar100", *(f"cifar10-{s}" for s in features.CIFAR10_SHEETS), "flickr8k"]
    names += ["imagenet-val", "imagenet-samples", "coco", "tiny-imagenet"]
    sets = cached(names, cache)
    mean, components = _principal(sets, cache)
    sets |= cached([f"{name}-mirrored" for name in names], cache)
    reduced = _reduced(sets, cache, mean, components)
    starts = dict(zip(sets, np.cumsum([0, *(len(s.keys) for s in sets.values())])[:-1], strict=True))
    number = {name: i for i, name in enumerate(vocabulary.names)}

    def labelled(name: str, labels: list[int], keep: NDArray[np.bool_] | None = None) -> Labelled:
        rows = starts[name] + np.arange(len(labels))
        chosen = np.ones(len(labels), dtype=np.bool_) if keep is None else keep
        return Labelled(rows[chosen], np.array(labels, dtype=np.int64)[chosen])

    cifar100 = [number[key.split("/")[0].replace("_", " ")] for key in sets["cifar100"].keys]
    tenth = np.arange(len(cifar100)) % 10 == 0
    sheets = {n: labelled(n, [number[k] for k in s.keys]) for n, s in sets.items() if n.startswith("cifar10-")}
    held_sheet = sheets.pop(f"cifar10-{features.HELD_SHEET}")
    views = [sheets.pop(name) for name in list(sheets) if name.endswith("-mirrored")]
    mirrored = {"cifar10": views}
    if "cifar100-mirrored" in sets:
        mirrored["cifar100"] = [labelled("cifar100-mirrored", cifar100, ~tenth)]
    identities = {identity: i for i, identity in enumerate(photos.imagenet_ids(sources))}
    val = [int(vocabulary.imagenet[int(key.split("/")[0])]) for key in sets["imagenet-val"].keys]
    samples = [int(vocabulary.imagenet[identities[key.split("_")[0]]]) for key in sets["imagenet-samples"].keys]
    found = {
        "cifar100": labelled("cifar100", cifar100, ~tenth),
        "cifar10": joined(list(sheets.values())),
        "imagenet": joined([labelled("imagenet-val", val), labelled("imagenet-samples", samples)]),
    }
    if "tiny-imagenet" in sets:
        tiny = [key.split("/")[0] for key in sets["tiny-imagenet"].keys]
        known = np.array([identity in identities for identity in tiny])
        labels = [int(vocabulary.imagenet[identities[i]]) if i in identities else 0 for i in tiny]
        found["tiny-imagenet"] = labelled("tiny-imagenet", labels, known)
    for name in ("coco", "flickr8k"):
        if name in sets:
            classes, sure = _guesses(sets[name])
            found[f"{name}-guessed"] = labelled(name, [int(vocabulary.imagenet[c]) for c in classes], sure)

    captioned, texts = [], []
    flickr = photos.flickr8k_captions(sources)
    where = {key: starts["flickr8k"] + i for i, key in enumerate(sets["flickr8k"].keys)}
    dev = [key for key in photos.flickr8k_split(sources, "dev") if key in where]
    for key in photos.flickr8k_split(sources, "train"):
        if key in where:
            captioned.append(where[key])
            texts.append(flickr[key])
    if "coco" in sets:
        coco, objects = photos.coco_captions(sources), photos.coco_objects(sources)
        for i, key in enumerate(sets["coco"].keys):
            captioned.append(starts["coco"] + i)
            texts.append(coco[key] + [f"a photo of {listed(objects[key])}." for _ in (0,) if key in objects])
    train_rows = set(captioned)
    if "flickr8k-guessed" in found:  # dev and test photos stay unseen
        guessed = found["flickr8k-guessed"]
        keep = np.array([row in train_rows for row in guessed.rows])
        found["flickr8k-guessed"] = Labelled(guessed.rows[keep], guessed.labels[keep])
    colours = np.concatenate([np.asarray(s.colours, dtype=np.float32) for s in sets.values()])
    return Bank(
        photos=reduced,
        colours=colours,
        labelled={name: part for name, part in found.items() if len(part.rows)},
        mirrored=mirrored,
        captioned=np.array(captioned),
        captions=texts,
        held_out={"cifar10": held_sheet, "cifar100": labelled("cifar100", cifar100, tenth)},
        dev=np.array([where[key] for key in dev]),
        dev_captions=[flickr[key] for key in dev],
        mean=mean,
        components=components,
    )


def cached(names: list[str], cache: Path) -> dict[str, features.Encoded]:
    return {name: features.load(name, cache) for name in names if (cache / f"{name}.json").exists()}


def joined(parts: list[Labelled]) -> Labelled:
    return Labelled(np.concatenate([p.rows for p in parts]), np.concatenate([p.labels for p in parts]))


def listed(names: list[str]) -> str:
    named = [f"a {name}" for name in names[:5]]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _principal(sets: dict[str, features.Encoded], cache: Path) -> tuple[Tensor, Tensor]:
    """Mean and components of a fixed sample of all sets, kept in the cache: they must not change between runs."""
    path = cache / "components.pt"
    if not path.exists():
        rng = np.random.default_rng(0)
        sample = []
        for encoded in sets.values():
            rows = np.sort(rng.choice(len(encoded.keys), min(len(encoded.keys), 2500), replace=False))
            sample.append(torch.from_numpy(np.asarray(encoded.features[rows], dtype=np.float32)))
        x = torch.cat(sample)
        mean, scale = x.mean(0), 1 / (x.std(0) + 1e-2)
        z = (x - mean) * scale
        values, vectors = torch.linalg.eigh(z.T @ z / len(z))
        values, vectors = values[-COMPONENTS:].flip(0), vectors[:, -COMPONENTS:].flip(1)
        components = (vectors / values.sqrt() ** WHITENING).T * scale
        length = ((x - mean) @ components.T).norm(dim=1).mean()
        components = (components * (COMPONENTS**0.5 / length)).half().float()  # as they will be shipped
        torch.save({"mean": mean, "components": components}, path)
    found = torch.load(path, weights_only=True)
    return found["mean"], found["components"]


def _reduced(sets: dict[str, features.Encoded], cache: Path, mean: Tensor, components: Tensor) -> Tensor:
    """The components of every photo, kept beside the features."""
    parts = []
    for name, encoded in sets.items():
        path = cache / f"{name}-{len(encoded.keys)}-reduced.npy"
        if not path.exists():
            rows = np.empty((len(encoded.keys), len(components)), dtype=np.float16)
            for start in range(0, len(rows), 4096):
                x = torch.from_numpy(np.asarray(encoded.features[start : start + 4096], dtype=np.float32))
                rows[start : start + 4096] = ((x - mean) @ components.T).numpy()
            np.save(path, rows)
        parts.append(torch.from_numpy(np.load(path)).float())
    return torch.cat(parts)


def _guesses(encoded: features.Encoded) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What the encoder's own ImageNet classifier takes each photo for, and whether it is sure."""
    classifier = load_backbone()._fc
    classes, sure = [], []
    with torch.no_grad():
        for start in range(0, len(encoded.keys), 4096):
            head = torch.from_numpy(np.asarray(encoded.features[start : start + 4096, : STAGES[0]], dtype=np.float32))
            p, c = classifier(head).softmax(-1).max(-1)
            classes.append(c.numpy())
            sure.append((p > GUESS).numpy())
    return np.concatenate(classes), np.concatenate(sure)


def stream(*parts: int | str) -> np.random.Generator:
    """A random stream of its own for each purpose and step, so that a resumed run draws what an unbroken one would."""
    return np.random.default_rng([p if isinstance(p, int) else zlib.crc32(p.encode()) for p in parts])
