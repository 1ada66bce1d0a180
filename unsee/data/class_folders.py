"""Images in one folder per class: a user's own, split on disk or by seed, and the listing of any such folder.

A file is known by its suffix; listing opens none, and a million of them take seconds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from unsee.data.data_set import Data
from unsee.data.formats import is_image, refuse_unreadable
from unsee.data.images import FileSource, Images, labelled
from unsee.data.label_names import rename
from unsee.data.splits import halve
from unsee.errors import DataError, InputError

TRAIN, TEST = ("train", "training"), ("test", "val", "valid", "validation")
HIDDEN = (".", "__MACOSX", "@eaDir")  # the latter two are left by macOS' archives and by network drives


def load_folder(root: Path, *, seed: int = 0, names: Mapping[str, str] | None = None) -> Data:
    """`train/<class>/*` and `test/<class>/*`; or `<class>/*`, halved by seed; both may be in one folder more.

    names: what folders are called; the others go by their own names. Folders in a class folder are part of the class.
    """
    inside = _unwrapped(root)
    top, given = root / inside, names or {}
    train, test = _find_part(top, TRAIN), _find_part(top, TEST)
    if train is None and test is None:
        images = _read_own(root, [inside], class_folders(top), given)
        return Data(str(root), *halve(images, seed), split_seed=seed, names=given)
    if train is None or test is None:
        raise DataError(f"{top}: {_half_a_split(top, train, test)}")
    validation = _find_part(top, TEST[1:]) if test.lower() == TEST[0] else None
    tuning = [train, *([validation] if validation is not None else [])]
    folders = sorted({name for part in (*tuning, test) for name in class_folders(top / part)})
    pool = _read_own(root, [os.path.join(inside, part) for part in tuning], folders, given)  # noqa: PTH118
    return Data(str(root), pool, _read_own(root, [os.path.join(inside, test)], folders, given), names=given)  # noqa: PTH118


def _read_own(root: Path, parts: Sequence[str], folders: Sequence[str], names: Mapping[str, str]) -> Images:
    """A user's own images: checked before any is opened."""
    first, *more = parts
    images = read_classes(root, first, folders, rename(folders, names, spaced), deep=True, more=more)
    check_classes(root / first, images)
    assert isinstance(images.source, FileSource)
    refuse_unreadable(images.source.files)
    return images


def read_classes(
    root: Path,
    part: str,
    folders: Sequence[str],
    names: Sequence[str] | None = None,
    deep: bool = False,
    more: Sequence[str] = (),
) -> Images:
    """The images of `<root>/<part>/<class>/`, class by class in the order of the folders given.

    names: what the classes are called, else their folders' names with spaces for underscores. deep: images may be in
    folders below the class's. more: further parts whose images join them.
    """
    if not folders:
        raise DataError(f"{root / part}: {_no_classes(root, part)}; put the images into one folder per class")
    files: list[str] = []
    counts: list[int] = []
    for folder in folders:
        found = [
            file
            for each in (part, *more)
            for file in sorted(list_images(root, os.path.join(each, folder), deep))  # noqa: PTH118
        ]
        if not found:
            raise DataError(f"class {folder!r} has no images in {root / part}{_other_files(root / part / folder)}")
        files += found
        counts.append(len(found))
    labels = np.repeat(np.arange(len(folders)), counts)
    return labelled(FileSource(root, tuple(files)), labels, names or [spaced(folder) for folder in folders])


def check_classes(where: Path, images: Images) -> None:
    """Refuses data of a single class: there would be nothing left to keep."""
    if len(images.class_names) < 2:
        raise DataError(f"{where}: has only one class, {images.class_names[0]!r}; at least two are needed")


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
            return sorted(entry.name for entry in entries if not entry.name.startswith(HIDDEN) and entry.is_dir())
    except OSError as error:
        raise DataError(f"{root}: {error.strerror}") from None


def list_images(root: Path, below: str, deep: bool = False) -> Iterator[str]:
    """Image files of a folder below root, relative to root, in no order; a folder that is not there has none."""
    prefix = below and below + os.sep  # joined by hand: path objects would cost more than the listing itself
    try:
        with os.scandir(root / below) as entries:
            for entry in entries:
                name = entry.name
                if name.startswith(HIDDEN):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if deep:
                        yield from list_images(root, prefix + name, deep)
                elif is_image(name):
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
    if Path(data.name).is_file():  # a list of images: what is beside it is not part of it
        return
    for part in (data.train, data.test):
        root = part.source.root if isinstance(part.source, FileSource) else Path()
        if root != Path() and out.resolve().is_relative_to(root.resolve()):
            runs = root.resolve().parent / "runs"
            better = runs if out.name == "runs" else runs / out.name.lstrip("-")
            raise InputError(
                f"{out} is inside the data, {root}, which a run must not change; name another place, such as "
                f"--out {better}"
            )


def _unwrapped(root: Path) -> str:
    """Where the data begins below root: past folders that hold nothing but one folder of folders."""
    inside = ""
    while True:
        folders = class_folders(root / inside)
        if len(folders) != 1 or folders[0].lower() in TRAIN + TEST or any(list_images(root, inside)):
            return inside
        below = os.path.join(inside, folders[0])  # noqa: PTH118
        if not class_folders(root / below) or any(list_images(root, below)):
            return inside
        inside = below


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
    return (
        f"has {part}/ but no {missing}/ folder; if {part!r} is a class, move the folders out of it. To divide its "
        f"images in halves, name {root / str(part)}"
    )


def _no_classes(root: Path, part: str) -> str:
    loose = sum(1 for _ in list_images(root, part))
    return "holds no class folders" + (f", but {loose} images" if loose else "")


def _other_files(folder: Path) -> str:
    """What a folder without images holds instead, in words."""
    endings = Counter(path.suffix.lower() for path in folder.glob("*.*") if path.is_file())
    if not endings:
        return ""
    (ending, count), *_ = endings.most_common(1)
    return f"; it holds {count} {ending} files, which are not read"
