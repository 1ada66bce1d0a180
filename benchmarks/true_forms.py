"""A CLIP of random weights as the hub stores it, and small files in the form of each of the paper's data sets.

Weights and pictures are random: what is made of them are no results. Every class has a few images; the images of all
classes of a set are copies of a few pictures, which are encoded once each.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from unsee.data.paper_names import CIFAR10, CIFAR100, IMAGENET30

PICTURES = 8  # different ones in a set
CLASSES = {"cifar10": 10, "cifar100": 100, "cub200": 200, "imagenet30": 30, "imagenet": 1000}


def write_clip(folder: Path) -> Path:
    """ViT-B/16 in its true sizes: weights, both configurations, and a tokenizer in the form of CLIP's."""
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(0)
    CLIPModel(CLIPConfig(vision_config={"patch_size": 16})).save_pretrained(folder)
    sides = {"crop_size": {"height": 224, "width": 224}, "size": {"shortest_edge": 224}, "resample": 3}
    mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    how = {"image_processor_type": "CLIPImageProcessor", "image_mean": mean, "image_std": std}
    (folder / "preprocessor_config.json").write_text(json.dumps(how | sides))
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """`tokenizer.json`: byte pairs in CLIP's manner, start and end at CLIP's own places, 49406 and 49407."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.-,'()"]
    pieces = [*letters, *(f"{letter}</w>" for letter in letters)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = [("o", "f</w>"), ("p", "h"), ("ph", "o"), ("pho", "t"), ("phot", "o</w>")]  # words that are one token
    vocabulary |= {first + second: len(vocabulary) + i for i, (first, second) in enumerate(merges)}
    for first, second in itertools.product("aeiourstnl", letters[:26]):
        for end in ("", "</w>"):
            if first + second + end not in vocabulary:
                vocabulary[first + second + end] = len(vocabulary)
                merges.append((first, second + end))
    vocabulary |= {f"<unused{i}>": i for i in range(len(vocabulary), 49406)}
    vocabulary |= {"<|startoftext|>": 49406, "<|endoftext|>": 49407}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_all(folder: Path, shots: int = 1, birds: int = CLASSES["cub200"], things: int = CLASSES["imagenet"]) -> Path:
    """All five sets: `shots` images of every class to tune on and as many to validate on, one to test on."""
    write_folders(folder / "cifar10", "train", "test", CIFAR10, shots, (32, 32), "png")
    write_folders(folder / "cifar100", "train", "test", CIFAR100, shots, (32, 32), "png")
    write_folders(folder / "imagenet30", "one_class_train", "one_class_test", IMAGENET30, shots, (320, 240), "JPEG")
    write_cub(folder / "cub200" / "CUB_200_2011", birds, shots)
    write_imagenet(folder / "imagenet", things, shots)
    return folder


def write_folders(
    root: Path, train: str, test: str, names: Sequence[str], shots: int, size: tuple[int, int], ending: str
) -> None:
    """One folder per class, below one folder per part."""
    files = pictures(size, ending)
    for name, (part, count) in itertools.product(names, ((train, 2 * shots), (test, 1))):
        (root / part / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (root / part / name / f"{i:04}.{ending}").write_bytes(next(files))


def write_cub(root: Path, classes: int, shots: int) -> None:
    """CUB-200-2011 as its archive has it: images below `images/`, and four index files."""
    files = pictures((500, 333), "jpg")
    lines: dict[str, list[str]] = {name: [] for name in ("classes", "images", "image_class_labels", "train_test_split")}
    for label in range(1, classes + 1):
        folder = f"{label:03}.Sea_Tern_{letters(label)}"
        (root / "images" / folder).mkdir(parents=True)
        lines["classes"].append(f"{label} {folder}")
        for i in range(2 * shots + 1):
            number = len(lines["images"]) + 1
            file = f"{folder}/{folder[4:]}_{i:04}_{number}.jpg"
            (root / "images" / file).write_bytes(next(files))
            lines["images"].append(f"{number} {file}")
            lines["image_class_labels"].append(f"{number} {label}")
            lines["train_test_split"].append(f"{number} {int(i < 2 * shots)}")
    for name, own in lines.items():
        (root / f"{name}.txt").write_text("\n".join(own) + "\n")


def write_imagenet(root: Path, classes: int, shots: int) -> None:
    """ImageNet as Kaggle has it: training images in synset folders, a flat `val/` with labels in a table."""
    files, place = pictures((500, 375), "JPEG"), root / "ILSVRC" / "Data" / "CLS-LOC"
    (place / "val").mkdir(parents=True)
    names, solution = [], ["ImageId,PredictionString"]
    for number in range(1, classes + 1):
        synset, image = f"n{number:08}", f"ILSVRC2012_val_{number:08}"
        names.append(f"{synset} tin {letters(number)}, {letters(number)}")
        solution.append(f"{image},{synset} 1 2 300 400 ")
        (place / "train" / synset).mkdir(parents=True)
        for i in range(2 * shots):
            (place / "train" / synset / f"{synset}_{i}.JPEG").write_bytes(next(files))
        (place / "val" / f"{image}.JPEG").write_bytes(next(files))
    (root / "LOC_synset_mapping.txt").write_text("\n".join(names) + "\n")
    (root / "LOC_val_solution.csv").write_text("\n".join(solution) + "\n")


def write_tiny_imagenet(root: Path, classes: int) -> None:
    """Tiny-ImageNet as its archive unpacks: nine names of ImageNet30 and others; photos 0, 150 and 499 to tune on."""
    files, named = pictures((64, 64), "JPEG"), [f"Tin {letters(i)}" for i in range(classes)]
    named[: 9 * 5 : 5] = IMAGENET30[::3][:9]
    lines: dict[str, list[str]] = {"wnids": [], "words": [], "val/val_annotations": []}
    (root / "val" / "images").mkdir(parents=True)
    for number, name in enumerate(named):
        synset = f"n{number:08}"
        (root / "train" / synset / "images").mkdir(parents=True)
        for i in (0, 150, 499):
            (root / "train" / synset / "images" / f"{synset}_{i}.JPEG").write_bytes(next(files))
        (root / "val" / "images" / f"val_{number}.JPEG").write_bytes(next(files))
        lines["wnids"].append(synset)
        lines["words"].append(f"{synset}\t{name}, {letters(number)}")
        lines["val/val_annotations"].append(f"val_{number}.JPEG\t{synset}\t0\t0\t9\t9")
    for file, own in lines.items():
        (root / f"{file}.txt").write_text("\n".join(own) + "\n")


def letters(number: int) -> str:
    """A number in letters, for names that differ."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:04}")


def pictures(size: tuple[int, int], ending: str) -> Iterator[bytes]:
    """Image files without end: a few random ones, over and over."""
    rng, made = np.random.default_rng(0), []
    for _ in range(PICTURES):
        out = io.BytesIO()
        coarse = Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        coarse.resize(size).save(out, "JPEG" if ending.lower() in ("jpg", "jpeg") else "PNG")
        made.append(out.getvalue())
    return itertools.cycle(made)
