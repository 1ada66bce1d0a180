"""ImageNet by six photos of each class, which two public repositories have: five to tune on, one to test on.

| in imagenet-six/                                                                   | what                           |
|------------------------------------------------------------------------------------|--------------------------------|
| Small-ImageNet-Validation-Dataset-1000-Classes/ILSVRC2012_img_val_subset/<0..999>/ | five validation photos a class |
| Small-ImageNet-Validation-Dataset-1000-Classes/imagenet_class_index.json           | the synset of each number      |
| imagenet-sample-images/n01440764_tench.JPEG                                        | one more photo of each class   |
| classnames.txt, if it is there                                                     | names of the classes           |

Shots come from the fourth and fifth validation photo of a class, by file name, one to tune and one to validate: a model
that was trained on the first three alone (training/clip_bank.py) has not seen them. The sample photos are to test on,
one a class. Classes are in the order of their synsets and named as ImageNet's are (`synsets`).

`imagenet30-six` has the thirty classes of ImageNet30 under ImageNet30's names and in its order: thirty photos to test
on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from unsee.data.class_folders import list_images
from unsee.data.data_set import Data
from unsee.data.images import FileSource, Images, labelled
from unsee.data.named_set import NamedDataSet
from unsee.data.paper_names import IMAGENET30
from unsee.data.synsets import NAME_FILES, SYNSET, read_synset_names
from unsee.data.texts import read_text
from unsee.errors import DataError

VAL = "Small-ImageNet-Validation-Dataset-1000-Classes"
PHOTOS = f"{VAL}/ILSVRC2012_img_val_subset"
CLASS_INDEX = f"{VAL}/{NAME_FILES[-1]}"
SAMPLES = "imagenet-sample-images"
FIRST_PHOTOS = 3  # the first photos of each class
CALLED = {"rotary dial telephone": "dial telephone"}  # ImageNet30's name -> WordNet's first one, where they differ


def find_imagenet_six(folder: Path) -> str | None:
    """`repositories` if both are in this folder."""
    there = (folder / PHOTOS).is_dir() and (folder / CLASS_INDEX).is_file() and (folder / SAMPLES).is_dir()
    return "repositories" if there else None


def load_imagenet_six(folder: Path, name: str) -> Data:
    """`imagenet-six` or `imagenet30-six`; no image is opened."""
    if find_imagenet_six(folder) is None:
        raise DataError(f"no {name} in {folder}; unsee data says how to get it")
    numbers = _numbers(folder / CLASS_INDEX)
    if name == "imagenet30-six":
        names = _thirty(read_synset_names(folder / VAL))
    else:
        names = read_synset_names(folder if any((folder / file).is_file() for file in NAME_FILES) else folder / VAL)
    for synset, called in names.items():
        if synset not in numbers:
            raise DataError(f"{folder}: {synset} ({called}) is none of the classes of {CLASS_INDEX}")
    synsets = list(names)
    return Data(name, _shots(folder, synsets, names, numbers), _test(folder, synsets, names))


def _numbers(path: Path) -> dict[str, str]:
    """Synset -> the folder of its photos."""
    try:
        found = {pair[0]: number for number, pair in json.loads(read_text(path)).items()}
    except (ValueError, AttributeError, TypeError, LookupError) as error:
        raise DataError(f"{path}: damaged ({error})") from None
    return found


def _thirty(names: Mapping[str, str]) -> dict[str, str]:
    """The synsets of ImageNet30 under its own names, in its order; names: by WordNet."""
    synset_of = {name.lower(): synset for synset, name in names.items()}
    found = {name: synset_of.get(CALLED.get(name, name)) for name in IMAGENET30}
    missing = [name for name, synset in found.items() if synset is None]
    if missing:
        raise DataError(f"{CLASS_INDEX} has no class {missing[0]!r}, which ImageNet30 has")
    return {synset: name for name, synset in found.items() if synset is not None}


def _shots(root: Path, synsets: Sequence[str], names: Mapping[str, str], numbers: Mapping[str, str]) -> Images:
    files: list[str] = []
    labels: list[int] = []
    for label, synset in enumerate(synsets):
        own = sorted(list_images(root, f"{PHOTOS}/{numbers[synset]}"))[FIRST_PHOTOS:]
        if not own:
            raise DataError(f"{root / PHOTOS / numbers[synset]}: has no photo behind the first {FIRST_PHOTOS}")
        files += own
        labels += [label] * len(own)
    return labelled(FileSource(root, tuple(files)), labels, [names[synset] for synset in synsets])


def _test(root: Path, synsets: Sequence[str], names: Mapping[str, str]) -> Images:
    samples: dict[str, list[str]] = {}
    for file in sorted(list_images(root, SAMPLES)):
        synset = Path(file).name.partition("_")[0]
        if SYNSET.fullmatch(synset):
            samples.setdefault(synset, []).append(file)
    missing = [synset for synset in synsets if synset not in samples]
    if missing:
        raise DataError(f"{root / SAMPLES}: has no photo of {missing[0]} ({names[missing[0]]})")
    files = [file for synset in synsets for file in samples[synset]]
    labels = [label for label, synset in enumerate(synsets) for _ in samples[synset]]
    return labelled(FileSource(root, tuple(files)), labels, [names[synset] for synset in synsets])


def _named(name: str) -> NamedDataSet:
    return NamedDataSet(
        name=name,
        folder="imagenet-six",
        layout=f"{PHOTOS}/<0..999>/*, {CLASS_INDEX} and {SAMPLES}/n01440764_tench.JPEG; classnames.txt if wanted",
        page=f"https://github.com/ndb796/{VAL}",
        archives={},
        get=f"a checkout of {{page}} and one of https://github.com/EliSchwartz/{SAMPLES}, both in {{place}}",
        find=find_imagenet_six,
        load=partial(load_imagenet_six, name=name),
    )


IMAGENET30_SIX, IMAGENET_SIX = _named("imagenet30-six"), _named("imagenet-six")
