"""ImageNet-1k (ILSVRC2012) and ImageNet30, class folders both.

ImageNet: `train/<synset>/*` and `val/<synset>/*`, in the folder itself, in its `images/` (CoOp) or in its
`ILSVRC/Data/CLS-LOC/` (Kaggle). Validation images may also be directly in `val/`, with their labels in one of

| file                 | a line                                                            |
|----------------------|-------------------------------------------------------------------|
| LOC_val_solution.csv | `ILSVRC2012_val_00048981,n03995372 85 1 499 272`, below a heading |
| val.txt              | `ILSVRC2012_val_00000001.JPEG 65` or `… n01751748`                |

A number counts the sorted synsets of the names file from 0. (The development kit's ground truth numbers classes in an
order of its own and is not read.) Classes are ordered by synset and named by `synsets`; fewer than 1000 are accepted if
train and val have the same.

ImageNet30: `one_class_train/<class>/*` and `one_class_test/<class>/*`, images at any depth below the class.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from unsee.data.class_folders import class_folders, list_images, official_folders, read_classes
from unsee.data.data_set import Data
from unsee.data.images import FileSource, Images, labelled
from unsee.data.named_set import NamedDataSet
from unsee.data.paper_names import IMAGENET30
from unsee.data.synsets import read_synset_names
from unsee.data.texts import read_text
from unsee.errors import DataError

PLACES = ("", "images", "ILSVRC/Data/CLS-LOC")
LABEL_FILES = ("LOC_val_solution.csv", "val.txt")


def find_imagenet(folder: Path) -> str | None:
    """`folders` or `flat val`, by how ImageNet's validation images are stored in this folder; no listing is made."""
    root = _root(folder)
    if root is None:
        return None
    return "flat val" if _is_flat(root / "val") else "folders"


def load_imagenet(folder: Path) -> Data:
    """ImageNet with its validation images to test on; no image is opened."""
    root = _root(folder)
    if root is None:
        raise DataError(f"no ImageNet in {folder}: it has no train/ and val/; unsee data says how to get it")
    names = read_synset_names(folder)
    synsets = class_folders(root / "train")
    for synset in synsets:
        if synset not in names:
            raise DataError(f"{root / 'train'}: the folder {synset!r} is no synset of the names file in {folder}")
    class_names = [names[synset] for synset in synsets]
    if _is_flat(root / "val"):
        test = _flat(root, _label_file(folder, root), synsets, class_names, list(names))
    else:
        _same_classes(root, synsets, class_folders(root / "val"))
        test = read_classes(root, "val", synsets, class_names)
    return Data("imagenet", read_classes(root, "train", synsets, class_names), test)


def find_imagenet30(folder: Path) -> str | None:
    """`folders` if ImageNet30's two folders are in this one."""
    return "folders" if all((folder / f"one_class_{part}").is_dir() for part in ("train", "test")) else None


def load_imagenet30(folder: Path) -> Data:
    """ImageNet30, whose archives hold 30 classes of ImageNet under their names."""
    if find_imagenet30(folder) is None:
        raise DataError(f"no ImageNet30 in {folder}; unsee data says how to get it")
    parts = []
    for part in ("one_class_train", "one_class_test"):
        folders = official_folders(folder / part, IMAGENET30)
        parts.append(read_classes(folder, part, folders, IMAGENET30, deep=True))
    return Data("imagenet30", parts[0], parts[1])


def _root(folder: Path) -> Path | None:
    roots = (folder / place for place in PLACES)
    return next((root for root in roots if (root / "train").is_dir() and (root / "val").is_dir()), None)


def _is_flat(val: Path) -> bool:
    """Whether the first thing in the folder that is not hidden is a file; the rest is not looked at."""
    try:
        with os.scandir(val) as entries:
            return next((entry.is_file() for entry in entries if not entry.name.startswith(".")), False)
    except OSError as error:
        raise DataError(f"{val}: {error.strerror}") from None


def _same_classes(root: Path, train: Sequence[str], val: Sequence[str]) -> None:
    for here, there, synset in [("train", "val", s) for s in train] + [("val", "train", s) for s in val]:
        if synset not in (val if there == "val" else train):
            raise DataError(f"{root}: the class {synset} is in {here}/ but not in {there}/; both must have the same")


def _label_file(folder: Path, root: Path) -> Path:
    for name in LABEL_FILES:
        for place in (folder, root):
            if (place / name).is_file():
                return place / name
    raise DataError(
        f"{root / 'val'}: images are not in class folders, and have no labels; looked for {', '.join(LABEL_FILES)}"
    )


def _flat(root: Path, path: Path, synsets: Sequence[str], class_names: Sequence[str], every: Sequence[str]) -> Images:
    """Images of a flat `val/`, ordered by class and then by name, as class folders would be."""
    where = {Path(file).stem: file for file in list_images(root, "val")}
    number = {synset: i for i, synset in enumerate(synsets)}
    found: dict[str, int] = {}
    for line, image, label in _lines(path):
        synset = every[int(label)] if label.isdecimal() and int(label) < len(every) else label
        if synset not in number:
            raise DataError(f"{path}, line {line}: {label!r} is none of the {len(synsets)} classes in train/")
        if image not in where:
            raise DataError(f"{path}, line {line}: the image {image} is not in {root / 'val'}")
        if image in found:
            raise DataError(f"{path}, line {line}: the image {image} came before")
        found[image] = number[synset]
    _all_labelled(path, where, found)
    _same_classes(root, synsets, sorted({synsets[label] for label in found.values()}))
    order = sorted(found, key=lambda image: (found[image], image))
    source = FileSource(root, tuple(where[image] for image in order))
    return labelled(source, np.array([found[image] for image in order], dtype=np.int64), class_names)


def _all_labelled(path: Path, where: Mapping[str, str], found: Mapping[str, int]) -> None:
    for image, file in where.items():
        if image not in found:
            raise DataError(f"{path}: damaged, it has no label for {file}")


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line number, image without its ending, and label, of a label file."""
    lines = read_text(path).splitlines()
    heading = path.suffix == ".csv"
    for line, content in enumerate(lines[heading:], 1 + heading):
        fields = content.replace(",", " ", 1).split() if heading else content.split()
        if not fields:
            continue
        if len(fields) < 2 or (len(fields) > 2 and not heading):
            wanted = "image,synset and boxes" if heading else "a file and its label"
            raise DataError(f"{path}, line {line}: wanted {wanted}, found {content[:60]!r}")
        yield line, Path(fields[0]).stem, fields[1]


IMAGENET30_SET = NamedDataSet(
    name="imagenet30",
    folder="imagenet30",
    layout="one_class_train/<class>/* and one_class_test/<class>/*",
    page="https://github.com/hendrycks/ss-ood",
    archives={"one_class_train.tar": "", "one_class_test.tar": ""},
    get="both of {archives}, linked on {page}, unpacked in {place}",
    find=find_imagenet30,
    load=load_imagenet30,
)
IMAGENET_SET = NamedDataSet(
    name="imagenet",
    folder="imagenet",
    layout="train/<synset>/*, val/<synset>/* (or val/*.JPEG with LOC_val_solution.csv or val.txt), and the class "
    "names: classnames.txt, LOC_synset_mapping.txt or imagenet_class_index.json",
    page="https://www.image-net.org/download.php",
    archives={
        "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
        "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
    },
    get="both of {archives} from {page}, unpacked in {place}, one folder per class; classnames.txt is linked in "
    "DATASETS.md of https://github.com/KaiyangZhou/CoOp",
    find=find_imagenet,
    load=load_imagenet,
)
