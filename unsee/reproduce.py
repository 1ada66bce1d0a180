"""Tables and figures of the paper, made anew: runs what is missing, then puts ours beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unsee.experiments import Experiment, Line, cells_of, line
from unsee.grid import Cell, Place, Result, run_all
from unsee.runs import read_result

Runner = Callable[[Place, Sequence[Cell]], Iterator[tuple[Cell, Result, float]]]
Watch = Callable[[int, int, Cell, Result, float], None]  # runs done, runs to do, the last one, its seconds


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


def reproduce(
    experiments: Sequence[Experiment],
    place: Place,
    seeds: Sequence[int],
    *,
    pretrained: Mapping[str, str] | None = None,
    run: Runner = run_all,
    watch: Watch = lambda done, total, cell, result, seconds: None,
) -> list[Finished]:
    """Each table and figure on this place's data. A run that several of them need is made once."""
    data = place.data
    planned = [(e, cells_of(e, data.name, data.class_names, seeds, pretrained)) for e in experiments]
    wanted = {place.find(cell): cell for _, lines in planned for _, _, cells in lines for cell in cells}
    missing = [cell for cell in wanted.values() if not place.has(cell)]
    for done, (cell, result, seconds) in enumerate(run(place, missing) if missing else (), start=1):
        watch(done, len(missing), cell, result, seconds)
    results: dict[Path, Result] = {path: read_result(path) for path in wanted}
    return [
        Finished(
            experiment=e,
            data=data.name,
            model=place.model.card.name,
            images=len(data.test),
            lines=tuple(
                line(e, row, point, data.name, [results[place.find(cell)] for cell in cells])
                for row, point, cells in lines
            ),
        )
        for e, lines in planned
    ]
