"""Data sets by name or folder. Labels are read at once, pixels only when asked for."""

from __future__ import annotations

from pathlib import Path

from unsee.data.folder import load_folder
from unsee.errors import DataError
from unsee.records import Data

__all__ = ["load_data", "load_folder"]


def load_data(name: str | Path, *, seed: int = 0) -> Data:
    """The data set of this name: a folder with `train/<class>/*` and `test/<class>/*`, or of class folders.

    One level of class folders is halved, by seed, into images to tune on and images to test on.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return load_folder(path, seed=seed)
    raise DataError(f"no data set {str(name)!r}: give a folder with train/<class>/* and test/<class>/*")
