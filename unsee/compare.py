"""Methods side by side: runs what is missing, and puts every method's seeds into one row."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unsee.errors import InputError, RunError, unknown
from unsee.grid import Cell, Place, run_all
from unsee.learned import Watch
from unsee.records import forget_mask
from unsee.scores import harmonic_mean
from unsee.settings import ACCESS, METHODS

Say = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One method over its seeds. Scores are fractions; std is that of the runs, 0 for one."""

    method: str
    access: str
    seeds: int
    h: float  # mean of the runs' H
    h_std: float
    h_of_means: float
    h_by_seed: tuple[float, ...]
    err_for: float
    err_for_std: float
    acc_mem: float
    acc_mem_std: float
    candidates: int  # of one run
    image_queries: int
    seconds: float  # mean

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    place: Place,
    forget: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    preset: str = "tuned",
    settings: Mapping[str, Any] | None = None,
    say: Say = lambda text: None,
    watch: Watch | None = None,
) -> list[Row]:
    """A row for each method; finished runs in the place are taken as they are, torn ones are gone on with."""
    for method in methods:
        if method not in METHODS:
            raise InputError(unknown("method", method, METHODS))
    forget_mask(place.data.class_names, forget)
    rows = []
    for method in methods:
        cells = [Cell(method, seed, tuple(forget), preset, dict(settings or {})) for seed in seeds]
        results = []
        for cell, result, seconds in run_all(place, cells, watch):
            results.append(result)
            say(f"{method} seed {cell.seed}: H {100 * result['test']['h']:.2f} ({seconds:.0f} s)")
        rows.append(summarize(method, results))
    return rows


def summarize(method: str, results: Sequence[Mapping[str, Any]]) -> Row:
    """The row that these runs of a method make."""
    if not results:
        raise RunError(f"no runs of {method}")

    def values(key: str) -> list[float]:
        return [result["test"][key] for result in results]

    def spread(key: str) -> float:
        return statistics.stdev(values(key)) if len(results) > 1 else 0.0

    means = {key: statistics.fmean(values(key)) for key in ("h", "err_for", "acc_mem")}
    return Row(
        method=method,
        access=ACCESS.get(method, "confidences"),
        seeds=len(results),
        h=means["h"],
        h_std=spread("h"),
        h_by_seed=tuple(values("h")),
        h_of_means=harmonic_mean(means["err_for"], means["acc_mem"]),
        err_for=means["err_for"],
        err_for_std=spread("err_for"),
        acc_mem=means["acc_mem"],
        acc_mem_std=spread("acc_mem"),
        candidates=int(results[0]["ledger"]["candidates"]),
        image_queries=int(results[0]["ledger"]["image_queries"]),
        seconds=statistics.fmean(result["seconds"]["tuning"] for result in results),
    )
