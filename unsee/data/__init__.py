"""Data sets by name or folder. Labels are read at once, pixels only when asked for."""

from __future__ import annotations

from pathlib import Path

from unsee.data.class_folders import load_folder
from unsee.data.data_set import Data
from unsee.data.demo import load_demo
from unsee.data.named import NAMED, NamedDataSet, list_data_sets
from unsee.errors import DataError, unknown

__all__ = ["NAMED", "list_data_sets", "load_data", "load_folder"]


def load_data(name: str | Path, *, seed: int = 0, data_dir: str | Path | None = None) -> Data:
    """The data set of this name: `demo`, one of `NAMED` (cifar10, cifar100, cub200, imagenet30, …), or a folder.

    A folder holds `train/<class>/*` and `test/<class>/*`, or one level of class folders, which is halved by
    seed. Named sets are looked for in `<data_dir>/<name>/`.
    """
    text = str(name)
    if text == "demo":
        return load_demo()
    if text in NAMED:
        if data_dir is None:
            raise DataError(f"say where {text} is: data_dir (or --data-dir)")
        return _load(NAMED[text], Path(data_dir).expanduser())
    path = Path(text).expanduser()
    if path.is_dir():
        return load_folder(path, seed=seed)
    raise DataError(
        unknown("data set", text, ["demo", *NAMED]) + "; or a folder with train/<class>/* and test/<class>/*"
    )


def _load(known: NamedDataSet, data_dir: Path) -> Data:
    place = data_dir / known.folder
    if known.find(place) is None:
        raise DataError(f"{known.name} is not in {place}; get it with: {known.how_to_get(place)}")
    return known.load(place)
