"""Tables and figures of the paper, made anew: runs what is missing, then puts ours beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unsee.experiments import Experiment, Line, Point, Row, cells_of, line
from unsee.grid import Cell, Place, Result, run_all
from unsee.runs import read_result

Runner = Callable[[Place, Sequence[Cell]], Iterator[tuple[Cell, Result, float]]]
Watch = Callable[[int, int, Place, Cell, Result, float], None]  # runs done, of how many; the last one, its seconds


@dataclass(frozen=True)
class Finished:
    """A table or figure on one data set. The model is named, as no number means anything without it."""

    experiment: Experiment
    data: str
    model: str
    images: int  # tested on
    lines: tuple[Line, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "data": self.data,
            "model": self.model,
            "test_images": self.images,
            "lines": [asdict(line) for line in self.lines],
        }


@dataclass(frozen=True)
class Planned:
    """A table or figure at a place: its lines, and the runs each of them is made of."""

    experiment: Experiment
    place: Place
    lines: list[tuple[Row, Point, list[Cell]]]

    def runs(self) -> dict[Path, Cell]:
        return {self.place.find(cell): cell for _, _, cells in self.lines for cell in cells}

    def finish(self) -> Finished:
        """The table, once all runs are there."""
        e, place, data = self.experiment, self.place, self.place.data
        made = []
        for row, point, cells in self.lines:
            results = [read_result(place.find(cell)) for cell in cells]
            made.append(line(e, row, point, data.name, results))
        return Finished(e, data.name, place.model.card.name, len(data.test), tuple(made))


def reproduce(
    wanted: Sequence[tuple[Experiment, Place]],
    seeds: Sequence[int],
    *,
    pretrained: Mapping[str, str] | None = None,
    run: Runner = run_all,
    watch: Watch = lambda done, total, place, cell, result, seconds: None,
) -> list[Finished]:
    """Each table and figure at its place. A run that several of them need is made once."""
    planned = [
        Planned(e, place, cells_of(e, place.data.name, place.data.class_names, seeds, pretrained))
        for e, place in wanted
    ]
    missing: dict[Place, dict[Path, Cell]] = {}
    for plan in planned:
        runs = {path: cell for path, cell in plan.runs().items() if not plan.place.has(cell)}
        missing.setdefault(plan.place, {}).update(runs)
    done, total = 0, sum(map(len, missing.values()))
    for place, runs in missing.items():
        for cell, result, seconds in run(place, list(runs.values())) if runs else ():
            done += 1
            watch(done, total, place, cell, result, seconds)
    return [plan.finish() for plan in planned]
