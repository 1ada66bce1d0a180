"""Images in one folder per class: a user's own, split on disk or by seed, and the listing of any such folder.

A file is known by its suffix; listing opens none, and a million of them take seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from unsee.data.data_set import Data
from unsee.data.images import SUFFIXES, FileSource, Images, labelled
from unsee.errors import DataError, InputError
from unsee.seeds import stream

TRAIN, TEST = ("train", "training"), ("test", "val", "valid", "validation")


def load_folder(root: Path, *, seed: int = 0) -> Data:
    """`train/<class>/*` and `test/<class>/*`; or `<class>/*`, halved by seed."""
    train, test = _find_part(root, TRAIN), _find_part(root, TEST)
    if train is not None and test is not None:
        folders = sorted({name for part in (train, test) for name in class_folders(root / part)})
        return Data(str(root), read_classes(root, train, folders), read_classes(root, test, folders))
    if train is not None or test is not None:
        raise DataError(f"{root}: {_half_a_split(root, train, test)}")
    return Data(str(root), *_halve(read_classes(root, "", class_folders(root)), seed), split_seed=seed)


def read_classes(
    root: Path, part: str, folders: Sequence[str], names: Sequence[str] | None = None, deep: bool = False
) -> Images:
    """The images of `<root>/<part>/<class>/`, class by class in the order of the folders given.

    names: what the classes are called, else their folders' names with spaces for underscores. deep: images may be in
    folders below the class's.
    """
    if not folders:
        raise DataError(f"{root / part}: holds no class folders; put the images into one folder per class")
    files: list[str] = []
    counts: list[int] = []
    for folder in folders:
        found = sorted(list_images(root, os.path.join(part, folder), deep))  # noqa: PTH118
        if not found:
            raise DataError(f"class {folder!r} has no images in {root / part}")
        files += found
        counts.append(len(found))
    labels = np.repeat(np.arange(len(folders)), counts)
    return labelled(FileSource(root, tuple(files)), labels, names or [spaced(folder) for folder in folders])


def official_folders(part: Path, names: Sequence[str]) -> list[str]:
    """The folder of each of these classes, in their order; refuses a class too few or too many."""
    found: dict[str, str] = {}
    for folder in class_folders(part):
        name = spaced(folder)
        if name not in names:
            raise DataError(f"{part}: the folder {folder!r} is none of the {len(names)} classes; move it away")
        if name in found:
            raise DataError(f"{part}: the folders {found[name]!r} and {folder!r} stand for one class; join them")
        found[name] = folder
    for name in names:
        if name not in found:
            raise DataError(f"{part}: the class {name!r} of {len(names)} has no folder")
    return [found[name] for name in names]


def class_folders(root: Path) -> list[str]:
    """Names of the folders in this one, sorted; hidden ones are left out."""
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError as error:
        raise DataError(f"{root}: {error.strerror}") from None


def list_images(root: Path, below: str, deep: bool = False) -> Iterator[str]:
    """Image files of a folder below root, relative to root, in no order; a folder that is not there has none."""
    prefix = below and below + os.sep  # joined by hand: path objects would cost more than the listing itself
    try:
        with os.scandir(root / below) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if deep:
                        yield from list_images(root, prefix + name, deep)
                elif os.path.splitext(name)[1].lower() in SUFFIXES:  # noqa: PTH122
                    yield prefix + name
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise DataError(f"{root / below}: {error.strerror}") from None


def spaced(name: str) -> str:
    """A folder's name as a class name: spaces for underscores."""
    return name.replace("_", " ")


def refuse_inside(data: Data, out: Path) -> None:
    """Raises InputError if a run folder is to be in the data's own folder, where it would be read as a class."""
    for part in (data.train, data.test):
        root = part.source.root if isinstance(part.source, FileSource) else Path()
        if root != Path() and out.resolve().is_relative_to(root.resolve()):
            runs = root.resolve().parent / "runs"
            better = runs if out.name == "runs" else runs / out.name.lstrip("-")
            raise InputError(
                f"{out} is inside the data, {root}, which a run must not change; name another place, such as "
                f"--out {better}"
            )


def _find_part(root: Path, names: Sequence[str]) -> str | None:
    """The first folder of these names that holds class folders; one that holds images is a class of that name."""
    there = {name.lower(): name for name in class_folders(root)}
    return next((there[name] for name in names if name in there and class_folders(root / there[name])), None)


def _half_a_split(root: Path, train: str | None, test: str | None) -> str:
    """What is wrong with a folder that has only one of the two parts, and the ways out."""
    part, missing, names = (train, "test", TEST) if train is not None else (test, "train", TRAIN)
    other = next((name for name in class_folders(root) if name.lower() in names), None)
    if other is not None:
        return (
            f"{part}/ holds class folders, but {other}/ holds images: put these into {other}/<class>/. If both are "
            f"classes, move the folders out of {part}/"
        )
    return f"has {part}/ but no {missing}/ folder; if {part!r} is a class, move the folders out of it"


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
