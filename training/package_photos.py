"""Photos that the package reads too: the shots that its runs take, and the tests. It finds them encoded in its cache.

They are read from `data` in the sources, the package's data folder (data_folder.py fills it).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.bank import stream
from training.photos import PhotoSet
from unsee.data import NAMED, load_data
from unsee.data.class_names import in_prompt
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.data.splits import few_shot_split
from unsee.methods.presets import PAPER
from unsee.types import Ints

PACKAGE = {
    "imagenet-six": "imagenet",
    "cifar10-batch5": "cifar10",
    "cub200-half": "cub200",
    "cifar100-tenth": "cifar100",
}
"""The package's name of a data set, and what it is called in training; in the order of encoding."""
MORE = ("tiny30",)
"""Further sets of the package, encoded last; not used for choosing."""
SEEDS = (0, 1, 2)
"""Shots of these seeds are encoded."""
FOLDER = "data"


def package_data(name: str, sources: Path) -> Data | None:
    """A data set as the package reads it, if it is there."""
    folder = sources / FOLDER
    if NAMED[name].find(folder / NAMED[name].folder) is None:
        print(f"{folder / NAMED[name].folder} is missing: the photos of {name} are left out")
        return None
    return load_data(name, data_dir=folder)


def shot_photos(name: str, sources: Path) -> PhotoSet | None:
    """All photos that runs of SEEDS tune or validate on, by seed, and of each seed in turns."""
    data = package_data(name, sources)
    if data is None:
        return None
    splits = [few_shot_split(data.train, PAPER[name]["shots"], seed) for seed in SEEDS]
    parts = [np.concatenate([split.train, split.valid]) for split in splits]
    rows = dict.fromkeys(row for part in parts for row in _in_turns(part, data.train.labels).tolist())
    return _photo_set(f"{PACKAGE[name]}-held" if name in PACKAGE else f"{name}-shots", data.train.subset([*rows]), name)


def photos_to_test(name: str, sources: Path) -> PhotoSet | None:
    """All photos to test on, in turns."""
    data = package_data(name, sources)
    return None if data is None else _photo_set(f"{PACKAGE.get(name, name)}-test", images_in_turns(data), "")


def images_in_turns(data: Data, limit: int | None = None) -> Images:
    """The photos to test on: one of every class, a second one, and so on, in a random order that never changes."""
    order = stream("order", data.name, "test").permutation(len(data.test))
    return data.test.subset(_in_turns(order, data.test.labels)[:limit])


def _in_turns(rows: Ints, labels: Ints) -> Ints:
    """These rows, reordered: the first one of every class, the second ones, and so on."""
    own, place = labels[rows], np.zeros(len(rows), dtype=np.int64)
    for label in np.unique(own):
        of_class = np.flatnonzero(own == label)
        place[of_class] = np.arange(len(of_class))
    return rows[np.argsort(place, kind="stable")]


def _photo_set(called: str, images: Images, held: str) -> PhotoSet:
    """Keys are class/name; what training holds out is not `to_test`."""
    names = [in_prompt(name).lower() for name in images.class_names]
    keys = tuple(
        f"{names[label]}/{images.source.key(int(i))}" for label, i in zip(images.labels, images.index, strict=True)
    )
    return PhotoSet(called, keys, images.read, images.digest, to_test=held not in PACKAGE)
