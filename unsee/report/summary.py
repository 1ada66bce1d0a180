"""Finished runs summarised: one group for all seeds of one method, settings and task; mean and spread of each."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from unsee.answers.evaluation import BeforeAfter
from unsee.answers.metrics import harmonic_mean
from unsee.audit.side_by_side import AuditRow, summarize_audits
from unsee.data.class_names import listed
from unsee.errors import RunError
from unsee.methods.registry import METHODS
from unsee.runs.identity import folder_key
from unsee.runs.records import JournalLine, ResultRecord
from unsee.runs.stored import StoredRun
from unsee.settings import Value
from unsee.text_table import Series
from unsee.types import Doubles, Ints, Scores

FEW_RUNS = 8  # up to here each run has its own line in a chart; beyond, each group has one
POINTS = 200  # of a line


@dataclass(frozen=True)
class ServedSummary:
    """A method's scores as served, over its seeds."""

    rule: str
    h: float
    h_std: float
    err_for: float
    err_for_std: float
    acc_mem: float
    acc_mem_std: float


@dataclass(frozen=True)
class MethodSummary:
    """One method over its seeds, prompt alone. Scores are fractions; std is that of the runs, 0 for one."""

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
    steps: int  # of one run
    candidates: int
    image_queries: int
    seconds: float  # mean
    served: ServedSummary | None = None  # as served; None for methods without a prompt
    by_seed: tuple[Scores, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def summarize(method: str, results: Sequence[ResultRecord]) -> MethodSummary:
    """What these runs of a method make together."""
    if not results:
        raise RunError(f"no runs of {method}")
    found = [result.test for result in results]
    return summarize_scores(
        method,
        found,
        steps=results[0].ledger.generations,
        candidates=results[0].ledger.candidates,
        image_queries=results[0].ledger.image_queries,
        seconds=statistics.fmean(result.seconds["tuning"] for result in results),
        served=_served(results) if METHODS[method].tunes_prompt else None,
    )


def _served(results: Sequence[ResultRecord]) -> ServedSummary:
    """Scores as served; without a rule these are the prompt's own."""
    rule = "as-is" if results[0].served is None else results[0].served.rule
    means, spread = _mean_and_spread([r.test if r.served is None else r.served.scores for r in results])
    return ServedSummary(rule, **means, **{f"{key}_std": each for key, each in spread.items()})


def _mean_and_spread(found: Sequence[Scores]) -> tuple[dict[str, float], dict[str, float]]:
    values = {key: [getattr(scores, key) for scores in found] for key in ("h", "err_for", "acc_mem")}
    means = {key: statistics.fmean(each) for key, each in values.items()}
    return means, {key: statistics.stdev(each) if len(found) > 1 else 0.0 for key, each in values.items()}


def summarize_scores(
    method: str,
    found: Sequence[Scores],
    steps: int = 0,
    candidates: int = 0,
    image_queries: int = 0,
    seconds: float = 0.0,
    served: ServedSummary | None = None,
) -> MethodSummary:
    """Mean and spread of a method's scores."""
    means, spread = _mean_and_spread(found)
    return MethodSummary(
        method=method,
        access=METHODS[method].sees,
        seeds=len(found),
        h=means["h"],
        h_std=spread["h"],
        h_by_seed=tuple(scores.h for scores in found),
        h_of_means=harmonic_mean(means["err_for"], means["acc_mem"]),
        err_for=means["err_for"],
        err_for_std=spread["err_for"],
        acc_mem=means["acc_mem"],
        acc_mem_std=spread["acc_mem"],
        steps=steps,
        candidates=candidates,
        image_queries=image_queries,
        seconds=seconds,
        served=served,
        by_seed=tuple(found),
    )


@dataclass(frozen=True, eq=False)
class SeedGroup:
    """Runs that differ in the seed alone, under a name that tells them from the other groups."""

    name: str
    runs: Sequence[StoredRun]
    label: str  # the same for charts: only what differs between the groups

    @property
    def first(self) -> StoredRun:
        """The run of the lowest seed."""
        return self.runs[0]

    @cached_property
    def summary(self) -> MethodSummary:
        return summarize(self.first.result.method, [run.result for run in self.runs])

    def accuracy(self, when: str) -> Doubles:
        """Mean accuracy of each class "before", "after" or "served"; NaN for a class without test images."""
        each = [[self._when(run, run.result.per_class[name], when) for name in run.class_names] for run in self.runs]
        mean: Doubles = np.array(each, dtype=np.float64).mean(axis=0)  # None becomes NaN
        return mean

    def entropy(self, when: str) -> float:
        """How uninformative the answers to forgotten images are, 0 to 1; NaN where there are none."""
        values = [self._when(run, run.result.entropy_forgotten, when) for run in self.runs]
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if len(known) == len(values) else float("nan")

    def confusion(self) -> dict[str, Ints]:
        """Counts of all runs together, by "before", "after" and "served": those that every run with answers kept."""
        found = [counts for run in self.runs if (counts := run.confusion())]
        return {
            when: add_counts(counts[when] for counts in found)
            for when in (found[0] if found else ())
            if all(when in counts for counts in found)
        }

    @property
    def rule(self) -> str:
        """What is done to answers before a caller sees them."""
        return "as-is" if self.first.result.served is None else self.first.result.served.rule

    @property
    def tunes_prompt(self) -> bool:
        """Whether there is a prompt, whose own answers differ from those served."""
        return METHODS[self.first.result.method].tunes_prompt

    def ways(self) -> dict[str, str]:
        """The ways of answering "after" tuning, with the words for each."""
        if not self.tunes_prompt:
            return {"after": "as served"}
        if self.rule == "as-is":
            return {"after": "prompt alone, which is as served"}
        return {"after": "prompt alone", "served": f"as served ({self.rule})"}

    @staticmethod
    def _when(run: StoredRun, found: BeforeAfter, when: str) -> float | None:
        """Results of earlier versions have nothing as served, but where there is no rule it is the prompt's own."""
        if when == "served" and run.result.served is None:
            when = "after"
        value: float | None = getattr(found, when)
        return value


def fronts(groups: Sequence[SeedGroup]) -> list[tuple[str, list[Series]]]:
    """Trade-offs to pick from: Err_for and entropy over Acc_mem, one line per run (of many runs, each group's first).

    Where forgetting is complete, Err_for is one point, and what is traded for Acc_mem is entropy.
    """
    each, found = sum(len(g.runs) for g in groups) <= FEW_RUNS, []
    for title, key, scale in (("Err_for, %", "err_for", 100), ("entropy of forgotten images' answers", "entropy", 1)):
        lines = []
        for group in groups:
            for run in group.runs if each else group.runs[:1]:
                pairs = {(100 * c.trade_off.acc_mem, scale * getattr(c.trade_off, key)) for c in run.front}
                name = group.label if len(group.runs) == 1 else f"{group.label}, seed {run.result.seed}"
                if outer := _outer(sorted(pairs)):
                    lines.append(Series(name, [x for x, _ in outer], [y for _, y in outer]))
        found.append((title, lines))
    return [(title, lines) for title, lines in found if lines]


def _outer(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of points sorted by x, those that none to their right is as high as."""
    found: list[tuple[float, float]] = []
    for point in reversed(points):
        if not found or point[1] > found[0][1]:
            found.insert(0, point)
    return found


def audit_rows(groups: Sequence[SeedGroup]) -> list[AuditRow]:
    """The audits of each group whose runs were audited."""
    found = [(g.name, [run.result.audit for run in g.runs if run.result.audit is not None]) for g in groups]
    return [summarize_audits(name, audits) for name, audits in found if audits]


def add_counts(counts: Iterable[Ints]) -> Ints:
    """Counts added up."""
    total: Ints = np.sum(list(counts), axis=0)
    return total


def without_copies(runs: Sequence[StoredRun]) -> tuple[list[StoredRun], list[tuple[StoredRun, StoredRun]]]:
    """The runs, each once, and the copies with the run that they are a copy of: a copy is not one more seed."""
    kept: dict[tuple[str, str | None], StoredRun] = {}
    copies = []
    for run in runs:
        # A service may round or withhold what the same model tells in this process.
        key = folder_key(run.config), run.config.model.address
        first = kept.setdefault(key, run)
        if first is not run:
            copies.append((run, first))
    return list(kept.values()), copies


def group_by_seed(runs: Sequence[StoredRun]) -> list[SeedGroup]:
    """The groups these runs make, in the order given; each one's runs by seed."""
    kinds: dict[str, list[StoredRun]] = {}
    for run in runs:
        kind = run.task + json.dumps([run.settings, run.config.epoch], sort_keys=True)
        kinds.setdefault(kind, []).append(run)
    members = [sorted(found, key=lambda run: run.result.seed) for found in kinds.values()]
    firsts = [found[0] for found in members]
    groups, taken = [], Counter[str]()
    for run, found in zip(firsts, members, strict=True):
        words = [*_different(run, firsts), *task_words(run, firsts)]
        own = [run.result.method] if len({other.result.method for other in firsts}) > 1 or not words else []
        name = ", ".join([run.result.method, *words])
        taken[name] += 1
        end = "" if taken[name] == 1 else f" [{taken[name]}]"
        groups.append(SeedGroup(name + end, found, ", ".join([*own, *words]) + end))
    return groups


def task_words(run: StoredRun, among: Sequence[StoredRun]) -> list[str]:
    """What of a run's task is not the same for all: the model, the data, the classes to forget."""
    words = {
        "model": run.model,
        "data": run.data,
        "forget": f"without {listed(run.result.forget, 3)}",
    }
    return [word for key, word in words.items() if len({getattr(other.result, key) for other in among}) > 1]


def _different(run: StoredRun, among: Sequence[StoredRun]) -> list[str]:
    """The settings in which a run differs from others of its method and task, and the epoch of the code."""
    same = [o for o in among if o.result.method == run.result.method and o.task == run.task]
    names: dict[tuple[str, ...], str] = {}  # by their values: of settings that vary together, the first
    for name in run.settings:
        values = tuple(json.dumps(o.settings.get(name)) for o in same)
        if len(set(values)) > 1:
            names.setdefault(tuple(str(values.index(value)) for value in values), name)
    epochs = [f"epoch {run.config.epoch}"] if len({o.config.epoch for o in same}) > 1 else []
    return [f"{name}={_short(run.settings[name])}" for name in names.values()] + epochs


def _short(value: Value | None) -> str:
    """A setting's value without the noise of binary fractions."""
    return str(float(f"{value:.6g}")) if isinstance(value, float) else str(value)


def curves(groups: Sequence[SeedGroup]) -> list[tuple[str, list[Series]]]:
    """Best loss and validation H over candidates: one line per run, or, of many runs, mean and spread of each group.

    What was not searched for has no curve.
    """
    parts = (("best loss of a generation", "best_loss", 1.0), ("validation H so far, %", "valid_h", 100.0))
    each = sum(len(g.runs) for g in groups) <= FEW_RUNS
    found = []
    for title, key, scale in parts:
        lines = [line for g in groups for line in (_each(g, key, scale) if each else _mean(g, key, scale))]
        found.append((title, [line for line in lines if np.isfinite(line.y).any()]))
    return [(title, lines) for title, lines in found if lines]


def _each(group: SeedGroup, key: str, scale: float) -> list[Series]:
    lines = []
    for run in group.runs:
        points = _points(run, key, scale)
        name = group.label if len(group.runs) == 1 else f"{group.label}, seed {run.result.seed}"
        if len(points) > 1:
            lines.append(Series(name, list(points), list(points.values())))
    return lines


def _mean(group: SeedGroup, key: str, scale: float) -> list[Series]:
    """Over the candidates that all runs of the group have a generation at."""
    points = [found for run in group.runs if len(found := _points(run, key, scale)) > 1]
    shared = [x for x in points[0] if all(x in other for other in points)] if points else []
    if len(shared) < 2:
        return []
    y = np.array([[found[x] for x in shared] for found in points])
    spread = y.std(axis=0, ddof=1).tolist() if len(y) > 1 else None
    return [Series(group.label, shared, y.mean(axis=0).tolist(), spread)]


def _points(run: StoredRun, key: str, scale: float) -> dict[float, float]:
    """Value by candidates so far, thinned out evenly."""
    entries: Sequence[JournalLine] = run.journal if run.result.ledger.candidates else []
    step = -(-len(entries) // POINTS) or 1
    kept = [*entries[:-1:step], *entries[-1:]]
    return {e.candidates: float("nan") if getattr(e, key) is None else scale * getattr(e, key) for e in kept}
