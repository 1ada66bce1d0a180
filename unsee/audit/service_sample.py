"""Which test images a service is asked about: each costs a question and its time, so as few as tell enough.

A key that may only classify sends images one by one, for every question again.
"""

from __future__ import annotations

import numpy as np

from unsee.seeds import stream
from unsee.types import Ints, Mask

ASKED_FORGOTTEN, EACH_ASKED, ASKED_KEPT = 1000, 200, 600  # of all test images, asked about as usual
ASKED_OFTEN, EACH_OFTEN = 100, 75  # of forgotten classes, and of kept ones, for parts that ask many times


def usual_rows(labels: Ints, forget: Mask, seed: int) -> Ints:
    """Rows of test images to ask a service about."""
    return _draw(labels, forget, seed, _each(ASKED_FORGOTTEN, forget, EACH_ASKED), _each(ASKED_KEPT, ~forget))


def few_rows(labels: Ints, forget: Mask, seed: int) -> Ints:
    """Rows of them to ask about many times."""
    return _draw(labels, forget, seed, _each(ASKED_OFTEN, forget, EACH_OFTEN), _each(ASKED_OFTEN, ~forget, EACH_OFTEN))


def _each(total: int, side: Mask, most: int | None = None) -> int:
    """How many of each class, at least one."""
    found = max(1, total // max(1, int(side.sum())))
    return found if most is None else min(found, most)


def _draw(labels: Ints, forget: Mask, seed: int, forgotten: int, kept: int) -> Ints:
    rng = stream(seed, "audit sample")
    rows = [rng.permutation(np.flatnonzero(labels == c))[: forgotten if forget[c] else kept] for c in np.unique(labels)]
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)
