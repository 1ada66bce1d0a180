"""What travels between the stages: the model's card, scores, data sets, the ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsee.errors import InputError, unknown
from unsee.images import Images

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Card:
    """What the provider of a model publishes; all that tuning may know of it beforehand."""

    name: str
    fingerprint: str
    width: int  # D, of one token embedding
    token_mean: Floats  # (D,)
    token_std: float  # over every entry of the token table
    token_limit: int  # positions, start and end tokens included


@dataclass(frozen=True)
class Scores:
    """H, Err_for and Acc_mem as fractions in [0, 1]."""

    h: float
    err_for: float
    acc_mem: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Data:
    """A data set: images to tune on and images to test on, over the same classes."""

    name: str
    train: Images
    test: Images

    def __post_init__(self) -> None:
        if self.train.class_names != self.test.class_names:
            raise InputError(f"data {self.name!r}: train and test must have the same classes")

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names

    @property
    def fingerprint(self) -> str:
        """Hash of class names, labels and image names; pixels are not read."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.train, self.test):
            digest.update("\0".join(part.class_names).encode())
            digest.update(np.ascontiguousarray(part.labels, dtype=np.int64).tobytes())
            digest.update(part.listing_digest())
        return digest.hexdigest()


@dataclass
class Ledger:
    """What a run has cost the provider of the model so far."""

    candidates: int = 0  # prompts tried on all images
    generations: int = 0
    prompts_encoded: int = 0  # texts through the text tower: candidates x classes
    image_queries: int = 0  # one image scored under one prompt
    images_encoded: int = 0  # forward passes of the image tower
    images_from_cache: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def forget_mask(class_names: Sequence[str], forget: Sequence[str]) -> Mask:
    """True for each class to forget; refuses unknown names, and forgetting all or nothing."""
    names = [name.replace("_", " ") for name in class_names]
    wanted = [name.replace("_", " ").strip() for name in forget]
    for name in wanted:
        if name not in names:
            raise InputError(unknown("class to forget", name, names))
    mask = np.array([name in wanted for name in names], dtype=np.bool_)
    if not mask.any():
        raise InputError(f"no class to forget was named; the data has: {', '.join(names[:12])}")
    if mask.all():
        raise InputError(f"all {len(names)} classes are to be forgotten; at least one must be kept")
    return mask


@dataclass(frozen=True)
class Generation:
    """One step of a run: enough to replay the search without asking the model again."""

    number: int  # from 1
    losses: Doubles  # (b,)
    candidates: int  # so far
    chosen: int | None = None  # index of the candidate that became the best so far
    valid: Scores | None = None  # best validation scores so far
    partial: bool = False  # the budget ended inside this generation
    ledger: dict[str, int] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    def summary(self) -> dict[str, Any]:
        """The journal's line."""
        return {
            "generation": self.number,
            "candidates": self.candidates,
            "best_loss": float(self.losses.min()),
            "mean_loss": float(self.losses.mean()),
            "valid_h": None if self.valid is None else self.valid.h,
            "seconds": round(self.seconds, 3),
        }
