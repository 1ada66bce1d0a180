"""Features of the frozen image encoder and the colours of each photo, computed once and kept in the work folder.

`<set>.npy` holds features (n, FEATURES) in float16, `<set>-colours.npy` shares of colours and light (n, COLOURS),
`<set>.json` the keys and how many photos are done. A stopped extraction resumes at the last full chunk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from training import photos
from training.colours import COLOURS, colour_shares
from training.image_graph import FEATURES, SIDE, save_feature_graph
from training.photos import PhotoSet
from training.record import Log

CHUNK = 512
BATCH = 16
CIFAR10_SHEETS = tuple(f"data_batch_{i}" for i in range(1, 6))
HELD_SHEET = CIFAR10_SHEETS[-1]
"""Not trained on, so that models can be chosen on it."""


@dataclass(frozen=True)
class Encoded:
    """The features of one photo set."""

    keys: tuple[str, ...]
    features: NDArray[np.float16]  # (n, FEATURES)
    colours: NDArray[np.float16]  # (n, COLOURS)


def sets(sources: Path) -> Iterator[PhotoSet]:
    """Every photo set that training reads, most useful first."""
    yield photos.cifar100(sources)
    for sheet in CIFAR10_SHEETS:
        yield photos.cifar10(sources, sheet)
    yield photos.flickr8k(sources)
    yield photos.imagenet_val(sources)
    yield photos.imagenet_samples(sources)
    yield photos.coco(sources)
    yield photos.tiny_imagenet(sources)
    yield photos.mirrored(photos.cifar100(sources))
    for sheet in CIFAR10_SHEETS:
        if sheet != HELD_SHEET:
            yield photos.mirrored(photos.cifar10(sources, sheet))


def extract(photo_set: PhotoSet, cache: Path, threads: int, log: Log) -> None:
    """Encode what is not in the cache yet."""
    cache.mkdir(parents=True, exist_ok=True)
    index = cache / f"{photo_set.name}.json"
    n = len(photo_set.keys)
    done = json.loads(index.read_text())["done"] if index.exists() else 0
    if done == n:
        return
    session = open_encoder(cache, threads)
    mode = "r+" if done else "w+"
    features = np.lib.format.open_memmap(cache / f"{photo_set.name}.npy", mode, np.float16, (n, FEATURES))
    colours = np.lib.format.open_memmap(cache / f"{photo_set.name}-colours.npy", mode, np.float16, (n, COLOURS))
    began, first = time.monotonic(), done
    while done < n:
        stop = min(done + CHUNK, n)
        for start in range(done, stop, BATCH):
            rows = slice(start, min(start + BATCH, stop))
            pixels = np.stack([resized(photo_set.picture(i)) for i in range(rows.start, rows.stop)])
            features[rows] = session.run(None, {"pixels": pixels})[0]
            colours[rows] = colour_shares(pixels)
        features.flush()
        colours.flush()
        done = stop
        part = index.with_suffix(".part")
        part.write_text(json.dumps({"done": done, "keys": photo_set.keys}))
        part.rename(index)
        log.write("features", set=photo_set.name, done=done, of=n, rate=(done - first) / (time.monotonic() - began))


def load(name: str, cache: Path) -> Encoded:
    """Read a finished set from the cache."""
    facts = json.loads((cache / f"{name}.json").read_text())
    features = np.load(cache / f"{name}.npy", mmap_mode="r")
    colours = np.load(cache / f"{name}-colours.npy", mmap_mode="r")
    done = facts["done"]
    return Encoded(tuple(facts["keys"][:done]), features[:done], colours[:done])


def resized(picture: Image.Image) -> NDArray[np.uint8]:
    """RGB pixels (SIDE, SIDE, 3), squeezed by Pillow's bicubic rule, as the package prepares a photo."""
    return np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def open_encoder(cache: Path, threads: int) -> onnxruntime.InferenceSession:
    """The frozen encoder, written to the cache if it is not there yet."""
    graph = cache / "encoder.onnx"
    if not graph.exists():
        save_feature_graph(graph)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
