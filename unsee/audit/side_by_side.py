"""Audits of runs summarised: methods side by side, over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from unsee.audit.cells import rule_name, show_value
from unsee.audit.record import AuditRecord
from unsee.runs.records import AuditSummary, EstimateRecord
from unsee.text_table import TextTable, percent


@dataclass(frozen=True)
class AuditRow:
    """One method's audits: the mean of each figure over the runs that have it; None if none has."""

    name: str
    runs: int
    serve: str  # the rule that its prompts carry
    entropy: float | None
    mutual_information: float | None  # bits
    largest_share: float | None
    auroc: float | None
    probe: Mapping[int, float | None]
    probe_std: Mapping[int, float]  # over the runs, 0 for one
    probe_chance: float
    calibration_error: float | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def summarize_audits(name: str, found: Sequence[AuditSummary]) -> AuditRow:
    """What these audits make together."""

    def mean(of: Callable[[AuditSummary], EstimateRecord | None]) -> float | None:
        values = [estimate.value for each in found if (estimate := of(each)) is not None]
        return statistics.fmean(values) if values else None

    errors = [each.calibration_error for each in found if each.calibration_error is not None]
    shots = sorted({k for each in found for k in each.probe})
    probes = {k: [p.value for each in found if (p := each.probe.get(k)) is not None] for k in shots}
    return AuditRow(
        name=name,
        runs=len(found),
        serve=found[0].serve,
        entropy=mean(lambda each: each.entropy),
        mutual_information=mean(lambda each: each.mutual_information),
        largest_share=mean(lambda each: each.largest_share),
        auroc=mean(lambda each: each.auroc),
        probe={k: statistics.fmean(values) if values else None for k, values in probes.items()},
        probe_std={k: statistics.stdev(values) if len(values) > 1 else 0.0 for k, values in probes.items()},
        probe_chance=statistics.fmean(each.probe_chance for each in found),
        calibration_error=statistics.fmean(errors) if errors else None,
    )


@dataclass(frozen=True)
class ServedRow:
    """One method under one rule, means over its runs; None where no run has the figure."""

    name: str
    rule: str
    runs: int
    h: float
    err_for: float
    acc_mem: float
    entropy: float | None
    mutual_information: float | None
    probe: float | None  # of the most shots
    auroc: float | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def summarize_served(name: str, found: Sequence[AuditRecord]) -> list[ServedRow]:
    """A row for each rule."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    def row(rule: str) -> ServedRow:
        served = [each.serving[rule] for each in found]
        return ServedRow(
            name=name,
            rule=rule,
            runs=len(served),
            h=statistics.fmean(each.scores.h for each in served),
            err_for=statistics.fmean(each.scores.err_for for each in served),
            acc_mem=statistics.fmean(each.scores.acc_mem for each in served),
            entropy=mean([each.entropy for each in served]),
            mutual_information=mean([each.mutual_information for each in served]),
            probe=mean([each.probe[max(each.probe)] for each in served if each.probe]),
            auroc=mean([each.auroc_probe for each in served]),
        )

    return [row(rule) for rule in found[0].serving]


SERVED_HEADER = ("rule", "H", "Err_for", "Acc_mem", "entropy", "bits of top label", "16-shot probe, %", "AUROC")


def served_table(rows: Sequence[ServedRow], title: str = "") -> TextTable:
    """One line per method and rule, in percent where that is a share."""
    return TextTable(("", *SERVED_HEADER), [[row.name, row.rule, *_figures(row)] for row in rows], title)


def rules_table(found: AuditRecord, title: str = "") -> TextTable:
    """One run's answers under each rule: as served, prompt alone, and under rules that a provider could add."""
    rows = summarize_served(found.method, [found])
    return TextTable(SERVED_HEADER, [[rule_name(row.rule, found.serve), *_figures(row)] for row in rows], title)


def _figures(row: ServedRow) -> list[str]:
    return [
        *(percent(share, 2, "") for share in (row.h, row.err_for, row.acc_mem)),
        show_value(row.entropy),
        show_value(row.mutual_information),
        percent(row.probe, unit=""),
        show_value(row.auroc),
    ]


def audits_table(rows: Sequence[AuditRow], title: str = "") -> TextTable:
    """One line per method; shares in percent."""
    shots = sorted({k for row in rows for k in row.probe})
    header = ("", "runs", "rule as served", "entropy", "bits of top label", "largest share, %")
    probes = tuple(f"{k}-shot probe, %" for k in shots)
    cells = [
        [
            row.name,
            str(row.runs),
            row.serve,
            show_value(row.entropy),
            show_value(row.mutual_information),
            percent(row.largest_share, unit=""),
            *(_spread(row.probe.get(k), row.probe_std.get(k, 0) if row.runs > 1 else None) for k in shots),
            percent(row.probe_chance, unit=""),
            show_value(row.auroc),
            show_value(row.calibration_error, 3),
        ]
        for row in rows
    ]
    return TextTable((*header, *probes, "chance, %", "AUROC", "ECE, kept"), cells, title)


def _spread(share: float | None, spread: float | None) -> str:
    more = "" if share is None or spread is None else f" ± {percent(spread, unit='')}"
    return percent(share, unit="") + more
