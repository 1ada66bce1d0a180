"""CUB-200-2011: birds, listed by the index files of its archive, or split into class folders.

| file in CUB_200_2011/  | a line                                                                     |
|------------------------|----------------------------------------------------------------------------|
| classes.txt            | class number, folder: `1 001.Black_footed_Albatross`                       |
| images.txt             | image number, file below images/: `1 001.Black_footed_Albatross/…_18.jpg`  |
| image_class_labels.txt | image number, class number: `1 1`                                          |
| train_test_split.txt   | image number, 1 to train on or 0 to test on: `1 0`                         |

The index files must agree with each other; images are not opened, and one that is missing shows when it is read.
Copies without the index files have its official parts as `train/001.Black_footed_Albatross/*` and `test/…`.

`cub200-half` has the same photos to test on, but takes shots from every second training photo of a class by file name
alone, beginning with the second: training/clip_bank.py trains a model on the others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from unsee.data.class_folders import class_folders, read_classes, spaced
from unsee.data.data_set import Data
from unsee.data.images import FileSource, labelled
from unsee.data.named_set import NamedDataSet
from unsee.data.texts import read_text
from unsee.errors import DataError

INDEX = ("classes.txt", "images.txt", "image_class_labels.txt", "train_test_split.txt")
Lines = dict[int, tuple[int, str]]  # number -> (line it stands on, the rest of that line)


def find_cub200(folder: Path) -> str | None:
    """Which form of CUB-200-2011 is in this folder, if any: `archive` or `folders`."""
    if _root(folder) is not None:
        return "archive"
    return "folders" if all((folder / part).is_dir() for part in ("train", "test")) else None


def load_cub200(folder: Path) -> Data:
    """CUB-200-2011 with its official training and test images; a class is called by its folder without the number."""
    if find_cub200(folder) == "folders":
        return _from_folders(folder)
    root = _root(folder)
    if root is None:
        raise DataError(f"no CUB-200-2011 in {folder}; unsee data says how to get it")
    folders = _classes(root / INDEX[0])
    files = _numbered(root / INDEX[1])
    class_of = _labels(root / INDEX[2], files, folders)
    used = _flags(root / INDEX[3], files)
    for number, (line, file) in files.items():
        below, _, name = file.partition("/")
        if below != folders[class_of[number]] or not name or "/" in name:
            wanted = f"{folders[class_of[number]]}/… as {INDEX[2]} has it"
            raise DataError(f"{root / INDEX[1]}, line {line}: image {number} is {file!r}, not {wanted}")
    order = sorted(files)
    labels = np.array([class_of[number] - 1 for number in order], dtype=np.int64)
    train = np.array([used[number] for number in order], dtype=np.bool_)
    for label, below in enumerate(folders.values()):
        for part, mask in (("train", train), ("test", ~train)):
            if not (mask & (labels == label)).any():
                raise DataError(f"{root / INDEX[3]}: class {below!r} has no image to {part} on")
    source = FileSource(root, tuple(f"images/{files[number][1]}" for number in order))
    names = [_name(below) for below in folders.values()]
    images = labelled(source, labels, names)
    return Data("cub200", images.subset(np.flatnonzero(train)), images.subset(np.flatnonzero(~train)))


def load_cub200_half(folder: Path) -> Data:
    """CUB-200-2011 with shots from every second training image of a class, by file name."""
    data = load_cub200(folder)
    held = []
    for label in range(len(data.class_names)):
        rows = np.flatnonzero(data.train.labels == label).tolist()
        held += sorted(rows, key=data.train.name)[1::2]
    return replace(data, name="cub200-half", train=data.train.subset(sorted(held)))


def _from_folders(root: Path) -> Data:
    """Both parts from class folders, which must be the same in both and numbered from 1 without gaps."""
    folders = class_folders(root / "train")
    for wanted, folder in enumerate(folders, 1):
        number, _, name = folder.partition(".")
        if not (number.isascii() and number.isdecimal() and int(number) == wanted and name):
            raise DataError(
                f"{root / 'train'}: wanted class {wanted}, written like 001.Black_footed_Albatross, not {folder!r}"
            )
    others = sorted(set(folders) ^ set(class_folders(root / "test")))
    if others:
        raise DataError(f"{root}: the class folder {others[0]!r} is in one of train/ and test/ alone")
    names = [_name(folder) for folder in folders]
    return Data("cub200", read_classes(root, "train", folders, names), read_classes(root, "test", folders, names))


def _name(folder: str) -> str:
    """`001.Black_footed_Albatross` is called Black footed Albatross."""
    return spaced(folder.partition(".")[2])


def _root(folder: Path) -> Path | None:
    """The folder of the index files: the archive's own, or this one."""
    for root in (folder / "CUB_200_2011", folder):
        if (root / "images").is_dir() and all((root / name).is_file() for name in INDEX):
            return root
    return None


def _classes(path: Path) -> dict[int, str]:
    """Class number -> folder, counted from 1 without gaps."""
    found = _numbered(path)
    for wanted, number in enumerate(sorted(found), 1):
        line, folder = found[number]
        if number != wanted:
            raise DataError(f"{path}, line {line}: class {wanted} is missing before class {number}")
        if not folder.partition(".")[2]:
            raise DataError(f"{path}, line {line}: a class is written like 001.Black_footed_Albatross, not {folder!r}")
    return {number: found[number][1] for number in sorted(found)}


def _labels(path: Path, images: Lines, folders: dict[int, str]) -> dict[int, int]:
    found = _numbered(path)
    _same_images(path, found, images)
    for line, label in found.values():
        if not label.isdecimal() or int(label) not in folders:
            raise DataError(f"{path}, line {line}: {label!r} is no class of {INDEX[0]} (1 to {len(folders)})")
    return {number: int(label) for number, (_, label) in found.items()}


def _flags(path: Path, images: Lines) -> dict[int, bool]:
    found = _numbered(path)
    _same_images(path, found, images)
    for line, flag in found.values():
        if flag not in ("0", "1"):
            raise DataError(f"{path}, line {line}: must be 1 (train) or 0 (test), not {flag!r}")
    return {number: flag == "1" for number, (_, flag) in found.items()}


def _same_images(path: Path, found: Lines, images: Lines) -> None:
    for number, (line, _) in found.items():
        if number not in images:
            raise DataError(f"{path}, line {line}: image {number} is not in {INDEX[1]}")
    for number, (line, _) in images.items():
        if number not in found:
            raise DataError(f"{path}: damaged, image {number} of {INDEX[1]} (line {line}) is not in it")


def _numbered(path: Path) -> Lines:
    """Lines of a number and something more; refuses numbers that come twice."""
    text = read_text(path)
    found: Lines = {}
    for line, content in enumerate(text.splitlines(), 1):
        number, _, rest = content.strip().partition(" ")
        if not number and not rest:
            continue
        if not (number.isascii() and number.isdecimal() and rest.strip()):
            raise DataError(f"{path}, line {line}: wanted a number and a text, found {content[:60]!r}")
        if int(number) in found:
            raise DataError(f"{path}, line {line}: number {number} came before, on line {found[int(number)][0]}")
        found[int(number)] = (line, rest.strip())
    if not found:
        raise DataError(f"{path}: empty")
    return found


CUB200_SET = NamedDataSet(
    name="cub200",
    folder="cub200",
    layout="CUB_200_2011/ with images/, classes.txt, images.txt, image_class_labels.txt, train_test_split.txt; or "
    "train/001.Black_footed_Albatross/* and test/…",
    page="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    archives={"CUB_200_2011.tgz": "97eceeb196236b17998738112f37df78"},
    get="{archives} from {page}, unpacked in {place}",
    find=find_cub200,
    load=load_cub200,
)
CUB200_HALF = replace(CUB200_SET, name="cub200-half", load=load_cub200_half)
