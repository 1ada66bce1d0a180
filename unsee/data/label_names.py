"""What labels are called: a file that gives each folder or label its class name, such as n01440764 -> tench.

| file       | a class                                                         |
|------------|-----------------------------------------------------------------|
| .json      | `"n01440764": "tench"`, or Keras' `"0": ["n01440764", "tench"]` |
| .csv, .tsv | `n01440764,tench`, with or without a header                     |
| any other  | `n01440764 tench`, as in ImageNet's LOC_synset_mapping.txt      |

A synset goes by the first of its comma-separated names, and two that share it are told apart (`synsets.distinct`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from unsee.data.class_names import listed, plain
from unsee.data.synsets import SYNSET, distinct
from unsee.data.texts import read_text
from unsee.errors import DataError

_HEADER = ("folder", "label", "class", "id", "synset", "wnid", "key")


def read_label_names(path: Path) -> dict[str, str]:
    """Folder or label -> class name."""
    text, suffix = read_text(path), path.suffix.lower()
    pairs = _from_json(path, text) if suffix == ".json" else _from_lines(path, text, suffix)
    found: dict[str, str] = {}
    for where, label, name in pairs:
        if not label or not name:
            raise DataError(f"{where}: wanted a folder and its name, like n01440764,tench")
        if found.setdefault(label, name) != name:
            raise DataError(f"{where}: {label} came before, as {found[label]!r}")
    if not found:
        raise DataError(f"{path}: empty; wanted a folder and its name, like n01440764,tench")
    if all(SYNSET.fullmatch(label) for label in found):
        return distinct({label: _synonyms(name) for label, name in found.items()})
    return {label: plain(name) for label, name in found.items()}


def rename(labels: Sequence[str], names: Mapping[str, str] | None, otherwise: Callable[[str], str]) -> list[str]:
    """What these labels are called; those that names does not have keep their own."""
    own = names or {}
    return [own.get(label) or own.get(otherwise(label)) or otherwise(label) for label in labels]


def refuse_unused(path: Path, names: Mapping[str, str], class_names: Sequence[str]) -> None:
    """Raises DataError if none of the data's classes got its name from this file: it is another data set's."""
    if not set(names.values()) & set(class_names):
        raise DataError(f"{path}: names none of the classes {listed(class_names, 4)}, but {listed(list(names), 4)}")


def _synonyms(names: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in plain(names).split(","))))


def _from_json(path: Path, text: str) -> Iterator[tuple[str, str, str]]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error})") from None
    if not isinstance(content, dict):
        raise DataError(f'{path}: must be like {{"n01440764": "tench"}}')
    for label, name in content.items():
        if isinstance(name, list) and len(name) == 2:
            label, name = name
        if not isinstance(name, str) or not isinstance(label, str):
            raise DataError(f'{path}, entry {label!r}: must be like "n01440764": "tench"')
        yield f"{path}, entry {label!r}", label.strip(), name.strip()


def _from_lines(path: Path, text: str, suffix: str) -> Iterator[tuple[str, str, str]]:
    if suffix not in (".csv", ".tsv"):
        for number, line in enumerate(text.splitlines(), 1):
            label, _, name = line.strip().partition(" ")
            if label:
                yield f"{path}, line {number}", label, name.strip()
        return
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    for cells in reader:
        label, name = (cell.strip() for cell in (*cells, "", "")[:2])
        header = reader.line_num == 1 and label.lower() in _HEADER
        if any(cells) and not header:
            yield f"{path}, line {reader.line_num}", label, name
