"""Data sets by name, folder or list. Labels are read at once, pixels only when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from unsee.data.class_folders import load_folder
from unsee.data.data_set import Data
from unsee.data.demo import load_demo
from unsee.data.formats import is_image
from unsee.data.image_lists import LISTS, load_list
from unsee.data.label_names import read_label_names, refuse_unused
from unsee.data.named import NAMED, list_data_sets
from unsee.data.named_set import NamedDataSet
from unsee.errors import DataError, InputError, unknown

__all__ = ["NAMED", "list_data_sets", "load_data", "load_folder"]

WANTED = "a folder with train/<class>/* and test/<class>/*, or with one folder per class, or a .csv with path and label"
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")


def load_data(
    name: str | Path,
    *,
    seed: int = 0,
    data_dir: str | Path | None = None,
    names: str | Path | Mapping[str, str] | None = None,
) -> Data:
    """The data set of this name: `demo`, one of `NAMED` (cifar10, cifar100, cub200, imagenet30, …), or your own.

    Your own is a folder with `train/<class>/*` and `test/<class>/*`, or with one folder per class, which is halved by
    seed; or a list (.csv, .tsv, .jsonl) with path, label and, if wanted, split. names: what its folders or labels are
    called, as a mapping or a file (`n01440764,tench`). Named sets are looked for in `<data_dir>/<name>/`.
    """
    text = str(name)
    if names is not None and (text == "demo" or text in NAMED):
        raise InputError(f"names are for images of your own; {text} has its own")
    if text == "demo":
        return load_demo()
    if text in NAMED:
        if data_dir is None:
            raise DataError(f"say where {text} is: data_dir (or --data-dir)")
        return _load(NAMED[text], Path(data_dir).expanduser())
    path = Path(text).expanduser()
    load = load_folder if path.is_dir() else load_list if path.is_file() and path.suffix.lower() in LISTS else None
    if load is None:
        raise DataError(_what_is_wrong(text, path))
    if names is None or isinstance(names, Mapping):
        return load(path, seed=seed, names=names)
    given = read_label_names(Path(names).expanduser())
    data = load(path, seed=seed, names=given)
    refuse_unused(Path(names), given, data.class_names)
    return data


def _load(known: NamedDataSet, data_dir: Path) -> Data:
    place = data_dir / known.folder
    if known.find(place) is None:
        raise DataError(f"{known.name} is not in {place}; get it with: {known.how_to_get(place)}")
    return known.load(place)


def _what_is_wrong(text: str, path: Path) -> str:
    """Why this is no data set, and what is near it."""
    if path.exists():
        if is_image(path.name):
            return f"{path} is one image; wanted {WANTED}"
        if path.suffix.lower() in ARCHIVES:
            return f"{path} is an archive; unpack it and name the folder"
        return f"{path} is a file; wanted {WANTED}"
    if len(path.parts) > 1 and not path.parent.is_dir():
        first = next(above for above in reversed(path.parents) if not above.is_dir())
        return f"no such folder: {path} ({first} does not exist)"
    known = ["demo", *NAMED]
    near = get_close_matches(path.name, [found.name for found in path.parent.iterdir()], 1)
    if near and not get_close_matches(text, known):
        return f"no such folder: {path}; did you mean {path.parent / near[0]}?"
    if len(path.parts) > 1:
        return f"no such folder: {path}; wanted {WANTED}"
    return unknown("data set", text, known) + f"; or {WANTED}"
