"""What the model on CLIP's image tower reads: which photos, in which order, and what is held out.

| set | trained on | held out, for choosing and for shots |
|---|---|---|
| CIFAR-10 | data_batch_1..4 | data_batch_5 |
| CIFAR-100 | nine of ten training photos | every tenth, in the order of class and file name |
| CUB-200-2011 | every second training photo of a class, the first included, by file name | the others |
| ImageNet | four of the five validation photos of a class, by file name | the fifth; the one sample photo is for tests |
| Tiny-ImageNet | nine of ten of the first 150 photos of a class | every tenth (not encoded) |
| COCO, Flickr8k | nine of ten captioned photos; the training split | every tenth; the dev split |

A set is encoded in a random order that never changes, so that any part of it is a fair sample. Test sets are not encoded here:
the package does that when it measures.
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
from training.photos import PhotoSet
from training.vocabulary import Vocabulary, cifar100_names, load_vocabulary

MOST = {
    "cifar100": 25_000,
    "cifar10": 16_000,
    "cub200": 2_997,
    "imagenet": 3_960,
    "flickr8k": 6_000,
    "coco": 25_000,
    "tiny-imagenet": 14_000,
    "cifar100-held": 5_000,
    "cifar10-held": 5_000,
    "cub200-held": 2_997,
    "imagenet-held": 990,
    "flickr8k-held": 1_000,
    "coco-held": 2_000,
}
"""Photos of each set, in the order of encoding; 109,944 in all; `recognise` measures the processor time of one."""
FIRST = 0.1
"""The share of every set that is encoded before the rest of any, so that all of training can be tried early."""


def clip_plan(sources: Path) -> Plan:
    """Every photo set whose source is there: first a part of each, then the rest."""
    sets = [shuffled(one) for one in _sets(sources)]
    sets.sort(key=lambda one: list(MOST).index(one.name))
    whole = [(one, min(MOST[one.name], len(one.keys))) for one in sets]
    return [(one, int(np.ceil(FIRST * most))) for one, most in whole] + whole


def _sets(sources: Path) -> Iterator[PhotoSet]:
    for name, read in SPLITS.items():
        if (sources / name).exists():
            yield from read(sources)
        else:
            print(f"{sources / name} is missing: its photos are left out")


def _cifar10(sources: Path) -> Iterator[PhotoSet]:
    sheets = [photos.cifar10(sources, sheet) for sheet in CIFAR10_SHEETS]
    yield joined_sets("cifar10", sheets[:-1])
    yield joined_sets("cifar10-held", sheets[-1:])


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
    return _split("cub200", whole, lambda i, key: places[i] % 2 == 1)


def _imagenet(sources: Path) -> Iterator[PhotoSet]:
    whole = photos.imagenet_val(sources)
    places = _by_folder(whole)
    return _split("imagenet", whole, lambda i, key: places[i] == 4)


def _tenth(name: str, read: Callable[[Path], PhotoSet]) -> Callable[[Path], Iterator[PhotoSet]]:
    return lambda sources: _split(name, read(sources), lambda i, key: i % 10 == 0)


def _tiny(sources: Path) -> Iterator[PhotoSet]:
    yield next(_tenth("tiny-imagenet", photos.tiny_imagenet)(sources))


def _flickr8k(sources: Path) -> Iterator[PhotoSet]:
    whole = photos.flickr8k(sources)
    place = {key: i for i, key in enumerate(whole.keys)}
    for name, part in (("flickr8k", "train"), ("flickr8k-held", "dev")):
        yield chosen(name, whole, [place[key] for key in photos.flickr8k_split(sources, part) if key in place])


SPLITS: dict[str, Callable[[Path], Iterator[PhotoSet]]] = {
    "cifar100": _tenth("cifar100", photos.cifar100),
    "cifar10": _cifar10,
    "cub200": _cub200,
    "imagenet-val": _imagenet,
    "flickr8k": _flickr8k,
    "coco": _tenth("coco", photos.coco),
    "tiny-imagenet": _tiny,
}
"""By the name of the source: its photos to train on and the held-out ones."""


def chosen(name: str, whole: PhotoSet, rows: list[int]) -> PhotoSet:
    """Some photos of a set."""
    return PhotoSet(name, tuple(whole.keys[i] for i in rows), lambda i: whole.picture(rows[i]))


def shuffled(whole: PhotoSet) -> PhotoSet:
    """The same photos in a random order that never changes."""
    order = stream("order", whole.name).permutation(len(whole.keys)).tolist()
    return chosen(whole.name, whole, order)


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
    sets = cached(list(MOST), cache)
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
        read = label[name.removesuffix("-held")]
        keys = sets[name].keys if name in sets else ()
        known = [i for i, key in enumerate(keys) if name != "tiny-imagenet" or key.split("/")[0] in classes]
        rows = starts.get(name, 0) + np.array(known, dtype=np.int64)
        return Labelled(rows, np.array([read(keys[i]) for i in known], dtype=np.int64))

    parts = {name: labelled(name) for name in label}
    held = {name: labelled(f"{name}-held") for name in label if f"{name}-held" in sets}
    captions = _captions(sources)
    captioned, texts = [], []
    for name in ("flickr8k", "coco"):
        for i, key in enumerate(sets[name].keys if name in sets else ()):
            if captions[name].get(key):
                captioned.append(starts[name] + i)
                texts.append(captions[name][key])
    dev = sets["flickr8k-held"].keys if "flickr8k-held" in sets else ()
    told = photos.flickr8k_captions(sources) if dev else {}
    everything = [torch.from_numpy(np.asarray(s.features, dtype=np.float32)) for s in sets.values()]
    return Bank(
        photos=torch.nn.functional.normalize(torch.cat(everything), dim=-1),
        colours=np.concatenate([np.asarray(s.colours, dtype=np.float32) for s in sets.values()]),
        labelled={name: part for name, part in parts.items() if len(part.rows)},
        mirrored={},
        captioned=np.array(captioned, dtype=np.int64),
        captions=texts,
        held_out=held,
        dev=starts.get("flickr8k-held", 0) + np.arange(len(dev)),
        dev_captions=[told[key] for key in dev],
        mean=None,
        components=None,
    )


def _captions(sources: Path) -> dict[str, dict[str, list[str]]]:
    """Captions and lists of objects by set and file name, without those that mention a name that is kept out."""
    unread = mentions(KEPT_OUT)
    objects = photos.coco_objects(sources)
    coco = dict(photos.coco_captions(sources))
    for key, texts in coco.items():
        named = [name for name in objects.get(key, []) if not unread.search(name)]
        coco[key] = texts + ([f"a photo of {listed(named)}."] if named else [])
    flickr = photos.flickr8k_captions(sources) if (sources / "flickr8k").exists() else {}
    return {
        name: {key: [text for text in texts if not unread.search(text)] for key, texts in found.items()}
        for name, found in (("coco", coco), ("flickr8k", flickr))
    }
