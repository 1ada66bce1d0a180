"""Features of the frozen image encoder and the colours of each photo, computed once and kept in the work folder.

`<set>.npy` holds features (n, numbers) in float16, `<set>-colours.npy` shares of colours and light (n, COLOURS),
`<set>.json` the keys and how many photos are done. A stopped extraction resumes at the last full chunk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from training import photos
from training.colours import COLOURS, colour_shares
from training.photos import PhotoSet
from training.record import Log

if TYPE_CHECKING:
    from training.encoders import Encoder

CIFAR10_SHEETS = tuple(f"data_batch_{i}" for i in range(1, 6))
HELD_SHEET = CIFAR10_SHEETS[-1]
"""Not trained on, so that models can be chosen on it."""

Encode = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Pixels (n, side, side, 3) to features (n, numbers)."""
Plan = list[tuple[PhotoSet, int]]
"""Photo sets in the order they are encoded, each with how many of its photos are to be done by then."""


@dataclass(frozen=True)
class Encoded:
    """The features of one photo set."""

    keys: tuple[str, ...]
    features: NDArray[np.float16]  # (n, numbers)
    colours: NDArray[np.float16]  # (n, COLOURS)


def mini_plan(sources: Path) -> Plan:
    """Every photo set that `mini` reads, most useful first."""
    sheets = [photos.cifar10(sources, sheet) for sheet in CIFAR10_SHEETS]
    cifar100 = photos.cifar100(sources)
    sets = [cifar100, *sheets, photos.flickr8k(sources), photos.imagenet_val(sources)]
    sets += [photos.imagenet_samples(sources), photos.coco(sources), photos.tiny_imagenet(sources)]
    sets += [photos.mirrored(cifar100), *map(photos.mirrored, sheets[:-1])]
    return [(one, len(one.keys)) for one in sets]


def extract_all(encoder: Encoder, sources: Path, cache: Path, threads: int, log: Log, limit: int | None = None) -> None:
    """Encode what is not in the cache yet: of each set what the plan says, at most `limit` photos."""
    cache.mkdir(parents=True, exist_ok=True)
    plan = [(one, min(until, limit or until)) for one, until in encoder.plan(sources)]
    wanted = {one.name: max(until for other, until in plan if other.name == one.name) for one, _ in plan}
    progress = Progress(sum(wanted.values()), {one.name: _done(one, cache) for one, _ in plan}, log)
    if all(progress.done[name] >= count for name, count in wanted.items()):
        return
    encode = encoder.open(sources, cache, threads)
    for photo_set, until in plan:
        extract(photo_set, until, encoder, encode, cache, progress)


class Progress:
    """Tells how far the encoding is: photos done, rate and time left over all sets."""

    def __init__(self, wanted: int, done: dict[str, int], log: Log) -> None:
        self.wanted, self.done, self.log = wanted, done, log
        self.first, self.began = sum(done.values()), time.monotonic()

    def tell(self, name: str, done: int, of: int) -> None:
        """Write one line."""
        self.done[name] = done
        photos = sum(self.done.values())
        rate = (photos - self.first) / max(time.monotonic() - self.began, 1e-9)
        minutes = max(0, self.wanted - photos) / rate / 60
        left = f"{int(minutes // 60)} h {int(minutes % 60)} min"
        self.log.write(
            "features", set=name, done=done, of=of, photos=photos, of_all=self.wanted, rate=rate, time_left=left
        )


def extract(photo_set: PhotoSet, until: int, encoder: Encoder, encode: Encode, cache: Path, progress: Progress) -> None:
    """Encode the first photos of one set, as far as they are not in the cache yet."""
    index = cache / f"{photo_set.name}.json"
    n = len(photo_set.keys)
    done = _done(photo_set, cache)
    if done >= until:
        return
    mode = "r+" if done else "w+"
    features = np.lib.format.open_memmap(cache / f"{photo_set.name}.npy", mode, np.float16, (n, encoder.numbers))
    colours = np.lib.format.open_memmap(cache / f"{photo_set.name}-colours.npy", mode, np.float16, (n, COLOURS))
    while done < until:
        stop = min(done + encoder.chunk, until)
        for start in range(done, stop, encoder.batch):
            rows = slice(start, min(start + encoder.batch, stop))
            pixels = np.stack([encoder.prepare(photo_set.picture(i)) for i in range(rows.start, rows.stop)])
            features[rows] = encode(pixels)
            colours[rows] = colour_shares(pixels)
        features.flush()
        colours.flush()
        done = stop
        part = index.with_suffix(".part")
        part.write_text(json.dumps({"done": done, "keys": photo_set.keys}))
        part.rename(index)
        progress.tell(photo_set.name, done, until)


def _done(photo_set: PhotoSet, cache: Path) -> int:
    """How many photos of this set are in the cache."""
    index = cache / f"{photo_set.name}.json"
    if not index.exists():
        return 0
    facts = json.loads(index.read_text())
    if tuple(facts["keys"]) != photo_set.keys:
        raise ValueError(f"{index} lists other photos than the sources have now; delete it to encode them again")
    return int(facts["done"])


def load(name: str, cache: Path) -> Encoded:
    """Read what the cache has of a set."""
    facts = json.loads((cache / f"{name}.json").read_text())
    features = np.load(cache / f"{name}.npy", mmap_mode="r")
    colours = np.load(cache / f"{name}-colours.npy", mmap_mode="r")
    done = facts["done"]
    return Encoded(tuple(facts["keys"][:done]), features[:done], colours[:done])
