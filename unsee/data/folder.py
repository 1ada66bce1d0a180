"""A user's own images: folders of classes, split on disk or by seed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unsee.errors import DataError
from unsee.images import SUFFIXES, FileSource, Images, labelled
from unsee.records import Data
from unsee.seeds import stream

TRAIN, TEST = ("train", "training"), ("test", "val", "valid", "validation")


def load_folder(root: Path, *, seed: int = 0) -> Data:
    """`train/<class>/*` and `test/<class>/*`; or `<class>/*`, halved by seed."""
    parts = {entry.name.lower(): entry for entry in _folders(root)}
    train = next((parts[name] for name in TRAIN if name in parts), None)
    test = next((parts[name] for name in TEST if name in parts), None)
    if train is not None and test is not None:
        names = sorted({entry.name for part in (train, test) for entry in _folders(part)})
        return Data(str(root), _read(root, train, names), _read(root, test, names))
    if train is not None or test is not None:
        missing = "test" if test is None else "train"
        raise DataError(f"{root}: has {(train or test).name}/ but no {missing}/ folder")  # type: ignore[union-attr]
    images = _read(root, root, sorted(entry.name for entry in _folders(root)))
    return Data(str(root), *_halve(images, seed))


def _read(root: Path, part: Path, folders: list[str]) -> Images:
    if not folders:
        raise DataError(f"{part}: holds no class folders; images belong into one folder a class")
    files: list[str] = []
    labels: list[int] = []
    for label, folder in enumerate(folders):
        found = sorted(_images(part / folder, root))
        if not found:
            raise DataError(f"class {folder!r} has no images in {part}")
        files += found
        labels += [label] * len(found)
    names = [folder.replace("_", " ") for folder in folders]
    return labelled(FileSource(root, tuple(files)), labels, names)


def _halve(images: Images, seed: int) -> tuple[Images, Images]:
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


def _folders(root: Path) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"{root}: {error.strerror}") from None
    for entry in entries:
        if entry.is_dir() and not entry.name.startswith("."):
            yield Path(entry.path)


def _images(folder: Path, root: Path) -> Iterator[str]:
    """Image files of a class, relative to root; a file is known by its ending and not opened."""
    if not folder.is_dir():
        return
    for entry in os.scandir(folder):
        if Path(entry.name).suffix.lower() in SUFFIXES and not entry.name.startswith("."):
            yield os.path.relpath(entry.path, root)
