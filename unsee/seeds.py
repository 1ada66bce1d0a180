"""One seed, many named random streams; the global generators are never touched."""

from __future__ import annotations

import zlib

import numpy as np

from unsee.errors import InputError


def stream(seed: int, name: str, index: int = 0) -> np.random.Generator:
    """The generator of this name under this seed: the same numbers wherever it is asked for.

    Names keep the parts of a run independent: drawing more for one never shifts another.
    """
    if seed < 0:
        raise InputError(f"seed must not be negative, but is {seed}")
    return np.random.default_rng([seed, zlib.crc32(name.encode()), index])
