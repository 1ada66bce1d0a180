"""A list of images as a data set: a CSV, TSV or JSONL file with a path, a label and, if wanted, a split for each image.

| column | called                                                                         |
|--------|--------------------------------------------------------------------------------|
| path   | path, file, filename, file_name, filepath, image or image_path; relative to the list |
| label  | label, class, class_name or category                                           |
| split  | split, set, subset, part or partition: train, validation or test               |

A CSV without a header has them in this order. Without a split, the images of each class are halved by seed. Every path
is looked up before anything is read, so a wrong one is a line of the list and not an error hours later.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unsee.data.class_folders import TEST, TRAIN, check_classes, spaced
from unsee.data.data_set import Data
from unsee.data.formats import is_image, refuse_unreadable
from unsee.data.images import FileSource, Images, labelled
from unsee.data.label_names import rename
from unsee.data.splits import halve
from unsee.data.texts import read_text
from unsee.errors import DataError

JSON_LINES = (".jsonl", ".ndjson")
LISTS = (".csv", ".tsv", *JSON_LINES)
COLUMNS = {
    "path": ("path", "file", "filename", "file_name", "filepath", "image", "image_path"),
    "label": ("label", "class", "class_name", "category"),
    "split": ("split", "set", "subset", "part", "partition"),
}


@dataclass(frozen=True)
class Row:
    """One image of a list."""

    line: int
    path: str
    label: str
    split: str


def load_list(path: Path, *, seed: int = 0, names: Mapping[str, str] | None = None) -> Data:
    """The data set that a list describes."""
    rows = [*(_json_rows if path.suffix.lower() in JSON_LINES else _csv_rows)(path, read_text(path))]
    if not rows:
        raise DataError(f"{path}: empty; wanted a path and a label for each image")
    files = _files(path, rows)
    labels = sorted({row.label for row in rows})
    numbers = {label: i for i, label in enumerate(labels)}
    source = FileSource(path.parent, files)
    images = labelled(source, [numbers[row.label] for row in rows], rename(labels, names, spaced))
    check_classes(path, images)
    refuse_unreadable(files)
    if not any(row.split for row in rows):
        return Data(str(path), *halve(images, seed), split_seed=seed, names=names or {})
    return Data(str(path), *_divide(path, rows, images), names=names or {})


def _divide(path: Path, rows: Sequence[Row], images: Images) -> tuple[Images, Images]:
    """Images to tune on and to test on; validation images are to tune on, unless there are no others to test on."""
    given = {row.split.lower() for row in rows}
    final = TEST[:1] if given & set(TEST[:1]) else TEST
    for row in rows:
        if row.split.lower() not in TRAIN + TEST:
            raise DataError(f"{path}, line {row.line}: split is {row.split!r}; it must be train, validation or test")
    testing = [row.split.lower() in final for row in rows]
    parts = tuple(images.subset([i for i, test in enumerate(testing) if test is wanted]) for wanted in (False, True))
    for part, said in zip(parts, ("train", "test"), strict=True):
        if not len(part):
            raise DataError(f"{path}: no image has the split {said}")
        missing = set(range(len(images.class_names))) - set(part.labels.tolist())
        if missing:
            raise DataError(
                f"{path}: the class {images.class_names[min(missing)]!r} has no image with the split {said}"
            )
    return parts[0], parts[1]


def _files(path: Path, rows: Sequence[Row]) -> tuple[str, ...]:
    """The path of each image, relative to the list; refuses one that is missing, is no image, or comes twice."""
    seen: dict[str, int] = {}
    gone: list[tuple[Row, str]] = []
    files: list[str] = []
    for row in rows:
        file = row.path
        if not (path.parent / file).exists() and "\\" in file:  # written on Windows
            file = file.replace("\\", "/")
        if not (path.parent / file).is_file():
            gone.append((row, "is a folder" if (path.parent / file).is_dir() else f"looked for {path.parent / file}"))
        elif not is_image(file):
            raise DataError(f"{path}, line {row.line}: {row.path} is no image by its name")
        if file in seen:
            raise DataError(f"{path}, line {row.line}: {row.path} came before, on line {seen[file]}")
        seen[file] = row.line
        files.append(file)
    if gone:
        row, why = gone[0]
        many = f" ({len(gone)} of {len(rows)} images are missing)" if len(gone) > 1 else ""
        raise DataError(f"{path}, line {row.line}: no such image: {row.path}: {why}{many}")
    return tuple(files)


def _csv_rows(path: Path, text: str) -> Iterator[Row]:
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    places: dict[str, int] | None = None
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if places is None:
            places = _header(path, cells)
            if any(is_image(cell) for cell in cells):  # no header: this is the first image
                places = {name: i for i, name in enumerate(COLUMNS) if i < len(cells)}
            else:
                continue
        found = {name: cells[i] for name, i in places.items() if i < len(cells)}
        yield _row(path, reader.line_num, found)


def _header(path: Path, cells: Sequence[str]) -> dict[str, int]:
    """Where each column is."""
    if any(is_image(cell) for cell in cells):
        return {}
    there = {cell.strip().lower(): i for i, cell in reversed([*enumerate(cells)])}
    found = {kind: there[name] for kind, names in COLUMNS.items() for name in reversed(names) if name in there}
    for kind in ("path", "label"):
        if kind not in found:
            shown = ", ".join(cell.strip() for cell in cells)
            raise DataError(f"{path}: has no column with the images' {kind}s; wanted path and label, found: {shown}")
    return found


def _json_rows(path: Path, text: str) -> Iterator[Row]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise DataError(f"{path}, line {number}: not a JSON object")
        entries = {str(key).lower(): value for key, value in found.items() if value is not None}
        yield _row(
            path,
            number,
            {kind: str(entries[name]) for kind, names in COLUMNS.items() for name in names if name in entries},
        )


def _row(path: Path, line: int, found: Mapping[str, str]) -> Row:
    cells = {kind: found.get(kind, "").strip() for kind in COLUMNS}
    for kind in ("path", "label"):
        if not cells[kind]:
            raise DataError(f"{path}, line {line}: has no {kind}")
    return Row(line, **cells)
