"""Makes folders of photos as a user would have them, from the raw sets that `training/README.md` lists.

    python -m benchmarks.photo_sets SOURCES OUT

For choosing defaults (`choose_sizes`), photos that the embedded model was not trained on:

- `everyday-5`, `everyday-10`, `everyday-30`: COCO's object names, drawn by seed; photos without a caption that hold
  this object alone
- `things-20`, `things-50`, `things-100`: ImageNet's names, drawn by seed; Tiny-ImageNet's photos 150 to 249 of a class
- `groceries`: fruit and vegetables (SOURCES/groceries)

For judging, never for choosing: `clothing` (SOURCES/clothing), `caltech-20` and `caltech-101` (SOURCES/caltech),
`demo-folder` (the embedded photos as files).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import unsee
from training import photos
from training.repository import Repository
from training.vocabulary import read_imagenet_names

TRAIN, TEST = 40, 40  # photos of each class


def everyday(sources: Path) -> dict[str, list[str]]:
    """Photos of each of COCO's objects that hold nothing else that is marked, and that were not trained on."""
    captioned = set(photos.coco_captions(sources))
    found: dict[str, list[str]] = {}
    for file, objects in photos.coco_objects(sources).items():
        if len(set(objects)) == 1 and file not in captioned:
            found.setdefault(objects[0], []).append(f"train2017/{file}")
    return found


def things(sources: Path) -> dict[str, list[str]]:
    """Tiny-ImageNet photos that were not trained on, by curated name."""
    named = dict(zip(photos.imagenet_ids(sources), read_imagenet_names(sources), strict=True))
    found: dict[str, list[str]] = {}
    for key in Repository(sources / "tiny-imagenet").files("tiny-imagenet-200/train"):
        identity, _, file = key.partition("/images/")
        known = identity in named and identity not in photos.IMAGENETTE
        if known and file.endswith(".JPEG") and 150 <= int(file.removesuffix(".JPEG").split("_")[1]) < 250:
            found.setdefault(named[identity], []).append(f"tiny-imagenet-200/train/{key}")
    return found


def below(sources: Path, name: str, folder: str, depth: int = 0) -> dict[str, list[str]]:
    """Photos of one repository by the name of the folder they are in, `depth` folders below this one."""
    found: dict[str, list[str]] = {}
    for key in Repository(sources / name).files(folder):
        parts = key.split("/")
        if len(parts) > depth + 1 and key.lower().endswith((".jpg", ".jpeg", ".png")):
            found.setdefault(parts[depth].lower().replace("_", " ").replace("-", " "), []).append(f"{folder}/{key}")
    return found


def write(out: Path, repository: Repository, files: Mapping[str, Sequence[str]], names: Sequence[str]) -> None:
    """One folder with `train/<name>` and `test/<name>`, photos drawn by seed."""
    contents = repository.files()
    for name in names:
        drawn = np.random.default_rng(0).permutation(sorted(files[name]))[: TRAIN + TEST]
        half = min(TRAIN, len(drawn) // 2)
        for part, chosen in (("train", drawn[:half]), ("test", drawn[half:])):
            folder = out / part / name.replace("/", " ")
            folder.mkdir(parents=True, exist_ok=True)
            for i, file in enumerate(chosen):
                suffix = Path(file).suffix.lower()
                (folder / f"{i:03}{suffix}").write_bytes(repository.read(contents[file]))


def draw(files: Mapping[str, Sequence[str]], count: int, least: int = 40) -> list[str]:
    """Names with enough photos, drawn by seed: the longer list holds the shorter one."""
    enough = sorted(name for name, found in files.items() if len(found) >= least)
    return [str(name) for name in np.random.default_rng(1).permutation(enough)[:count]]


def write_demo(out: Path) -> None:
    """The embedded photos as a folder."""
    data = unsee.load_data("demo")
    for part, images in (("train", data.train), ("test", data.test)):
        for i in range(len(images)):
            folder = out / part / data.class_names[int(images.labels[i])]
            folder.mkdir(parents=True, exist_ok=True)
            images.read(i).save(folder / f"{i:05}.png")


def main(sources: Path, out: Path) -> None:
    """Writes every folder whose source is there."""
    coco, tiny = everyday(sources), things(sources)
    for count in (5, 10, 30):
        write(out / f"everyday-{count}", Repository(sources / "coco"), coco, draw(coco, count))
    for count in (20, 50, 100):
        write(out / f"things-{count}", Repository(sources / "tiny-imagenet"), tiny, draw(tiny, count))
    if (sources / "groceries").exists():
        fruit = below(sources, "groceries", "dataset/train/Fruit") | below(
            sources, "groceries", "dataset/train/Vegetables"
        )
        write(out / "groceries", Repository(sources / "groceries"), fruit, draw(fruit, 15, 32))
    if (sources / "clothing").exists():
        clothes = below(sources, "clothing", "train")
        write(out / "clothing", Repository(sources / "clothing"), clothes, sorted(clothes))
    if (sources / "caltech").exists():
        caltech = below(sources, "caltech", "101_ObjectCategories")
        caltech.pop("background google", None)
        write(out / "caltech-20", Repository(sources / "caltech"), caltech, draw(caltech, 20))
        write(out / "caltech-101", Repository(sources / "caltech"), caltech, sorted(caltech))
    write_demo(out / "demo-folder")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
