"""Features of the frozen image encoder and the colours of each photo, computed once and kept in the work folder.

`<set>.npy` holds features (n, numbers) in float16, `<set>-colours.npy` shares of colours and light (n, COLOURS),
`<set>.json` the keys and how many photos are done. A stopped extraction resumes at the last full chunk. Features of photos that
the package reads too are in float32, and go into the package's cache as well.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from training import photos
from training.colours import COLOURS, colour_shares
from training.photos import PhotoSet
from training.record import Log
from unsee.models.features import FeatureCache

if TYPE_CHECKING:
    from training.encoders import Encoder

CIFAR10_SHEETS = tuple(f"data_batch_{i}" for i in range(1, 6))
HELD_SHEET = CIFAR10_SHEETS[-1]
"""Not trained on, so that models can be chosen on it."""

Encode = Callable[[NDArray[np.uint8]], NDArray[np.float32]]
"""Pixels (n, side, side, 3) to features (n, numbers)."""
Plan = list[tuple[PhotoSet, int]]
"""Photo sets in the order they are encoded, each with how many of its photos are to be done by then."""
ChunkTask = tuple[int, int, int]
"""Place in the plan, first photo, the one behind the last."""
Chunk = tuple[NDArray[np.float32], NDArray[np.float16]]
"""Features and colours."""


@dataclass(frozen=True)
class Encoded:
    """The features of one photo set."""

    keys: tuple[str, ...]
    features: NDArray[np.floating]  # (n, numbers)
    colours: NDArray[np.float16]  # (n, COLOURS)


def mini_plan(sources: Path) -> Plan:
    """Every photo set that `mini` reads, most useful first."""
    sheets = [photos.cifar10(sources, sheet) for sheet in CIFAR10_SHEETS]
    cifar100 = photos.cifar100(sources)
    sets = [cifar100, *sheets, photos.flickr8k(sources), photos.imagenet_val(sources)]
    sets += [photos.imagenet_samples(sources), photos.coco(sources), photos.tiny_imagenet(sources)]
    sets += [photos.mirrored(cifar100), *map(photos.mirrored, sheets[:-1])]
    return [(one, len(one.keys)) for one in sets]


def extract_all(
    encoder: Encoder,
    sources: Path,
    cache: Path,
    threads: int,
    log: Log,
    limit: int | None = None,
    workers: int = 1,
    shared: FeatureCache | None = None,
    tests: bool = True,
) -> None:
    """Encode what is not in the cache yet: of each set what the plan says, at most `limit` photos.

    workers: processes that encode, each with its own session. shared: the package's cache, which gets the photos that the package
    reads. tests: whether sets that training does not read are encoded too.
    """
    cache.mkdir(parents=True, exist_ok=True)
    plan = encoder.plan(sources)
    fingerprint = encoder.fingerprint(sources) if shared is not None and encoder.fingerprint is not None else ""
    sets = {one.name: SetFile(one, encoder.numbers, cache, shared, fingerprint) for one, _ in plan}
    tasks, planned = [], {name: file.done for name, file in sets.items()}
    for number, (one, until) in enumerate(plan):
        if one.to_test and not tests:
            continue
        start, stop = planned[one.name], min(until, limit or until)
        tasks += [(number, i, min(i + encoder.chunk, stop)) for i in range(start, stop, encoder.chunk)]
        planned[one.name] = max(start, stop)
    progress = Progress(sum(planned.values()), {name: file.done for name, file in sets.items()}, log)
    if not tasks:
        return
    with _encoding(encoder, plan, sources, cache, threads, workers) as encode:
        for (number, _, stop), (features, colours) in zip(tasks, encode(tasks), strict=True):
            name = plan[number][0].name
            sets[name].append(features, colours)
            progress.tell(name, stop, plan[number][1])


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


class SetFile:
    """The files of one photo set in the cache; opening it shares what it has with the package's cache."""

    def __init__(
        self, photo_set: PhotoSet, numbers: int, cache: Path, shared: FeatureCache | None = None, fingerprint: str = ""
    ) -> None:
        self.photo_set, self.cache = photo_set, cache
        self.index = cache / f"{photo_set.name}.json"
        self.shared = shared if photo_set.digest is not None else None
        self.fingerprint = fingerprint
        self.done = _done(photo_set, cache)
        kind = np.float16 if photo_set.digest is None else np.float32  # the package keeps all digits
        self._shapes = {"": (kind, numbers), "-colours": (np.float16, COLOURS)}
        if self.done:
            self._share(0, np.load(cache / f"{photo_set.name}.npy", mmap_mode="r")[: self.done])

    def append(self, features: NDArray[np.float32], colours: NDArray[np.float16]) -> None:
        """Add the next photos; they count once the index is written."""
        start, stop = self.done, self.done + len(features)
        for (ending, (kind, numbers)), values in zip(self._shapes.items(), (features, colours), strict=True):
            path, shape = self.cache / f"{self.photo_set.name}{ending}.npy", (len(self.photo_set.keys), numbers)
            table = np.lib.format.open_memmap(path, "r+" if start else "w+", kind, shape)
            table[start:stop] = values
            table.flush()
        self._share(start, features)
        part = self.index.with_suffix(".part")
        part.write_text(json.dumps({"done": stop, "keys": self.photo_set.keys}))
        part.rename(self.index)
        self.done = stop

    def _share(self, start: int, features: NDArray[np.float32]) -> None:
        """Give the package the rows that its cache lacks."""
        if self.shared is None or self.photo_set.digest is None:
            return
        keys = [self.photo_set.digest(start + i) for i in range(len(features))]
        known = self.shared.get(self.fingerprint, keys)
        rows = [(key, features[i]) for i, key in enumerate(keys) if i not in known]
        if rows:
            self.shared.put(self.fingerprint, rows)


@contextmanager
def _encoding(
    encoder: Encoder, plan: Plan, sources: Path, cache: Path, threads: int, workers: int
) -> Iterator[Callable[[list[ChunkTask]], Iterable[Chunk]]]:
    """Encodes chunks, in their order: in this process, or in several that each read the plan and open the encoder."""
    if workers == 1:
        alone = ChunkEncoder(encoder, plan, encoder.open(sources, cache, threads))
        yield lambda tasks: map(alone, tasks)
        return
    start = (encoder, sources, cache, threads)
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, start)
    try:
        yield lambda tasks: pool.map(_encode, tasks)
    finally:
        pool.shutdown(cancel_futures=True)


class ChunkEncoder:
    """Encodes photos of a plan by their numbers."""

    def __init__(self, encoder: Encoder, plan: Plan, encode: Encode) -> None:
        self.encoder, self.plan, self.encode = encoder, plan, encode

    def __call__(self, task: ChunkTask) -> Chunk:
        number, start, stop = task
        photo_set = self.plan[number][0]
        features, colours = [], []
        for first in range(start, stop, self.encoder.batch):
            rows = range(first, min(first + self.encoder.batch, stop))
            pixels = np.stack([self.encoder.prepare(photo_set.picture(i)) for i in rows])
            features.append(self.encode(pixels))
            colours.append(colour_shares(pixels))
        return np.concatenate(features), np.concatenate(colours)


_worker: list[ChunkEncoder] = []
"""Of a worker process: its one encoder."""


def _start(encoder: Encoder, sources: Path, cache: Path, threads: int) -> None:
    _worker.append(ChunkEncoder(encoder, encoder.plan(sources), encoder.open(sources, cache, threads)))


def _encode(task: ChunkTask) -> Chunk:
    return _worker[0](task)


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
