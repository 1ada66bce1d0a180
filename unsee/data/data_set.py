"""A data set: images to tune on, images to test on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from unsee.data.images import Images
from unsee.errors import InputError


@dataclass(frozen=True)
class Data:
    """A data set: images to tune on and images to test on, over the same classes."""

    name: str
    train: Images
    test: Images
    split_seed: int | None = None  # the seed that divided one set of class folders into train and test
    names: Mapping[str, str] = field(default_factory=dict)  # folder or label -> class name, where they were given

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            if not isinstance(getattr(self, part), Images):
                raise InputError(f"data {self.name!r}: {part} must be Images, not {getattr(self, part)!r}")
        if self.train.class_names != self.test.class_names:
            raise InputError(f"data {self.name!r}: train and test must have the same classes")

    def __repr__(self) -> str:
        parts = f"{len(self.train)} training and {len(self.test)} test images"
        return f"Data({self.name!r}, {len(self.class_names)} classes, {parts})"

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.train.class_names

    @cached_property
    def listing(self) -> str:
        """Hash of class names, labels and image names; no image is opened."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.train, self.test):
            digest.update("\0".join(part.class_names).encode())
            digest.update(np.ascontiguousarray(part.labels, dtype=np.int64).tobytes())
            digest.update(part.listing_digest())
        return digest.hexdigest()

    @cached_property
    def test_pixels(self) -> str:
        """Hash of the content of every test image."""
        return self.test.content_digest()
