"""Runs whose numbers are known from tables that were saved before, on this machine or another."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from unsee.errors import InputError

SAVED = "-seeds.csv"  # how the names of tables with every seed's numbers end
MEASURED = ("minutes",)  # columns that hold for the machine alone


@dataclass(frozen=True)
class KnownRuns:
    """Columns of runs by the name of their folder, which ends in a hash of all that the run is a function of."""

    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def has(self, run: str, columns: Sequence[str]) -> bool:
        """Whether these columns of this run are known."""
        return set(columns) <= self.values.get(run, {}).keys()


def read_known(folder: Path) -> KnownRuns:
    """All runs in the saved tables of a folder; those of an older form, which does not name runs, have none."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob(f"*{SAVED}")):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if run := row.get("run"):
                    found.setdefault(run, {}).update(_numbers(path, row))
    return KnownRuns(found)


def _numbers(path: Path, row: Mapping[str, str]) -> dict[str, float]:
    """The columns between the seed and the run, which are numbers in percent."""
    columns = list(row)
    try:
        names = columns[columns.index("seed") + 1 : columns.index("run")]
        return {name: float(row[name]) for name in names if name not in MEASURED}
    except (ValueError, TypeError):
        raise InputError(f"{path} is not a table that --save wrote: delete it, or name another folder") from None
