"""CIFAR's python batches are pickles. They are read without calling anything in them, NumPy's own code included."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsee.errors import DataError


def read_pickle(path: Path, content: bytes) -> dict[Any, Any]:
    """The dictionary in a pickle of numbers, strings, lists and byte arrays; path is for messages."""
    try:
        found = _OnlyBytes(io.BytesIO(content), encoding="bytes").load()
    except _Refused as error:
        raise DataError(f"{path}: refused, it holds more than data ({error})") from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise DataError(f"{path}: damaged, or not a CIFAR batch ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise DataError(f"{path}: no CIFAR batch (not a dictionary)")
    return {key: value.pixels if isinstance(value, _Array) else value for key, value in found.items()}


class _Refused(Exception):
    """The pickle asks for something to be called, or for another array than one of bytes."""


class _Type:
    """Stands for NumPy's dtype, whose own `__setstate__` believes any offset and any pointer. It is always uint8."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        pass


class _Array:
    """Stands for NumPy's array while it is unpickled: the file's bytes in a shape that fits them."""

    __slots__ = ("pixels",)
    pixels: NDArray[np.uint8]

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, content = state
        if not isinstance(kind, _Type) or not isinstance(content, bytes):
            raise _Refused("an array of something else than bytes")
        self.pixels = np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


class _OnlyBytes(pickle.Unpickler):
    """Unpickles numbers, strings, lists, dictionaries and byte arrays; anything else in the file is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return self._array
        if (module, name) == ("numpy", "dtype"):
            return self._type
        if (module, name) == ("numpy", "ndarray"):
            return None  # only ever handed to _reconstruct
        raise _Refused(f"it asks for {module}.{name}")

    def _array(self, *how: object) -> _Array:
        return _Array()

    def _type(self, name: object, *how: object) -> _Type:
        if name not in ("u1", b"u1"):
            raise _Refused("an array of something else than bytes")
        return _Type()
