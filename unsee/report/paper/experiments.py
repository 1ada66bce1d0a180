"""The paper's tables and figures: each a set of runs, with the values the paper prints.

Each is a TOML file in `tables/`. A table has rows; a figure has rows (its lines) and points (its x axis). A row is
a method with settings, a point more settings; both may say which classes to forget.
The paper's values are in percent, [mean] or [mean, spread in points].
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unsee.data.class_names import FORGET_SHARE, first_share
from unsee.errors import InputError, unknown
from unsee.methods.registry import REFERENCE, changes_for
from unsee.report.paired import Difference, difference_over_seeds
from unsee.runs.records import ResultRecord
from unsee.runs.sweep import RunRequest
from unsee.settings import Value

TABLES = Path(__file__).parent / "tables"
STANDS_FOR = {
    "demo": "cifar10",
    "cifar10-batch5": "cifar10",
    "cifar100-tenth": "cifar100",
    "cub200-half": "cub200",
    "imagenet30-six": "imagenet30",
    "imagenet-six": "imagenet",
}  # other images of one of the paper's sets
PHOTOS_OF = {
    "cub200-half": "shots from every second training photo of a class",
    "imagenet30-six": "ImageNet's validation photos, 1 shot a class (the paper: 16), 1 test photo a class",
    "imagenet-six": "ImageNet's validation photos, 1 shot and 1 test photo a class (the paper: 50 test photos)",
}  # what must be known of those before the paper's values are read beside ours
SETTINGS_OF = {"tiny30": "ImageNet30", "tiny200": "CUB-200-2011"}  # sets that the paper does not have
COLUMN_NAMES = {
    "h": "H",
    "err_for": "Err_for",
    "acc_mem": "Acc_mem",
    "train_acc_mem": "Acc_mem, shots",
    "minutes": "minutes",
}
LEVEL = "level"  # the label of a figure's row that does not depend on x


@dataclass(frozen=True)
class XPoint:
    """A place on a figure's x axis, or the one place of a table."""

    label: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    share: float | None = None
    data: tuple[str, ...] = ()  # the paper's sets it belongs to; all if empty


@dataclass(frozen=True)
class TableRow:
    """A method in a table or figure."""

    name: str
    method: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    forget: tuple[int, ...] = ()  # numbers of classes
    pretrained: bool = False  # starts from weights that the user gives
    level: bool = False  # in a figure: the same at every point
    note: str = ""  # what a reader must know about it
    paper: Mapping[str, Any] = field(default_factory=dict)

    def left_out(self, pretrained: Mapping[str, str]) -> str:
        """Why this row cannot be made with these folders of weights, by method; nothing if it can."""
        if not self.pretrained or self.method in pretrained:
            return ""
        return f"left out: needs weights, --pretrained {self.method}=FOLDER"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    paper: str  # where the paper has it
    kind: str
    data: tuple[str, ...]
    rows: tuple[TableRow, ...]
    points: tuple[XPoint, ...] = (XPoint(""),)
    columns: tuple[str, ...] = ("h", "err_for", "acc_mem")
    preset: str = "paper"
    note: str = ""
    x: str = ""
    changed: Mapping[str, Value] = field(default_factory=dict)  # settings of all lines that are not the paper's
    without: tuple[str, ...] = ()  # methods whose rows are not made

    def left_out(self, row: TableRow, pretrained: Mapping[str, str]) -> str:
        """Why a row is not made; nothing if it is."""
        return f"left out: --without {row.method}" if row.method in self.without else row.left_out(pretrained)

    def entries(self, data: str, pretrained: Mapping[str, str]) -> list[tuple[TableRow, XPoint, dict[str, Value]]]:
        """Every line of the result on this data set: a row at a point, and its settings."""
        found = []
        for row in self.rows:
            start = {"weights": pretrained[row.method]} if row.pretrained and row.method in pretrained else {}
            for point in (XPoint(LEVEL),) if row.level else self.points:
                if not point.data or STANDS_FOR.get(data, data) in point.data:
                    changed = changes_for(row.method, self.changed)
                    found.append((row, point, {**changed, **row.settings, **point.settings, **start}))
        return found

    def published(self, row: TableRow, point: XPoint, data: str) -> Mapping[str, Sequence[float]]:
        """What the paper prints for this line, by column; nothing where it prints nothing."""
        values = row.paper.get(STANDS_FOR.get(data, data), {})
        found: Mapping[str, Sequence[float]] = values if not point.label else values.get(point.label, {})
        return found


@dataclass(frozen=True)
class RunValues:
    """What a table takes from one run: column by column, in percent (minutes in minutes)."""

    run: str  # the name of its folder, which ends in a hash of all that the run is a function of
    seed: int
    values: Mapping[str, float]


@dataclass(frozen=True)
class ResultLine:
    """One line of a finished table: a method, ours (mean and spread over seeds, in percent) and the paper's."""

    row: str
    point: str
    method: str
    seeds: int  # 0 if it was left out
    ours: Mapping[str, tuple[float, float]]  # nothing if it was left out
    paper: Mapping[str, Sequence[float]]
    left_out: str = ""  # why
    by_seed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # ours, column by column
    seed_numbers: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()  # names of their folders
    difference: Difference | None = None  # of the first column to LCS's line at this point, if there is another one


def experiment_names() -> list[str]:
    """All tables and figures."""
    return sorted(path.stem for path in TABLES.glob("*.toml"))


def load_experiment(name: str) -> Experiment:
    """The table or figure of this name."""
    if name not in experiment_names():
        raise InputError(unknown("table or figure", name, experiment_names()))
    return parse_experiment(name, (TABLES / f"{name}.toml").read_text(encoding="utf-8"))


def parse_experiment(name: str, text: str) -> Experiment:
    """An experiment from its TOML."""
    try:
        found = tomllib.loads(text)
        rows = tuple(TableRow(**_tuples(row)) for row in found.pop("rows"))
        points = tuple(XPoint(**_tuples(point)) for point in found.pop("points", [{"label": ""}]))
        return Experiment(name=name, rows=rows, points=points, **_tuples(found))
    except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise InputError(f"experiment {name}: {error}") from None


def forgotten(row: TableRow, point: XPoint, class_names: Sequence[str]) -> tuple[str, ...]:
    """The classes this line forgets: those it names by number, else its share of the first ones."""
    if row.forget and max(row.forget) >= len(class_names):
        raise InputError(f"{row.name!r} forgets class number {max(row.forget)}, but there are {len(class_names)}")
    if row.forget:
        return tuple(class_names[i] for i in row.forget)
    return first_share(class_names, FORGET_SHARE if point.share is None else point.share)


def requests_of(
    experiment: Experiment,
    data: str,
    class_names: Sequence[str],
    seeds: Iterable[int],
    pretrained: Mapping[str, str] | None = None,
) -> list[tuple[TableRow, XPoint, list[RunRequest]]]:
    """Every line of a table on this data set with the runs that make it: one for each seed, none if it is left out."""
    found, weights, numbers = [], pretrained or {}, list(seeds)
    for row, point, settings in experiment.entries(data, weights):
        gone, wanted = forgotten(row, point, class_names), [] if experiment.left_out(row, weights) else numbers
        requests = [RunRequest(row.method, seed, gone, experiment.preset, settings) for seed in wanted]
        found.append((row, point, requests))
    return found


def result_line(
    experiment: Experiment, row: TableRow, point: XPoint, data: str, runs: Sequence[RunValues]
) -> ResultLine:
    """One line of the table, from its runs; without any it is one that was left out."""
    if not runs:
        reason = experiment.left_out(row, {})
        return ResultLine(row.name, point.label, row.method, 0, {}, experiment.published(row, point, data), reason)
    by_seed = {column: tuple(run.values[column] for run in runs) for column in experiment.columns}
    ours = {
        column: (statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)
        for column, values in by_seed.items()
    }
    return ResultLine(
        row.name,
        point.label,
        row.method,
        len(runs),
        ours,
        experiment.published(row, point, data),
        by_seed=by_seed,
        seed_numbers=tuple(run.seed for run in runs),
        runs=tuple(run.run for run in runs),
    )


def with_differences(lines: Sequence[ResultLine], column: str) -> tuple[ResultLine, ...]:
    """The lines, each with its difference to the first line of LCS at the same point, over the seeds both have."""
    firsts: dict[str, ResultLine] = {}
    for line in lines:
        if line.method == REFERENCE and line.ours:
            firsts.setdefault(line.point, line)
    found = []
    for line in lines:
        first = firsts.get(line.point)
        shared = [] if first is None else [seed for seed in line.seed_numbers if seed in first.seed_numbers]
        if first is None or first is line or not shared:
            found.append(line)
            continue
        pair = [[each.by_seed[column][each.seed_numbers.index(seed)] for seed in shared] for each in (line, first)]
        found.append(replace(line, difference=difference_over_seeds(first.row, *pair)))
    return tuple(found)


def values_of(run: str, result: ResultRecord, columns: Sequence[str]) -> RunValues:
    """These columns of a run."""
    return RunValues(run, result.seed, {column: _value(result, column) for column in columns})


def _value(result: ResultRecord, column: str) -> float:
    if column == "minutes":
        return result.seconds["tuning"] / 60
    if column == "train_acc_mem":
        return 100 * result.train.acc_mem
    return 100 * float(getattr(result.test, column))


def _tuples(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
