"""Tiny-ImageNet, 64 pixels wide, in the form of its archive; all of its classes, or thirty of them.

| in tiny-imagenet-200/               | what                                                                      |
|-------------------------------------|---------------------------------------------------------------------------|
| train/<synset>/images/*.JPEG        | 500 photos of each class, `n01443537_0.JPEG` to `n01443537_499.JPEG`      |
| val/images/*, val/val_annotations.txt | 50 photos of each class; a line: `val_0.JPEG<tab>n03444034<tab>0 32 44 62` |
| wnids.txt                           | the 200 synsets                                                           |
| words.txt                           | WordNet's names: `n01443537<tab>goldfish, Carassius auratus`              |

The embedded model was trained on photos 0 to 149 of each class, so shots come from 150 to 499; the validation photos
are to test on, as the labels of the set's own test photos were never published. A class goes by the first of its names,
as ImageNet's do (`synsets`).

`tiny200` has all classes in the order of their synsets. `tiny30` stands where the paper has ImageNet30: the nine
classes that ImageNet30 shares with Tiny-ImageNet and 21 of the other 191, evenly spaced in the order of their synsets
(numbers i * 191 // 21, i from 0 to 20); in alphabetical order, as ImageNet30 is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from unsee.data.class_folders import list_images
from unsee.data.data_set import Data
from unsee.data.images import FileSource, Images, labelled
from unsee.data.named_set import NamedDataSet
from unsee.data.paper_names import IMAGENET30
from unsee.data.synsets import distinct
from unsee.data.texts import read_text
from unsee.errors import DataError

ROOT = "tiny-imagenet-200"
TRAINED_ON = 150  # the first photos of each class
OTHERS = 21  # classes of tiny30 that ImageNet30 does not have


def find_tiny_imagenet(folder: Path) -> str | None:
    """`archive` if Tiny-ImageNet is in this folder, as its archive unpacks."""
    there = all((folder / ROOT / name).exists() for name in ("train", "val/val_annotations.txt", "words.txt"))
    return "archive" if there else None


def load_tiny_imagenet(folder: Path, name: str) -> Data:
    """`tiny200` or `tiny30`, its validation photos to test on; no image is opened."""
    if find_tiny_imagenet(folder) is None:
        raise DataError(f"no Tiny-ImageNet in {folder}; unsee data says how to get it")
    root = folder / ROOT
    names = _names(root)
    classes = thirty(names) if name == "tiny30" else list(names)
    return Data(name, _train(root, classes, names), _test(root, classes, names))


def _names(root: Path) -> dict[str, str]:
    """Synset -> class name, in the order of the synsets."""
    wanted = sorted(read_text(root / "wnids.txt").split())
    words = dict(line.partition("\t")[::2] for line in read_text(root / "words.txt").splitlines())
    for synset in wanted:
        if not words.get(synset, "").strip():
            raise DataError(f"{root / 'words.txt'}: has no name for {synset}, which is in wnids.txt")
    return distinct({synset: tuple(part.strip() for part in words[synset].split(",")) for synset in wanted})


def thirty(names: dict[str, str]) -> list[str]:
    """The synsets of `tiny30`, by the rule above."""
    shared = [synset for synset, name in names.items() if name.lower() in IMAGENET30]
    others = [synset for synset in names if synset not in shared]
    spaced = [others[i * len(others) // OTHERS] for i in range(OTHERS)]
    return sorted(shared + spaced, key=lambda synset: names[synset].lower())


def _train(root: Path, classes: Sequence[str], names: dict[str, str]) -> Images:
    files: list[str] = []
    labels: list[int] = []
    for label, synset in enumerate(classes):
        found = sorted((_number(file), file) for file in list_images(root, f"train/{synset}/images"))
        own = [file for number, file in found if number >= TRAINED_ON]
        if not own:
            raise DataError(f"{root / 'train' / synset}: has no photo from number {TRAINED_ON} on")
        files += own
        labels += [label] * len(own)
    return labelled(FileSource(root, tuple(files)), labels, [names[synset] for synset in classes])


def _test(root: Path, classes: Sequence[str], names: dict[str, str]) -> Images:
    path, number = root / "val" / "val_annotations.txt", {synset: i for i, synset in enumerate(classes)}
    found: list[tuple[int, str]] = []
    for line, content in enumerate(read_text(path).splitlines(), 1):
        file, _, rest = content.partition("\t")
        synset = rest.partition("\t")[0]
        if synset not in names:
            raise DataError(f"{path}, line {line}: wanted an image and one of the synsets, found {content[:60]!r}")
        if synset in number:
            found.append((number[synset], f"val/images/{file}"))
    missing = set(range(len(classes))) - {label for label, _ in found}
    if missing:
        raise DataError(f"{path}: the class {names[classes[min(missing)]]!r} has no photo to test on")
    found.sort()
    source = FileSource(root, tuple(file for _, file in found))
    return labelled(source, [label for label, _ in found], [names[synset] for synset in classes])


def _number(file: str) -> int:
    """`train/n01443537/images/n01443537_17.JPEG` is photo 17."""
    digits = Path(file).stem.rpartition("_")[2]
    if not digits.isdecimal():
        raise DataError(f"{file}: a photo is called like n01443537_17.JPEG")
    return int(digits)


def _named(name: str) -> NamedDataSet:
    return NamedDataSet(
        name=name,
        folder="tiny-imagenet",
        layout=f"{ROOT}/ with train/<synset>/images/*, val/images/*, val/val_annotations.txt, wnids.txt and words.txt",
        page="https://github.com/seshuad/IMagenet",
        archives={"tiny-imagenet-200.zip": ""},
        get="{archives} of Stanford's course CS231n, or its content as {page} has it, unpacked in {place}",
        find=find_tiny_imagenet,
        load=partial(load_tiny_imagenet, name=name),
    )


TINY30_SET, TINY200_SET = _named("tiny30"), _named("tiny200")
