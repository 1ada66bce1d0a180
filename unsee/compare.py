"""Methods side by side: runs what is missing, and puts every method's seeds into one row."""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unsee.baselines import from_config, make_tuner
from unsee.errors import InputError, RunError, unknown
from unsee.models import BlackBox, Bound
from unsee.records import Data, forget_mask
from unsee.runs import Run, read_config, read_result
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
    model: BlackBox,
    data: Data,
    forget: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    *,
    preset: str = "tuned",
    settings: Mapping[str, Any] | None = None,
    say: Say = lambda text: None,
) -> list[Row]:
    """A row for each method; finished runs in the folder are taken as they are, torn ones are gone on with."""
    for method in methods:
        if method not in METHODS:
            raise InputError(unknown("method", method, METHODS))
    forget_mask(data.class_names, forget)
    bound = model.bind(data.test, data.class_names)
    rows = []
    for method in methods:
        results = []
        for seed in seeds:
            started = time.perf_counter()
            results.append(_run(model, data, bound, forget, method, seed, folder, preset, dict(settings or {})))
            say(f"{method} seed {seed}: H {100 * results[-1]['test']['h']:.2f} ({time.perf_counter() - started:.0f} s)")
        rows.append(_row(method, ACCESS.get(method, "confidences"), results))
    return rows


def _run(
    model: BlackBox,
    data: Data,
    bound: Bound,
    forget: Sequence[str],
    method: str,
    seed: int,
    folder: Path,
    preset: str,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """The result of one run, made now if it is not there."""
    # The settings of a method alone do not name a run: its data, model and classes do too.
    facts = [model.card.fingerprint, data.fingerprint, sorted(forget), preset, settings]
    key = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=4).hexdigest()
    out = folder / f"{data.name.replace('/', '-').strip('-')}-{method}-seed{seed}-{key}"
    if (out / "result.json").is_file():
        return read_result(out)
    started = time.perf_counter()
    if (out / "config.json").is_file():
        tuner = from_config(read_config(out)).resume(model, data, out)
    else:
        tuner = make_tuner(forget, method, preset=preset, seed=seed, **settings).fit(model, data, out=out)
    seconds = {"tuning": time.perf_counter() - started}
    result = tuner.result(tuner.evaluate(data.test, bound), seconds)
    with Run.open(out) as run:
        run.write_result(result)
    return result


def _row(method: str, access: str, results: Sequence[Mapping[str, Any]]) -> Row:
    if not results:
        raise RunError(f"no runs of {method}")

    def values(key: str) -> list[float]:
        return [result["test"][key] for result in results]

    def spread(key: str) -> float:
        return statistics.stdev(values(key)) if len(results) > 1 else 0.0

    means = {key: statistics.fmean(values(key)) for key in ("h", "err_for", "acc_mem")}
    return Row(
        method=method,
        access=access,
        seeds=len(results),
        h=means["h"],
        h_std=spread("h"),
        h_of_means=harmonic_mean(means["err_for"], means["acc_mem"]),
        err_for=means["err_for"],
        err_for_std=spread("err_for"),
        acc_mem=means["acc_mem"],
        acc_mem_std=spread("acc_mem"),
        candidates=int(results[0]["ledger"]["candidates"]),
        image_queries=int(results[0]["ledger"]["image_queries"]),
        seconds=statistics.fmean(result["seconds"]["tuning"] for result in results),
    )
