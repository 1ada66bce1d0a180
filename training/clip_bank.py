"""What the model on CLIP's image tower reads: which photos, in which order, and what is held out.

| set | trained on | held out, for choosing and for shots |
|---|---|---|
| CIFAR-10 | 150 photos a class of data_batch_1..4 | shots of `cifar10-batch5`, from data_batch_5 |
| CIFAR-100 | 40 photos a class of nine of ten training photos | shots of `cifar100-tenth`, from every tenth |
| CUB-200-2011 | every second training photo of a class, the first included, by file name | shots of `cub200-half`, from the others |
| ImageNet | the first three of the five validation photos of a class, by file name | the other two |
| Tiny-ImageNet | 15 a class of nine of ten of the first 150 photos | – |
| COCO | 10,000 captioned photos of nine of ten | 500 of every tenth |

Held out are the photos that the package takes as shots of seeds 0, 1 and 2 (package_photos.py). All test photos of those four sets are
encoded after them, for the measurements at the end; training never reads them.

A set is encoded in turns: one photo of every class, a second one of every class, and so on, in a random order that never changes. So any
part of a set is a fair sample of it. The order of the sets is `clip_plan`'s: half of what is trained on, what is held out, the
other half, tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from training import photos
from training.bank import Bank, Labelled, cached, listed, stream
from training.features import CIFAR10_SHEETS, Plan
from training.kept_out import KEPT_OUT, leave_unread, mentions
from training.package_photos import MORE, PACKAGE, photos_to_test, shot_photos
from training.photos import PhotoSet
from training.vocabulary import Vocabulary, cifar100_names, load_vocabulary
from unsee.data.imagenet_six import FIRST_PHOTOS

TRAINED = {
    "imagenet": 2_970,
    "cub200": 3_000,
    "cifar100": 4_000,
    "cifar10": 1_500,
    "coco": 10_000,
    "tiny-imagenet": 3_000,
}
"""Photos of each set that are trained on, in the order of encoding."""
COCO_HELD = 500
FIRST = 0.5
"""The share of every set that is encoded before the rest of any, so that all of training can be tried early."""


def clip_plan(sources: Path) -> Plan:
    """Every photo set whose source is there, most useful first."""
    sets = {one.name: in_turns(one) for one in _sets(sources)}
    whole = [(sets[name], min(most, len(sets[name].keys))) for name, most in TRAINED.items() if name in sets]
    first = [(one, int(np.ceil(FIRST * most))) for one, most in whole]
    held = [shot_photos(name, sources) for name in PACKAGE]
    tests = [photos_to_test(name, sources) for name in PACKAGE]
    more = [read(name, sources) for name in MORE for read in (shot_photos, photos_to_test)]
    captioned = [(sets["coco-held"], min(COCO_HELD, len(sets["coco-held"].keys)))] if "coco-held" in sets else []
    rest = [*whole, *((one, len(one.keys)) for one in (*tests, *more) if one is not None)]
    return first + [(one, len(one.keys)) for one in held if one is not None] + captioned + rest


def _sets(sources: Path) -> Iterator[PhotoSet]:
    for name, read in SPLITS.items():
        if (sources / name).exists():
            yield from read(sources)
        else:
            print(f"{sources / name} is missing: its photos are left out")


def _cifar10(sources: Path) -> Iterator[PhotoSet]:
    yield joined_sets("cifar10", [photos.cifar10(sources, sheet) for sheet in CIFAR10_SHEETS[:-1]])


def _split(name: str, whole: PhotoSet, held: Callable[[int, str], bool]) -> Iterator[PhotoSet]:
    """The photos to train on and the held-out ones, by position and key."""
    out = [held(i, key) for i, key in enumerate(whole.keys)]
    yield chosen(name, whole, [i for i, is_held in enumerate(out) if not is_held])
    yield chosen(f"{name}-held", whole, [i for i, is_held in enumerate(out) if is_held])


def _by_folder(whole: PhotoSet) -> list[int]:
    """The place of each photo within its class folder."""
    seen: dict[str, int] = {}
    places = []
    for key in whole.keys:
        folder = key.split("/")[0]
        places.append(seen.get(folder, 0))
        seen[folder] = places[-1] + 1
    return places


def _cub200(sources: Path) -> Iterator[PhotoSet]:
    whole = photos.cub200(sources)
    places = _by_folder(whole)
    yield next(_split("cub200", whole, lambda i, key: places[i] % 2 == 1))


def _imagenet(sources: Path) -> Iterator[PhotoSet]:
    whole = photos.imagenet_val(sources)
    places = _by_folder(whole)
    yield next(_split("imagenet", whole, lambda i, key: places[i] >= FIRST_PHOTOS))


def _tenth(name: str, read: Callable[[Path], PhotoSet]) -> Callable[[Path], Iterator[PhotoSet]]:
    """Nine of ten photos; the others are not encoded, or by the package."""

    def split(sources: Path) -> Iterator[PhotoSet]:
        yield next(_split(name, read(sources), lambda i, key: i % 10 == 0))

    return split


def _coco(sources: Path) -> Iterator[PhotoSet]:
    return _split("coco", photos.coco(sources), lambda i, key: i % 10 == 0)


SPLITS: dict[str, Callable[[Path], Iterator[PhotoSet]]] = {
    "cifar100": _tenth("cifar100", photos.cifar100),
    "cifar10": _cifar10,
    "cub200": _cub200,
    "imagenet-val": _imagenet,
    "coco": _coco,
    "tiny-imagenet": _tenth("tiny-imagenet", photos.tiny_imagenet),
}
"""By the name of the source: its photos to train on, and of COCO the held-out ones."""


def chosen(name: str, whole: PhotoSet, rows: list[int]) -> PhotoSet:
    """Some photos of a set."""
    return PhotoSet(name, tuple(whole.keys[i] for i in rows), lambda i: whole.picture(rows[i]))


def in_turns(whole: PhotoSet) -> PhotoSet:
    """The same photos: one of every class, a second one of every class, and so on, in a random order that never changes."""
    order = stream("order", whole.name).permutation(len(whole.keys)).tolist()
    mixed = chosen(whole.name, whole, order)
    places = _by_folder(mixed)
    return chosen(whole.name, mixed, sorted(range(len(places)), key=places.__getitem__))


def joined_sets(name: str, sets: list[PhotoSet]) -> PhotoSet:
    """Several sets as one."""
    places = [(one, i) for one in sets for i in range(len(one.keys))]
    keys = tuple(key for one in sets for key in one.keys)
    return PhotoSet(name, keys, lambda i: places[i][0].picture(places[i][1]))


def load_clip_vocabulary(sources: Path) -> Vocabulary:
    """`mini`'s names and CUB's species, without the names that are kept out."""
    species = photos.cub200_names(sources)
    found = leave_unread(load_vocabulary(sources, species), KEPT_OUT)
    lost = {*photos.CIFAR10_NAMES, *cifar100_names(sources), *species} - set(found.names)
    if lost:
        raise ValueError(f"a labelled set would lose {', '.join(sorted(lost))}")
    return found


def load_clip_bank(sources: Path, cache: Path, vocabulary: Vocabulary) -> Bank:
    """Read all features that are in the cache, as they are."""
    sets = cached([*TRAINED, *(f"{name}-held" for name in (*PACKAGE.values(), "coco"))], cache)
    starts = dict(zip(sets, np.cumsum([0, *(len(s.keys) for s in sets.values())])[:-1], strict=True))
    number = {name: i for i, name in enumerate(vocabulary.names)}
    classes = {identity: int(vocabulary.imagenet[i]) for i, identity in enumerate(photos.imagenet_ids(sources))}
    label: dict[str, Callable[[str], int]] = {
        "cifar10": lambda key: number[key],
        "cifar100": lambda key: number[key.split("/")[0].replace("_", " ")],
        "cub200": lambda key: number[photos.species(key)],
        "imagenet": lambda key: int(vocabulary.imagenet[int(key.split("/")[0])]),
        "tiny-imagenet": lambda key: classes[key.split("/")[0]],
    }

    def labelled(name: str) -> Labelled:
        read = label.get(name, lambda key: number[key.split("/")[0]])
        keys = sets[name].keys if name in sets else ()
        known = [i for i, key in enumerate(keys) if name != "tiny-imagenet" or key.split("/")[0] in classes]
        rows = starts.get(name, 0) + np.array(known, dtype=np.int64)
        return Labelled(rows, np.array([read(keys[i]) for i in known], dtype=np.int64))

    parts = {name: labelled(name) for name in label}
    held = {name: labelled(f"{name}-held") for name in PACKAGE.values() if f"{name}-held" in sets}
    captions = _captions(sources)
    captioned, texts = [], []
    for i, key in enumerate(sets["coco"].keys if "coco" in sets else ()):
        if captions.get(key):
            captioned.append(starts["coco"] + i)
            texts.append(captions[key])
    dev = [(i, key) for i, key in enumerate(sets["coco-held"].keys if "coco-held" in sets else ()) if captions.get(key)]
    everything = [torch.from_numpy(np.array(s.features, dtype=np.float32)) for s in sets.values()]
    return Bank(
        photos=torch.nn.functional.normalize(torch.cat(everything), dim=-1),
        colours=np.concatenate([np.asarray(s.colours, dtype=np.float32) for s in sets.values()]),
        labelled={name: part for name, part in parts.items() if len(part.rows)},
        mirrored={},
        captioned=np.array(captioned, dtype=np.int64),
        captions=texts,
        held_out=held,
        dev=np.array([starts["coco-held"] + i for i, _ in dev], dtype=np.int64),
        dev_captions=[captions[key] for _, key in dev],
        mean=None,
        components=None,
        dev_name="coco held out",
    )


def _captions(sources: Path) -> dict[str, list[str]]:
    """COCO's captions and lists of objects by file name, without those that mention a name that is kept out."""
    unread = mentions(KEPT_OUT)
    objects = photos.coco_objects(sources)
    found = photos.coco_captions(sources)
    for key, texts in found.items():
        named = [name for name in objects.get(key, []) if not unread.search(name)]
        every = texts + ([f"a photo of {listed(named)}."] if named else [])
        found[key] = [text for text in every if not unread.search(text)]
    return found
