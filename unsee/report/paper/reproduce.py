"""Reproduces tables and figures of the paper: runs what is missing, then puts our values beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from unsee.methods.forecast import forecast
from unsee.report.paper.experiments import (
    Experiment,
    ResultLine,
    RunValues,
    TableRow,
    XPoint,
    requests_of,
    result_line,
    values_of,
    with_differences,
)
from unsee.report.paper.known_runs import KnownRuns
from unsee.runs.folder import read_result
from unsee.runs.records import ResultRecord
from unsee.runs.sweep import RunRequest, Workspace, run_all
from unsee.types import Say

Runner = Callable[[Workspace, Sequence[RunRequest]], Iterator[tuple[RunRequest, ResultRecord, float]]]
# Called after every run: runs done, of how many; the last one, its result and seconds.
SweepWatch = Callable[[int, int, Workspace, RunRequest, ResultRecord, float], None]


@dataclass(frozen=True)
class Reproduced:
    """A table or figure on one data set. The model is named, as no number means anything without it."""

    experiment: Experiment
    data: str
    model: str
    images: int  # tested on
    lines: tuple[ResultLine, ...]

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.experiment.name,
            "title": self.experiment.title,
            "data": self.data,
            "model": self.model,
            "test_images": self.images,
            "lines": [asdict(line) for line in self.lines],
        }


@dataclass(frozen=True)
class PlannedExperiment:
    """A table or figure in a workspace: its lines, and the runs each of them is made of."""

    experiment: Experiment
    workspace: Workspace
    lines: list[tuple[TableRow, XPoint, list[RunRequest]]]
    known: KnownRuns

    def missing(self) -> dict[Path, RunRequest]:
        """Runs that are neither in the workspace nor known from saved tables."""
        return {
            path: request
            for path, request in self.runs().items()
            if not self.known.has(path.name, self.experiment.columns) and not self.workspace.has(request)
        }

    def runs(self) -> dict[Path, RunRequest]:
        return {self.workspace.find(request): request for _, _, requests in self.lines for request in requests}

    def finish(self) -> Reproduced:
        """The table, once all runs are there."""
        e, workspace, data = self.experiment, self.workspace, self.workspace.data
        made = []
        for row, point, requests in self.lines:
            made.append(result_line(e, row, point, data.name, [self._values(request) for request in requests]))
        lines = with_differences(made, e.columns[0]) if "h" in e.columns else tuple(made)
        return Reproduced(e, data.name, workspace.model.card.name, len(data.test), lines)

    def _values(self, request: RunRequest) -> RunValues:
        """One run: as made here, else as known."""
        path, columns = self.workspace.find(request), self.experiment.columns
        if self.workspace.has(request):
            return values_of(path.name, read_result(path), columns)
        return RunValues(path.name, request.seed, self.known.values[path.name])


def reproduce(
    wanted: Sequence[tuple[Experiment, Workspace]],
    seeds: Sequence[int],
    *,
    pretrained: Mapping[str, str] | None = None,
    known: KnownRuns | None = None,
    run: Runner = run_all,
    watch: SweepWatch = lambda done, total, workspace, request, result, seconds: None,
    say: Say = lambda text: None,
) -> list[Reproduced]:
    """Each table and figure in its workspace. A run that several of them need is made once, a known one not at all."""
    saved = known or KnownRuns()
    planned = [
        PlannedExperiment(
            e, workspace, requests_of(e, workspace.data.name, workspace.data.class_names, seeds, pretrained), saved
        )
        for e, workspace in wanted
    ]
    missing: dict[Workspace, dict[Path, RunRequest]] = {}
    for plan in planned:
        missing.setdefault(plan.workspace, {}).update(plan.missing())
    done, total = 0, sum(map(len, missing.values()))
    if total:
        tasks = (workspace.task(request) for workspace, runs in missing.items() for request in runs.values())
        say(forecast(tasks).sentence())
    for workspace, runs in missing.items():
        for request, result, seconds in run(workspace, list(runs.values())) if runs else ():
            done += 1
            watch(done, total, workspace, request, result, seconds)
    return [plan.finish() for plan in planned]
