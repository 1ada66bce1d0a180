"""Colours and light measured from pixels, in words that a description may use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COLOUR_NAMES = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "gray")
MEASURES = ("brightness", "contrast")
COLOURS = len(COLOUR_NAMES) + len(MEASURES)
STRIDE = 5


def colour_shares(pixels: NDArray[np.uint8]) -> NDArray[np.float16]:
    """The share of each colour name in each photo (n, s, s, 3), then mean and spread of brightness in 0..1."""
    rgb = pixels[:, ::STRIDE, ::STRIDE].astype(np.float32) / 255
    high, low = rgb.max(-1), rgb.min(-1)
    chroma = high - low
    safe = np.maximum(chroma, 1e-6)
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    hue = np.where(
        high == red,
        ((green - blue) / safe) % 6,
        np.where(high == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )  # 0..6
    saturation = chroma / np.maximum(high, 1e-6)
    dark, plain = high < 0.2, saturation < 0.18
    warm = (hue < 0.9) | (hue >= 5.8)
    brown = warm & (high < 0.62) & (saturation < 0.75)
    kinds = [
        dark,
        plain & (high > 0.8),
        plain,
        brown,
        (hue >= 5.2) | ((hue < 0.35) & (saturation < 0.55)),
        hue < 0.35,
        hue < 0.75,
        hue < 1.15,
        hue < 2.8,
        hue < 4.3,
    ]
    names = ["black", "white", "gray", "brown", "pink", "red", "orange", "yellow", "green", "blue"]
    order = np.array([COLOUR_NAMES.index(name) for name in names])
    which = np.select(kinds, order, default=COLOUR_NAMES.index("purple"))
    shares = np.stack([(which == k).mean((1, 2)) for k in range(len(COLOUR_NAMES))], -1)
    grey = rgb.mean(-1)
    return np.concatenate([shares, np.stack([grey.mean((1, 2)), grey.std((1, 2))], -1)], -1).astype(np.float16)
