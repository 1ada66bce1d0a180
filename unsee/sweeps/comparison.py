"""Methods side by side at equal image queries: runs what is missing, and summarises every method over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unsee.audit.audit import audit
from unsee.class_names import forget_mask
from unsee.errors import InputError, unknown
from unsee.methods.cost import planned_cost, settings_for_queries
from unsee.methods.forecast import forecast
from unsee.methods.recorder import Say, Watch
from unsee.methods.registry import METHODS, REFERENCE
from unsee.results.audits import AuditRow, summarize_audits
from unsee.results.summary import MethodSummary, summarize
from unsee.runs.records import ResultRecord
from unsee.settings import Value
from unsee.sweeps.sweep import RunRequest, Workspace, run_all


@dataclass(frozen=True)
class Comparison:
    """A summary of each method, and the number of image queries that every black-box method was given."""

    methods: list[MethodSummary]
    image_queries: int
    audits: Sequence[AuditRow] = ()  # where they were asked for


def compare(
    workspace: Workspace,
    forget: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    *,
    preset: str = "tuned",
    settings: Mapping[str, Value] | None = None,
    audited: bool = False,
    say: Say = lambda text: None,
    watch: Watch | None = None,
) -> Comparison:
    """Compares methods. Finished runs in the workspace are reused, interrupted ones are resumed.

    audited: also what the answers of each run still tell; runs that were audited before are not audited again.
    """
    for method in methods:
        if method not in METHODS:
            raise InputError(unknown("method", method, METHODS))
    forget_mask(workspace.data.class_names, forget)
    given, names = dict(settings or {}), tuple(forget)
    reference = workspace.task(RunRequest(REFERENCE, seeds[0], names, preset, _allowed(REFERENCE, given)))
    queries = planned_cost(reference).image_queries
    requests = []
    for method in methods:
        first = RunRequest(method, seeds[0], names, preset, _allowed(method, given))
        equal = {**first.settings, **settings_for_queries(workspace.task(first), queries)}
        requests += [RunRequest(method, seed, names, preset, equal) for seed in seeds]
    missing = [request for request in requests if not workspace.has(request)]
    if missing:
        say(forecast(map(workspace.task, missing)).sentence())
    results: dict[RunRequest, ResultRecord] = {}
    for request, result, seconds in run_all(workspace, requests, watch, say):
        results[request] = result
        say(f"{request.method} seed {request.seed}: H {100 * result.test.h:.2f} ({seconds:.0f} s)")
    rows = [summarize(method, [results[r] for r in requests if r.method == method]) for method in methods]
    if not audited:
        return Comparison(rows, queries)
    for request in requests:
        if results[request].audit is None:
            say(f"auditing {request.method} seed {request.seed}")
            audit(workspace.find(request), workspace.model, workspace.data)
            results[request] = workspace.run(request)
    found = {method: [results[r].audit for r in requests if r.method == method] for method in methods}
    audits = [summarize_audits(method, [a for a in each if a is not None]) for method, each in found.items()]
    return Comparison(rows, queries, audits)


def _allowed(method: str, given: Mapping[str, Value]) -> dict[str, Value]:
    """The given settings without a population, where the method has one of its own."""
    own = "population" in METHODS[method].settings
    return {name: value for name, value in given.items() if not (own and name == "population")}
