"""CIFAR's batches: files that each hold thousands of 32 x 32 images, read when one of them is first asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from unsee.data.images import Images, labelled
from unsee.data.pickles import read_pickle
from unsee.errors import DataError

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """How a CIFAR set is cut into batches, and what its checksums are."""

    title: str
    class_names: tuple[str, ...]
    key: str  # of the labels in a python batch
    label_bytes: int  # before the pixels of a binary record; the last of them is the label
    train: tuple[str, ...]  # batches
    test: tuple[str, ...]
    size: Mapping[str, int]  # images in a batch
    forms: Mapping[str, tuple[str, str, tuple[str, ...]]]  # form -> (folder, ending, further files)
    again: str  # how to get it again
    pixel_seals: Mapping[str, str] = field(default_factory=dict)  # sha256 of a batch's pixels, whatever the form
    file_seals: Mapping[str, str] = field(default_factory=dict)  # published md5 of a file of the python form


@dataclass(frozen=True)
class BatchSource:
    """Images in batches of one size, each read when first needed."""

    files: tuple[Path, ...]
    size: int
    read_batch: tuple[Callable[[], Pixels], ...]
    _kept: dict[int, Pixels] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return self.size * len(self.files)

    def name(self, i: int) -> str:
        return f"{self.files[i // self.size]}[{i % self.size}]"

    def key(self, i: int) -> str:
        return f"{self.files[i // self.size].stem}[{i % self.size}]"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b(b"32x32" + self._pixels(i).tobytes(), digest_size=16).digest()

    def read(self, i: int) -> Image.Image:
        return Image.fromarray(self._pixels(i))

    def _pixels(self, i: int) -> Pixels:
        batch = i // self.size
        if batch not in self._kept:
            self._kept[batch] = self.read_batch[batch]()
        found: Pixels = self._kept[batch][i % self.size]
        return found


def find_batches(layout: Layout, folder: Path) -> str | None:
    """Which form of the batches is in this folder, if any is complete."""
    for form, (below, suffix, more) in layout.forms.items():
        wanted = (*(part + suffix for part in (*layout.train, *layout.test)), *more)
        if all((folder / below / name).is_file() for name in wanted):
            return form
    return None


def read_batches(layout: Layout, folder: Path, form: str, parts: tuple[str, ...]) -> Images:
    """The images of some batches: labels now, pixels when asked for."""
    below, suffix, _ = layout.forms[form]
    files = tuple(folder / below / (part + suffix) for part in parts)
    size = layout.size[parts[0]]
    try:
        labels = _LABELS[form](layout, files, size)
    except OSError as error:
        raise DataError(f"{error.filename or files[0].parent}: {error.strerror or error}") from None
    if labels.shape != (size * len(files),) or labels.min() < 0 or labels.max() >= len(layout.class_names):
        raise DataError(f"{files[0].parent}: the labels of {', '.join(parts)} are damaged")
    readers = tuple(partial(_sealed, layout, form, path, part) for path, part in zip(files, parts, strict=True))
    return labelled(BatchSource(files, size, readers), labels, layout.class_names)


def _sealed(layout: Layout, form: str, path: Path, part: str) -> Pixels:
    shape, seal = (layout.size[part], 32, 32, 3), layout.pixel_seals.get(part)
    try:
        pixels = np.ascontiguousarray(_PIXELS[form](layout, path, part))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    if pixels.shape != shape:
        raise DataError(f"{path}: holds pixels of shape {pixels.shape}, not {shape}")
    if seal is not None and hashlib.sha256(pixels.tobytes()).hexdigest() != seal:
        raise DataError(f"{path}: its pixels are not {layout.title}'s (checksum); {layout.again}")
    return pixels


def _binary(layout: Layout, path: Path, size: int) -> Pixels:
    """Records of label bytes and 3072 colour bytes, channel by channel."""
    raw, record = np.fromfile(path, dtype=np.uint8), layout.label_bytes + 3072
    if raw.size != size * record:
        raise DataError(
            f"{path}: is {raw.size} bytes long, not {size * record}; it is damaged, or not a {layout.title} batch"
        )
    return raw.reshape(size, record)


def _binary_pixels(layout: Layout, path: Path, part: str) -> Pixels:
    return (
        _binary(layout, path, layout.size[part])[:, layout.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    )


def _binary_labels(layout: Layout, files: tuple[Path, ...], size: int) -> Labels:
    # Copied out, so that the pixels read along are let go at once.
    return np.concatenate([_binary(layout, path, size)[:, layout.label_bytes - 1].astype(np.int64) for path in files])


def read_python(layout: Layout, path: Path) -> dict[Any, Any]:
    """What a file of the python form holds; it is unpickled only if it is the published one."""
    content, seal = path.read_bytes(), layout.file_seals.get(path.name)
    if seal is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != seal:
        raise DataError(f"{path}: is not {layout.title}'s (its md5 is not {seal}); {layout.again}")
    return read_pickle(path, content)


def _python_pixels(layout: Layout, path: Path, part: str) -> Pixels:
    shape, data = (layout.size[part], 3072), read_python(layout, path).get(b"data")
    if not isinstance(data, np.ndarray) or data.shape != shape:
        raise DataError(f"{path}: holds no uint8 'data' of shape {shape}")
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def _python_labels(layout: Layout, files: tuple[Path, ...], size: int) -> Labels:
    labels: list[int] = []
    for path in files:
        own = read_python(layout, path).get(layout.key.encode())
        if not isinstance(own, list) or not all(isinstance(label, int) for label in own):
            raise DataError(f"{path}: holds no list of '{layout.key}'")
        labels += own
    return np.array(labels, dtype=np.int64)


def _sheet_pixels(layout: Layout, path: Path, part: str) -> Pixels:
    """One image a row: a picture 1024 pixels wide and 10,000 high."""
    try:
        with Image.open(path, formats=("PNG",)) as sheet:
            return np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error})") from None


def _sheet_labels(layout: Layout, files: tuple[Path, ...], size: int) -> Labels:
    kind = "test" if files[0].stem in layout.test else "train"
    path = files[0].with_name(f"{kind}_lables.json")
    try:
        return np.array(json.loads(path.read_text(encoding="utf-8")), dtype=np.int64)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error})") from None


_LABELS: dict[str, Callable[[Layout, tuple[Path, ...], int], Labels]] = {
    "binary": _binary_labels,
    "python": _python_labels,
    "sheets": _sheet_labels,
}
_PIXELS: dict[str, Callable[[Layout, Path, str], Pixels]] = {
    "binary": _binary_pixels,
    "python": _python_pixels,
    "sheets": _sheet_pixels,
}
