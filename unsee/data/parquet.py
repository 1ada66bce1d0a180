"""Images in parquet files, as Hugging Face stores data sets: a column of labels, a column of image files' bytes.

Labels are read without the images; images row group by row group, when one of a group is first asked for.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unsee.data.images import Images, decode, labelled
from unsee.errors import DataError, ImageError, MissingExtra


@dataclass(frozen=True)
class ParquetSource:
    """Images whose files are in a column `<column>.bytes`, numbered through all row groups of all shards."""

    column: str
    groups: tuple[tuple[Path, int, int], ...]  # shard, row group in it, number of its first row in the shard
    starts: tuple[int, ...]  # number of each group's first image; then how many images there are
    _kept: dict[int, Any] = field(default_factory=dict, compare=False)  # group -> its bytes, still encoded

    def __len__(self) -> int:
        return self.starts[-1]

    def name(self, i: int) -> str:
        shard, row = self._place(i)
        return f"{shard}[{row}]"

    def key(self, i: int) -> str:
        shard, row = self._place(i)
        return f"{shard.stem}[{row}]"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b(self._bytes(i), digest_size=16).digest()

    def read(self, i: int) -> Image.Image:
        return decode(self._bytes(i), self.name(i))

    def _place(self, i: int) -> tuple[Path, int]:
        group = bisect.bisect_right(self.starts, i) - 1
        shard, _, first = self.groups[group]
        return shard, first + i - self.starts[group]

    def _bytes(self, i: int) -> bytes:
        group = bisect.bisect_right(self.starts, i) - 1
        if group not in self._kept:
            shard, number, _ = self.groups[group]
            column = _read(shard, f"{self.column}.bytes", number)
            self._kept[group] = column.combine_chunks().field("bytes")
        content: bytes | None = self._kept[group][i - self.starts[group]].as_py()
        if not content:
            raise ImageError(self.name(i), "the row holds no image")
        return content


def find_shards(folders: Sequence[Path], part: str) -> list[Path]:
    """`<part>-00000-of-0000N.parquet` … in the first of these folders that has any."""
    for folder in folders:
        found = sorted(folder.glob(f"{part}-*.parquet"))
        if found:
            return found
    return []


def read_parquet(shards: Sequence[Path], column: str, label: str, class_names: Sequence[str], count: int) -> Images:
    """The images of all shards of a part, in order; `count` of them are wanted."""
    _whole(shards)
    groups: list[tuple[Path, int, int]] = []
    starts = [0]
    labels: list[NDArray[np.int64]] = []
    for shard in shards:
        own = _read(shard, label)
        if own.null_count or not str(own.type).startswith(("int", "uint")):
            raise DataError(f"{shard}: its column {label!r} must be whole numbers without gaps, not {own.type}")
        labels.append(own.to_numpy().astype(np.int64))
        first = 0
        for number, rows in enumerate(_row_groups(shard, column)):
            groups.append((shard, number, first))
            starts.append(starts[-1] + rows)
            first += rows
    every = np.concatenate(labels)
    if len(every) != count:
        raise DataError(f"{shards[0].parent}: the parquet files hold {len(every)} images, not {count}")
    if every.min() < 0 or every.max() >= len(class_names):
        raise DataError(f"{shards[0].parent}: a {label!r} is {every.max()}; there are {len(class_names)} classes")
    return labelled(ParquetSource(column, tuple(groups), tuple(starts)), every, class_names)


def _whole(shards: Sequence[Path]) -> None:
    """Refuses a set of shards of which one is missing."""
    for number, shard in enumerate(shards):
        wanted = re.fullmatch(r"(.*)-(\d+)-of-(\d+)", shard.stem)
        if wanted and (int(wanted[2]) != number or int(wanted[3]) != len(shards)):
            raise DataError(f"{shard.parent}: has {len(shards)} of the {int(wanted[3])} files {wanted[1]}-*.parquet")


def _read(path: Path, column: str, group: int | None = None) -> Any:
    """One column of a file, or of one of its row groups."""
    pa, pq = _pyarrow()
    top = column.split(".")[0]
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=[column]) if group is None else file.read_row_group(group, columns=[column])
            return table.column(top)
    except KeyError:
        raise DataError(f"{path}: has no column {column!r}") from None
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: damaged, or not a parquet file ({str(error).splitlines()[0]})") from None


def _row_groups(path: Path, column: str) -> list[int]:
    """How many rows each row group has; refuses a file without image bytes."""
    pa, pq = _pyarrow()
    try:
        with pq.ParquetFile(path) as file:
            columns = {file.schema.column(i).path for i in range(len(file.schema))}
            if f"{column}.bytes" not in columns:
                raise DataError(f"{path}: has no column {column + '.bytes'!r}")
            return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: damaged, or not a parquet file ({str(error).splitlines()[0]})") from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "parquet") from None
    return pyarrow, pyarrow.parquet
