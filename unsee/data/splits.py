"""The few-shot split: k images a class to tune on, k others to choose by; and halves of images that are not divided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsee.data.images import Images
from unsee.errors import DataError, ImageError, InputError
from unsee.seeds import stream
from unsee.types import Ints


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of the training images that a run uses, class by class."""

    train: Ints
    valid: Ints
    skipped: tuple[ImageError, ...] = ()


def few_shot_split(images: Images, shots: int, seed: int, skip_bad_images: bool = False) -> Split:
    """k + k images of each class, drawn by seed; other classes' images never change a class's draw."""
    if shots < 1:
        raise InputError(f"shots must be at least 1, not {shots}")
    train: list[int] = []
    valid: list[int] = []
    skipped: list[ImageError] = []
    order = np.argsort(images.labels, kind="stable")  # one sort: a scan a class takes long with a thousand classes
    bounds = np.searchsorted(images.labels[order], np.arange(len(images.class_names) + 1))
    for label, name in enumerate(images.class_names):
        rows = order[bounds[label] : bounds[label + 1]]
        if len(rows) < 2 * shots:
            raise DataError(
                f"class {name!r} has {len(rows)} images to tune on; {shots} shots need {2 * shots} "
                f"({shots} to tune, {shots} to validate). Add images or use --shots {max(1, len(rows) // 2)}"
            )
        drawn = stream(seed, "split", label).permutation(rows)
        if skip_bad_images:
            drawn, bad = _readable(images, drawn, 2 * shots)
            skipped += bad
            if len(drawn) < 2 * shots:
                raise DataError(f"class {name!r} has only {len(drawn)} readable images; {shots} shots need {2 * shots}")
        train += sorted(drawn[:shots].tolist())
        valid += sorted(drawn[shots : 2 * shots].tolist())
    return Split(np.array(train, dtype=np.int64), np.array(valid, dtype=np.int64), tuple(skipped))


def largest_shots(images: Images, at_most: int = 16, skip_bad_images: bool = False) -> int:
    """As many shots as the smallest class allows; skip_bad_images: counting readable images alone."""
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    shots = int(max(1, min(at_most, counts.min() // 2)))
    if skip_bad_images:
        for label in range(len(images.class_names)):
            good, _ = _readable(images, np.flatnonzero(images.labels == label), 2 * shots)
            shots = max(1, min(shots, len(good) // 2))
    return shots


def halve(images: Images, seed: int) -> tuple[Images, Images]:
    """Two halves of the images of each class, divided by seed: to tune on and to test on."""
    rng = stream(seed, "halves")
    train: list[int] = []
    test: list[int] = []
    for label in range(len(images.class_names)):
        rows = rng.permutation(np.flatnonzero(images.labels == label))
        if len(rows) < 3:
            raise DataError(f"class {images.class_names[label]!r} has {len(rows)} images; at least 3 are needed")
        cut = (len(rows) + 1) // 2
        train += rows[:cut].tolist()
        test += rows[cut:].tolist()
    return images.subset(sorted(train)), images.subset(sorted(test))


def _readable(images: Images, drawn: Ints, wanted: int) -> tuple[Ints, list[ImageError]]:
    good: list[int] = []
    bad: list[ImageError] = []
    for row in drawn:
        if len(good) == wanted:
            break
        try:
            images.read(int(row))
            good.append(int(row))
        except ImageError as error:
            bad.append(error)
    return np.array(good, dtype=np.int64), bad
