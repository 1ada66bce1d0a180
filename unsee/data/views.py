"""Random views of images, as training loaders make them: a crop of random size and shape, mirrored or not.

The crop is that of CoOp's own configuration: 8 to 100 % of the area (CBBT's: 50 to 100 %), sides in a ratio of 3:4 to
4:3, made square. The model's own preprocessing follows. A view is a function of seed, number and image, so it can be
cached and made again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageOps

from unsee.data.images import Images, PixelSource, as_rgb
from unsee.seeds import stream

LEAST_AREA = 0.08  # of a crop, as a share of the image
RATIO = (3 / 4, 4 / 3)  # of width to height
CROP_TRIES = 10  # of a crop that fits, before the middle of the image is taken


@dataclass(frozen=True)
class ViewSource:
    """One random view of every image of another source."""

    source: PixelSource
    seed: int
    number: int
    least: float = LEAST_AREA

    def __len__(self) -> int:
        return len(self.source)

    def name(self, i: int) -> str:
        return f"{self.source.name(i)} (view {self.number})"

    def key(self, i: int) -> str:
        return f"{self.source.key(i)} (view {self.number})"

    def digest(self, i: int) -> bytes:
        recipe = f"{(self.least, 1.0)}|{RATIO}|{CROP_TRIES}|{self.seed}|{self.number}|{i}|"
        return hashlib.blake2b(recipe.encode() + self.source.digest(i), digest_size=16).digest()

    def read(self, i: int) -> Image.Image:
        image, rng = as_rgb(self.source.read(i)), stream(self.seed, f"view {self.number}", i)
        left, top, width, height = random_box(image.size, rng, self.least)
        side = max(width, height)
        box = (left, top, left + width, top + height)
        square = image.resize((side, side), Image.Resampling.BICUBIC, box=box)
        return ImageOps.mirror(square) if rng.random() < 0.5 else square


def random_view(images: Images, seed: int, number: int, least: float = LEAST_AREA) -> Images:
    """The view of this number of every image, labels and order kept."""
    return replace(images, source=ViewSource(images.source, seed, number, least))


def random_box(size: tuple[int, int], rng: np.random.Generator, least: float = LEAST_AREA) -> tuple[int, int, int, int]:
    """Left, top, width and height of a random crop of an image of this size."""
    wide, high = size
    for _ in range(CROP_TRIES):
        area = wide * high * rng.uniform(least, 1.0)
        ratio = np.exp(rng.uniform(*np.log(RATIO)))
        width, height = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < width <= wide and 0 < height <= high:
            return int(rng.integers(wide - width + 1)), int(rng.integers(high - height + 1)), width, height
    width, height = max(1, min(wide, round(high * RATIO[1]))), max(1, min(high, round(wide / RATIO[0])))
    return (wide - width) // 2, (high - height) // 2, width, height
