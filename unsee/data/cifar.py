"""CIFAR-10 in the forms it is handed out in; all three hold the same images in the same order.

| form    | files                                                                    |
|---------|--------------------------------------------------------------------------|
| binary  | cifar-10-batches-bin/data_batch_1..5.bin, test_batch.bin                 |
| python  | cifar-10-batches-py/data_batch_1..5, test_batch (pickles, read without executing anything) |
| sheets  | data_batch_1..5.png, test_batch.png, train_lables.json, test_lables.json |

Labels are read at once; a batch of pixels only when one of its images is asked for.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from unsee.data.names import CIFAR10
from unsee.errors import DataError
from unsee.images import Images, labelled
from unsee.records import Data

BATCH = 10_000
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
PARTS = (*TRAIN, "test_batch")
Pixels = NDArray[np.uint8]
# Of each batch's pixels (10000, 32, 32, 3), whatever the form: a damaged copy is never used.
SEALS = {
    "data_batch_1": "fc115a3de050d667b88cbd5b0b9612ebf996c54230fe7758f3a14bb5af9a1c27",
    "data_batch_2": "89e609b642f687bc796fa3bfa4211005582a0e8131d463d996d11ddb297d312e",
    "data_batch_3": "93a365823e61729490a8801d80864ccd0ab1e8c98f19d71af65644d1c5f1486e",
    "data_batch_4": "809eb95ecd057a36516318f5023ea619009dd70dd38193db9da43125a928e6fa",
    "data_batch_5": "d05b7d66d216d6df882cc760cdc0ff2f1f0437abf699ed16005c021ef0add9cb",
    "test_batch": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
}


def find_cifar10(folder: Path) -> str | None:
    """Which form of CIFAR-10 lies in this folder, if any."""
    for form, (below, suffix, more) in _FORMS.items():
        if all((folder / below / name).is_file() for name in (*(part + suffix for part in PARTS), *more)):
            return form
    return None


def load_cifar10(folder: Path, seals: dict[str, str] | None = None) -> Data:
    """CIFAR-10 from a folder that holds one of its forms; seals: checksums to hold each batch to."""
    form = find_cifar10(folder)
    if form is None:
        raise DataError(f"no CIFAR-10 in {folder}; get it with: unsee data get cifar10")
    seals = SEALS if seals is None else seals
    return Data("cifar10", _images(folder, form, TRAIN, seals), _images(folder, form, ("test_batch",), seals))


@dataclass(frozen=True)
class BatchSource:
    """Images in batches of 10,000, each read when first needed."""

    files: tuple[Path, ...]
    read_batch: tuple[Callable[[], Pixels], ...]
    _kept: dict[int, Pixels] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return BATCH * len(self.files)

    def name(self, i: int) -> str:
        return f"{self.files[i // BATCH]}[{i % BATCH}]"

    def key(self, i: int) -> str:
        return f"{self.files[i // BATCH].stem}[{i % BATCH}]"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b(b"32x32" + self._pixels(i).tobytes(), digest_size=16).digest()

    def read(self, i: int) -> Image.Image:
        return Image.fromarray(self._pixels(i))

    def _pixels(self, i: int) -> Pixels:
        batch = i // BATCH
        if batch not in self._kept:
            self._kept[batch] = self.read_batch[batch]()
        found: Pixels = self._kept[batch][i % BATCH]
        return found


def _images(folder: Path, form: str, parts: tuple[str, ...], seals: dict[str, str]) -> Images:
    below, suffix, _ = _FORMS[form]
    files = tuple(folder / below / (part + suffix) for part in parts)
    labels = _LABELS[form](files)
    if labels.shape != (BATCH * len(files),) or labels.min() < 0 or labels.max() > 9:
        raise DataError(f"{files[0].parent}: the labels of {', '.join(parts)} are damaged")
    readers = tuple(partial(_sealed, form, path, seals.get(part)) for path, part in zip(files, parts, strict=True))
    return labelled(BatchSource(files, readers), labels, CIFAR10)


def _sealed(form: str, path: Path, seal: str | None) -> Pixels:
    pixels = np.ascontiguousarray(_PIXELS[form](path))
    if pixels.shape != (BATCH, 32, 32, 3):
        raise DataError(f"{path}: holds pixels of shape {pixels.shape}, not {(BATCH, 32, 32, 3)}")
    if seal is not None and hashlib.sha256(pixels.tobytes()).hexdigest() != seal:
        raise DataError(f"{path}: its pixels are not CIFAR-10's (checksum); get it anew: unsee data get cifar10")
    return pixels


def _binary(path: Path) -> Pixels:
    """Records of a label byte and 3072 colour bytes, channel by channel."""
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size != BATCH * 3073:
        raise DataError(f"{path}: is {raw.size} bytes long, not {BATCH * 3073}; it is torn or no CIFAR-10 batch")
    return raw.reshape(BATCH, 3073)


def _binary_pixels(path: Path) -> Pixels:
    return _binary(path)[:, 1:].reshape(BATCH, 3, 32, 32).transpose(0, 2, 3, 1)


def _binary_labels(files: tuple[Path, ...]) -> NDArray[np.int64]:
    return np.concatenate([_binary(path)[:, 0] for path in files]).astype(np.int64)


def _python_pixels(path: Path) -> Pixels:
    found = read_pickle(path)
    data = found.get(b"data", found.get("data"))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (BATCH, 3072):
        raise DataError(f"{path}: holds no uint8 'data' of shape {(BATCH, 3072)}")
    return data.reshape(BATCH, 3, 32, 32).transpose(0, 2, 3, 1)


def _python_labels(files: tuple[Path, ...]) -> NDArray[np.int64]:
    labels: list[int] = []
    for path in files:
        found = read_pickle(path)
        own = found.get(b"labels", found.get("labels"))
        if not isinstance(own, list) or not all(isinstance(label, int) for label in own):
            raise DataError(f"{path}: holds no list of 'labels'")
        labels += own
    return np.array(labels, dtype=np.int64)


def _sheet_pixels(path: Path) -> Pixels:
    """One image a row: a picture 1024 pixels wide and 10,000 high."""
    try:
        with Image.open(path) as sheet:
            return np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error})") from None


def _sheet_labels(files: tuple[Path, ...]) -> NDArray[np.int64]:
    kind = "test" if files[0].stem == "test_batch" else "train"
    path = files[0].with_name(f"{kind}_lables.json")
    try:
        return np.array(json.loads(path.read_text(encoding="utf-8")), dtype=np.int64)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error})") from None


class _OnlyArrays(pickle.Unpickler):
    """Unpickles numbers, texts, lists, dictionaries and NumPy arrays; anything else in the file is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("_codecs", "encode"):
            return _latin
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _latin(text: str, encoding: str = "latin1") -> bytes:
    """How Python 2's byte strings stand in newer pickles."""
    return text.encode("latin1")


def read_pickle(path: Path) -> dict[Any, Any]:
    """A CIFAR batch in its python form, read without executing anything in it."""
    try:
        with warnings.catch_warnings():  # NumPy 2 calls the files' old dtype spelling deprecated
            warnings.simplefilter("ignore")
            found = _OnlyArrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except pickle.UnpicklingError as error:
        raise DataError(f"{path}: refused, it holds more than data ({error})") from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(f"{path}: torn or no CIFAR batch ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: no CIFAR batch (not a dictionary)")
    return found


_FORMS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "binary": ("cifar-10-batches-bin", ".bin", ()),
    "python": ("cifar-10-batches-py", "", ()),
    "sheets": ("", ".png", ("train_lables.json", "test_lables.json")),
}
_LABELS: dict[str, Callable[[tuple[Path, ...]], NDArray[np.int64]]] = {
    "binary": _binary_labels,
    "python": _python_labels,
    "sheets": _sheet_labels,
}
_PIXELS: dict[str, Callable[[Path], Pixels]] = {
    "binary": _binary_pixels,
    "python": _python_pixels,
    "sheets": _sheet_pixels,
}
