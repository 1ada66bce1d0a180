"""Data sets by name or folder. Labels are read at once, pixels only when asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unsee.data.cifar import find_cifar10, load_cifar10
from unsee.data.demo import load_demo
from unsee.data.folder import load_folder
from unsee.errors import DataError, unknown
from unsee.records import Data

__all__ = ["NAMED", "cifar10_batch5", "find_cifar10", "load_data", "load_folder"]


def load_data(name: str | Path, *, seed: int = 0, data_dir: str | Path | None = None) -> Data:
    """The data set of this name: `demo`, `cifar10`, `cifar10-batch5`, or a folder.

    A folder holds `train/<class>/*` and `test/<class>/*`, or one level of class folders, which is halved by
    seed. Named sets are looked for in data_dir.
    """
    text = str(name)
    if text == "demo":
        return load_demo()
    if text in NAMED:
        if data_dir is None:
            raise DataError(f"say where {text} lies: data_dir (or --data-dir)")
        return NAMED[text](Path(data_dir).expanduser())
    path = Path(text).expanduser()
    if path.is_dir():
        return load_folder(path, seed=seed)
    raise DataError(
        unknown("data set", text, ["demo", *NAMED]) + "; or a folder with train/<class>/* and test/<class>/*"
    )


def cifar10_batch5(data_dir: Path) -> Data:
    """CIFAR-10 with shots from data_batch_5 alone, which the embedded model was not trained on."""
    data = load_cifar10(data_dir / "cifar10")
    return dataclasses.replace(data, name="cifar10-batch5", train=data.train.subset(np.arange(40_000, 50_000)))


NAMED: dict[str, Callable[[Path], Data]] = {
    "cifar10": lambda data_dir: load_cifar10(data_dir / "cifar10"),
    "cifar10-batch5": cifar10_batch5,
}
