"""How near the text tower is to CLIP's own, whose vectors of COCO-Stuff's 171 names are public (GitHub ZiqinZhou66/ZegCLIP).

For judging only: training never reads these vectors. Two groups of names are compared: those that no training text mentions
(kept_out.py), and the others of plain words. All intervals are 95 %, by bootstrap: over names for cosines, over photos for answers.

* cosine: between our vector and CLIP's of "a photo of a NAME";
* centred cosine: the same after each side's mean over all 171 names was subtracted from it. A vector that all texts share
  changes no answer, so this is the fairer one;
* agreement: the share of photos for which the group's name nearest to the photo is the same by both; the photos are
  ImageNet's sample photos, which are never trained on;
* chance: the agreement to be expected if the two answered independently of each other, each as often as it does.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from training import photos
from training.kept_out import KEPT_OUT, follows_rule
from training.package_photos import images_in_turns, package_data
from training.repository import Repository
from training.vocabulary import cifar100_names, load_vocabulary
from unsee.models.fast.embedded import load_mini
from unsee.models.features import FeatureCache

VECTORS = "configs/_base_/datasets/text_embedding/coco_single.npy"
NAMES = "configs/_base_/datasets/dataloader/coco_stuff.py"
TEMPLATE = "a photo of a {}"
DRAWS = 2000
COCO = 80
"""The first names of the list are COCO's objects."""

Array = NDArray[np.float32]


def clip_vectors(sources: Path) -> tuple[tuple[str, ...], Array]:
    """COCO-Stuff's names and CLIP ViT-B/16's text vectors of them (171, 512), of length 1."""
    repository = Repository(sources / "zegclip")
    listed = re.search(r"CLASSES = (\(.*?\))", repository.text(NAMES), re.DOTALL)
    if listed is None:
        raise ValueError(f"{NAMES} has no CLASSES")
    folder, _, file = VECTORS.rpartition("/")
    content = repository.read(repository.files(folder)[file])
    vectors: Array = np.load(io.BytesIO(content), allow_pickle=False).astype(np.float32)
    return tuple(ast.literal_eval(listed.group(1))), vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def check_rule(sources: Path) -> None:
    """Refuses a list of kept-out names that is not what its rule gives."""
    vocabulary = load_vocabulary(sources, photos.cub200_names(sources))
    labelled = {*photos.CIFAR10_NAMES, *cifar100_names(sources), *photos.cub200_names(sources)}
    labelled |= {vocabulary.names[i] for i in vocabulary.imagenet}
    if follows_rule(clip_vectors(sources)[0], sorted(labelled)) != KEPT_OUT:
        raise ValueError("the kept-out names are not those of the rule; were sources changed?")


def near(folder: Path, sources: Path, cache: Path | None, limit: int | None = None) -> dict[str, object]:
    """Compare a model folder with CLIP's vectors, on at most `limit` photos."""
    check_rule(sources)
    names, theirs = clip_vectors(sources)
    model = load_mini(FeatureCache(cache) if cache else None, folder, str(folder))
    with torch.inference_mode():
        ours = model.texts([TEMPLATE.format(name) for name in names]).numpy()
    data = package_data("imagenet-six", sources)
    if data is None:
        raise FileNotFoundError("ImageNet's sample photos are missing; run: python -m training data")
    features = model.bind(images_in_turns(data, limit), ["photo"]).features.numpy()
    plain = [re.fullmatch("[a-z ]+", name) is not None for name in names]
    groups = {
        "kept out": [i for i, name in enumerate(names) if name in KEPT_OUT],
        "others": [i for i, name in enumerate(names) if plain[i] and name not in KEPT_OUT],
    }
    found: dict[str, object] = {"photos": len(features)}
    return found | {what: compared(ours, theirs, features, rows) for what, rows in groups.items()}


def compared(ours: Array, theirs: Array, features: Array, rows: list[int]) -> dict[str, object]:
    """The measures of one group of names: [value, low, high] each."""
    cosines = (ours * theirs).sum(1)[rows]
    centred = _cosines(ours - ours.mean(0), theirs - theirs.mean(0))[rows]
    mine, clips = ((features @ side[rows].T).argmax(1) for side in (ours, theirs))
    shares = [np.bincount(answers, minlength=len(rows)) / len(answers) for answers in (mine, clips)]
    return {
        "names": len(rows),
        "cosine": _with_interval(cosines),
        "centred cosine": _with_interval(centred),
        "agreement": _with_interval((mine == clips).astype(np.float32)),
        "chance": round(float(shares[0] @ shares[1]), 4),
    }


def recognised(sources: Path, encode: Callable[[Image.Image], Array]) -> tuple[int, int]:
    """How many ImageNet sample photos of COCO's objects CLIP's own text vectors name right, and how many there are.

    A check of our preprocessing: it needs the image tower and CLIP's vectors only.
    """
    names, theirs = clip_vectors(sources)
    whole = photos.imagenet_samples(sources)
    called = {key: key.removesuffix(".JPEG").split("_", 1)[1].replace("_", " ").lower() for key in whole.keys}
    rows = [i for i, key in enumerate(whole.keys) if called[key] in names[:COCO]]
    answers = (np.stack([encode(whole.picture(i)) for i in rows]) @ theirs[:COCO].T).argmax(1)
    right = sum(names[answer] == called[whole.keys[i]] for answer, i in zip(answers, rows, strict=True))
    return right, len(rows)


def _cosines(a: Array, b: Array) -> Array:
    found: Array = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return found


def _with_interval(values: Array) -> list[float]:
    """The mean, and the middle 95 % of the means of DRAWS bootstrap samples."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(1)
    return [round(float(x), 4) for x in (values.mean(), *np.quantile(means, (0.025, 0.975)))]
