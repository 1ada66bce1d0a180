"""CIFAR's python batches are pickles; they are read without executing anything in them."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from unsee.errors import DataError

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # what makes an array again, wherever this NumPy keeps it


def read_pickle(path: Path, content: bytes | None = None) -> dict[Any, Any]:
    """The dictionary in a pickle of numbers, texts and arrays; content: the file's bytes, if already read."""
    try:
        raw = path.read_bytes() if content is None else content
        with warnings.catch_warnings():  # NumPy 2 calls the files' old dtype spelling deprecated
            warnings.simplefilter("ignore")
            found = _OnlyArrays(io.BytesIO(raw), encoding="bytes").load()
    except _Refused as error:
        raise DataError(f"{path}: refused, it holds more than data ({error})") from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(f"{path}: damaged, or not a CIFAR batch ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: no CIFAR batch (not a dictionary)")
    return found


class _Refused(Exception):
    """The pickle asks for something to be called."""


class _OnlyArrays(pickle.Unpickler):
    """Unpickles numbers, texts, lists, dictionaries and NumPy arrays; anything else in the file is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return _RECONSTRUCT
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("_codecs", "encode"):
            return _latin
        raise _Refused(f"it asks for {module}.{name}")


def _latin(text: str, encoding: str = "latin1") -> bytes:
    """How Python 2's byte strings stand in newer pickles."""
    return text.encode("latin1")
