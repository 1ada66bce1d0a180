"""Methods side by side at equal image queries: runs what is missing, and summarises every method over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unsee.audit.audit import audit
from unsee.audit.record import AuditRecord, read_audit
from unsee.audit.side_by_side import AuditRow, ServedRow, summarize_audits, summarize_served
from unsee.data.class_names import forget_mask
from unsee.errors import InputError, RunError, unknown
from unsee.methods.cost import planned_cost, settings_for_queries
from unsee.methods.forecast import forecast
from unsee.methods.recorder import Watch
from unsee.methods.registry import METHODS, REFERENCE, changes_for
from unsee.report.paired import Difference, difference_over_seeds
from unsee.report.summary import MethodSummary, summarize
from unsee.runs.records import ResultRecord
from unsee.runs.sweep import RunRequest, Workspace, run_all
from unsee.settings import GOALS, Value
from unsee.text_table import TextTable
from unsee.types import Say


@dataclass(frozen=True)
class Comparison:
    """A summary of each method, and the number of image queries that every black-box method was given."""

    methods: list[MethodSummary]
    image_queries: int
    seeds: Sequence[int] = ()
    audits: Sequence[AuditRow] = ()  # where they were asked for
    served: Sequence[ServedRow] = ()  # the same, under each rule that a provider can add

    def differences(self) -> list[Difference | None]:
        """H of each row minus that of LCS, seed by seed, in points; without LCS, that of the first row."""
        first = next((row for row in self.methods if row.method == REFERENCE), self.methods[0])
        return [
            None if row is first else difference_over_seeds(first.method, *(_points(r.h_by_seed) for r in (row, first)))
            for row in self.methods
        ]

    def by_seed(self) -> TextTable:
        """Scores of every run, prompt alone, in points."""
        rows = [
            [row.method, str(seed), *(f"{100 * value:.4f}" for value in (scores.h, scores.err_for, scores.acc_mem))]
            for row in self.methods
            for seed, scores in zip(self.seeds, row.by_seed, strict=True)
        ]
        return TextTable(["method", "seed", "h", "err_for", "acc_mem"], rows)


def _points(shares: Sequence[float]) -> list[float]:
    return [100 * share for share in shares]


def compare(
    workspace: Workspace,
    forget: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    preset: str = "tuned",
    settings: Mapping[str, Value] | None = None,
    goals: Sequence[str] = (),
    audited: bool = False,
    say: Say = lambda text: None,
    watch: Watch | None = None,
) -> Comparison:
    """Compares methods. Finished runs in the workspace are reused, interrupted ones are resumed.

    goals: methods that tune a prompt by these, each a row of its own. audited: also what the answers of each run
    leak; runs that were audited before are not audited again.
    """
    for method in methods:
        if method not in METHODS:
            raise InputError(unknown("method", method, METHODS))
    for goal in goals:
        if goal not in GOALS:
            raise InputError(unknown("goal", goal, GOALS))
    forget_mask(workspace.data.class_names, forget)
    given, names = dict(settings or {}), tuple(forget)
    reference = workspace.task(RunRequest(REFERENCE, seeds[0], names, preset, given))
    queries = planned_cost(reference).image_queries
    if alone := [method for method in methods if changes_for(method, given) != given]:
        say(f"population={given['population']} does not reach {', '.join(alone)}: one candidate per step")
    rows: dict[str, tuple[str, list[RunRequest]]] = {}  # name of the row -> its method and runs
    for method in methods:
        for name, more in _variants(method, goals):
            first = RunRequest(method, seeds[0], names, preset, changes_for(method, given) | more)
            equal = {**first.settings, **settings_for_queries(workspace.task(first), queries)}
            rows[name] = method, [RunRequest(method, seed, names, preset, equal) for seed in seeds]
    requests = [request for _, own in rows.values() for request in own]
    missing = [request for request in requests if not workspace.has(request)]
    if missing:
        say(forecast(map(workspace.task, missing)).sentence())
    results: dict[Path, ResultRecord] = {}
    for request, result, seconds in run_all(workspace, requests, watch, say):
        results[workspace.find(request)] = result
        say(f"{request.method} seed {request.seed}: H {100 * result.test.h:.2f} ({seconds:.0f} s)")
    folders = {name: [workspace.find(request) for request in own] for name, (_, own) in rows.items()}
    summaries = [
        replace(summarize(rows[name][0], [results[run] for run in runs]), method=name) for name, runs in folders.items()
    ]
    if not audited:
        return Comparison(summaries, queries, seeds)
    audits, served = [], []
    for name, runs in folders.items():
        found = [_audit(workspace, run, say) for run in runs]
        audits.append(summarize_audits(name, [each.summary() for each in found]))
        served += summarize_served(name, found)
    return Comparison(summaries, queries, seeds, audits, served)


def _variants(method: str, goals: Sequence[str]) -> list[tuple[str, dict[str, Value]]]:
    """The rows of a method: one for each goal, if it tunes a prompt."""
    if not goals or not METHODS[method].tunes_prompt or METHODS[method].sees == "weights":
        return [(method, {})]
    return [(f"{method}, {goal}", {"goal": goal}) for goal in goals]


def _audit(workspace: Workspace, run: Path, say: Say) -> AuditRecord:
    """The audit of a run, made if it is missing, damaged or by an earlier version."""
    try:
        found = read_audit(run)
    except RunError as error:
        say(f"{error}; auditing again")
        found = None
    if found is None:
        say(f"auditing {run.name}")
        found = audit(run, workspace.model, workspace.data)
    return found
