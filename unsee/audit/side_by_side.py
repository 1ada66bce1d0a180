"""Audits of runs summarised: methods side by side, over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from unsee.audit.record import AuditRecord
from unsee.runs.records import AuditSummary, EstimateRecord
from unsee.text_table import TextTable


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
    """One method under one serving rule, means over its runs; None where no run has the figure."""

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
    """A row for each serving rule."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    rows = []
    for rule in found[0].serving:
        served = [each.serving[rule] for each in found]
        rows.append(
            ServedRow(
                name=name,
                rule=rule,
                runs=len(served),
                h=statistics.fmean(each.scores.h for each in served),
                err_for=statistics.fmean(each.scores.err_for for each in served),
                acc_mem=statistics.fmean(each.scores.acc_mem for each in served),
                entropy=mean([each.entropy for each in served]),
                mutual_information=mean([each.mutual_information for each in served]),
                probe=mean([each.probe[max(each.probe)] for each in served]),
                auroc=mean([each.auroc_probe for each in served]),
            )
        )
    return rows


def served_table(rows: Sequence[ServedRow], title: str = "") -> TextTable:
    """One line per method and serving rule, in percent where that is a share."""
    header = ("", "served as", "H", "Err_for", "Acc_mem", "entropy", "bits of top label", "16-shot probe, %", "AUROC")
    cells = [
        [
            row.name,
            row.rule,
            *(f"{100 * share:.2f}" for share in (row.h, row.err_for, row.acc_mem)),
            _cell(row.entropy),
            _cell(row.mutual_information),
            _cell(row.probe, 100, 1),
            _cell(row.auroc),
        ]
        for row in rows
    ]
    return TextTable(header, cells, title)


def audits_table(rows: Sequence[AuditRow], title: str = "") -> TextTable:
    """One line per method; shares in percent."""
    shots = sorted({k for row in rows for k in row.probe})
    header = ("", "runs", "served as", "entropy", "bits of top label", "largest share, %")
    probes = tuple(f"{k}-shot probe, %" for k in shots)
    cells = [
        [
            row.name,
            str(row.runs),
            row.serve,
            _cell(row.entropy),
            _cell(row.mutual_information),
            _cell(row.largest_share, 100, 1),
            *(_cell(row.probe.get(k), 100, 1, row.probe_std.get(k, 0) if row.runs > 1 else None) for k in shots),
            _cell(100 * row.probe_chance, 1, 1),
            _cell(row.auroc),
            _cell(row.calibration_error, 1, 3),
        ]
        for row in rows
    ]
    return TextTable((*header, *probes, "chance, %", "AUROC", "ECE, kept"), cells, title)


def _cell(value: float | None, scale: float = 1, digits: int = 2, spread: float | None = None) -> str:
    if value is None:
        return "–"
    return f"{scale * value:.{digits}f}" + ("" if spread is None else f" ± {scale * spread:.{digits}f}")
