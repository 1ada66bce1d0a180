"""The last measurement, on files as shipped and through the package: test sets, touched once.

Forgetting on the test sets is measured with the package's own command: `unsee compare …` (see README.md).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training import photos
from training.judge import SALADS, TEMPLATES
from training.package_photos import PACKAGE, images_in_turns, package_data
from training.photos import PhotoSet
from unsee.models.fast.embedded import load_mini
from unsee.models.features import FeatureCache
from unsee.models.local import LocalBound, LocalModel


def measure(folder: Path, sources: Path, cache: Path | None) -> dict[str, object]:
    """Accuracy over templates, word salad and random contexts; retrieval on Flickr8k."""
    model = load_mini(FeatureCache(cache) if cache else None, folder, str(folder))
    found: dict[str, object] = {}
    for name, photo_set in (
        ("CIFAR-10 test", photos.cifar10(sources, "test_batch")),
        ("CIFAR-100 test", photos.cifar100_test(sources)),
    ):
        found[name] = _classification(model, photo_set)
    found["Flickr8k test"] = _retrieval(model, sources)
    return found


def measure_package(folder: Path, sources: Path, cache: Path | None, limit: int | None) -> dict[str, object]:
    """The same on the test sets as the package reads them, or on `limit` photos of each."""
    model = load_mini(FeatureCache(cache) if cache else None, folder, str(folder))
    found: dict[str, object] = {}
    for name in PACKAGE:
        data = package_data(name, sources)
        if data is not None:
            images = images_in_turns(data, limit)
            bound = model.bind(images, data.class_names)
            found[f"{name} test"] = {"photos": len(images), **_answers(bound, images.labels)}
    return found


def _classification(model: LocalModel, photo_set: PhotoSet) -> dict[str, object]:
    labels = [key.split("/")[0] for key in photo_set.keys]
    names = sorted(set(labels))
    truth = np.array([names.index(label) for label in labels])
    pictures = [photo_set.picture(i).convert("RGB") for i in range(len(labels))]
    return _answers(model.bind(pictures, names), truth)


def _answers(bound: LocalBound, truth: NDArray[np.int64]) -> dict[str, object]:
    def accuracy(answers: NDArray[np.float32]) -> float:
        return round(100 * float((answers.argmax(-1) == truth).mean()), 2)

    found: dict[str, object] = {"templates": {t: accuracy(bound.zero_shot(t)) for t in TEMPLATES}}
    found["word salad"] = {t: accuracy(bound.zero_shot(t)) for t in SALADS}
    found["random contexts"] = _random_contexts(bound, truth)
    return found


def _random_contexts(bound: LocalBound, truth: NDArray[np.int64], draws: int = 50) -> dict[str, float]:
    """Accuracy under four contexts mean + A z with z ~ N(0, 1) of 100 numbers and A ~ N(0, s)."""
    card = bound.model.card
    if card.token_mean is None or card.token_std is None:
        raise ValueError("the model publishes no token statistics")
    rng = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        basis = card.token_std * rng.normal(size=(100, card.width))
        contexts = card.token_mean + rng.normal(size=(4, 100)) @ basis
        found.append(100 * float((bound.confidences(contexts[None])[0].argmax(-1) == truth).mean()))
    return {"mean": round(float(np.mean(found)), 1), "lowest": round(min(found), 1), "highest": round(max(found), 1)}


def _retrieval(model: LocalModel, sources: Path) -> dict[str, float]:
    photo_set, captions = photos.flickr8k(sources), photos.flickr8k_captions(sources)
    places = {key: i for i, key in enumerate(photo_set.keys)}
    keys = [key for key in photos.flickr8k_split(sources, "test") if key in places]
    bound = model.bind([photo_set.picture(places[key]).convert("RGB") for key in keys], ["photo"])
    owner = torch.tensor([i for i, key in enumerate(keys) for _ in captions[key]])
    with torch.inference_mode():
        texts = model.texts([" ".join(text.split()[:24]) for key in keys for text in captions[key]])
        similar = bound.features @ texts.T
    found = {"photos": len(keys)}
    for k in (1, 10):
        hit = (owner[similar.topk(k, 1).indices] == torch.arange(len(keys))[:, None]).any(1)
        found[f"photo to caption R@{k}"] = round(100 * hit.float().mean().item(), 1)
        hit = (similar.T.topk(k, 1).indices == owner[:, None]).any(1)
        found[f"caption to photo R@{k}"] = round(100 * hit.float().mean().item(), 1)
    return found
