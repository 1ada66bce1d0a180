"""An audit as tables and a list of findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from unsee.audit.attack_tables import attack_parts
from unsee.audit.cells import cell, number, percent, points, rule_name
from unsee.audit.record import Answers, AuditRecord, Variation
from unsee.runs.records import Finding
from unsee.types import Scores


def audit_parts(found: AuditRecord, run: Path) -> list[str | Table]:
    """All that `unsee audit` prints."""
    names = ", ".join(found.forget)
    parts: list[str | Table] = [
        f"{found.data}: {found.method} forgot {names} ({found.images} test images, {found.model})"
    ]
    parts += [_answers(found), _classes(found), _serving(found), *_robustness(found), _other_names(found)]
    parts += attack_parts(found)
    if found.relearned is not None:
        shares = ", ".join(f"{k}: {cell(share)}" for k, share in found.relearned.recognised.items())
        parts.append(f"relearned by {found.relearned.method}, accuracy by labelled images per class: {shares}")
    parts += [f"not audited: {sentence}" for sentence in found.not_audited]
    parts.append(_verdict(found.findings))
    parts.append(f"{found.image_queries} image queries, {found.seconds:.1f} s\naudit: {run / 'audit.json'}")
    return [part for part in parts if not isinstance(part, Table) or part.row_count]


def _verdict(findings: Sequence[Finding]) -> str:
    """A line per finding, worst first; the first is the headline."""
    lines = [f"  {each.mark:<8}{each.finding}" + (f" ({each.evidence})" if each.evidence else "") for each in findings]
    return "\n".join(["verdict, of answers alone:", *lines])


def _answers(found: AuditRecord) -> Table:
    table = Table("answers to test images", "before", f"as served ({found.serve})", "by chance")
    sides = (found.before, found.after)

    def row(name: str, key: str, chance: str = "", as_percent: bool = True) -> None:
        table.add_row(name, *(cell(getattr(side, key) if side else None, as_percent) for side in sides), chance)

    row("forgotten images recognised", "accuracy_forgotten", percent(found.chance))
    table.add_row("  times chance", *(number(side.times_chance if side else None) for side in sides), "1.00")
    row("entropy, 1 = uniform", "entropy", "", as_percent=False)
    row("KL to uniform, nats", "kl", "", as_percent=False)
    row("largest share on one class", "largest_share")
    table.add_row("  which class", *(side.lands_on or "–" if side else "–" for side in sides), "")
    row("bits the top label leaks about the class", "mutual_information", "0.00", as_percent=False)
    for shots in found.after.probe:
        cells = (cell(side.probe.get(shots) if side else None) for side in sides)
        table.add_row(f"class recovered by a {shots}-shot probe", *cells, percent(found.probe_chance))
    for shots in found.after.prototype:
        cells = (cell(side.prototype.get(shots) if side else None) for side in sides)
        table.add_row(f"class recovered by a {shots}-shot prototype probe", *cells, percent(found.probe_chance))
    for name, key in (("confidence", "confidence"), ("entropy", "entropy"), ("a probe", "probe")):
        row(f"forgotten told from kept by {name}, AUROC", f"auroc_{key}", "0.50", as_percent=False)
    row("kept images recognised", "accuracy_kept")
    table.add_row("  change in points", "", points(found.change_kept), "")
    table.add_row("  calibration error", *(number(side.calibration_error if side else None, 3) for side in sides), "")
    table.add_row("  least recognised", *(_worst(side) for side in sides), "")
    if found.membership is not None:
        for side in ("forgotten", "kept"):
            told = cell(getattr(found.membership, side), as_percent=False)
            table.add_row(f"shots of {side} classes told from other images, AUROC", "", told, "0.50")
    return table


def _classes(found: AuditRecord) -> Table:
    table = Table(
        "forgotten class", "images", "known before?", "recognised before", "as served", "entropy before", "as served"
    )
    table.add_column("lands on")
    table.add_column("share")
    for name, after in found.after.per_class.items():
        before = found.before.per_class[name] if found.before else None
        cells = (
            str(after.images),
            after.eligibility or "–",
            cell(before.accuracy if before else None),
            cell(after.accuracy),
            cell(before.entropy if before else None, as_percent=False),
            cell(after.entropy, as_percent=False),
            after.lands_on or "–",
            cell(after.largest_share),
        )
        table.add_row(name, *cells)
    return table


def _serving(found: AuditRecord) -> Table:
    table = Table("served as", "H", "Err_for", "Acc_mem", "entropy", "bits of top label", "16-shot probe", "AUROC")
    for name, served in found.serving.items():
        figures = (served.entropy, served.mutual_information)
        probe = served.probe.get(16)
        cells = [*_scores(served.scores), *(number(x) for x in figures), "–" if probe is None else percent(probe)]
        table.add_row(rule_name(name, found.serve), *cells, number(served.auroc_probe))
    return table


def _robustness(found: AuditRecord) -> list[Table]:
    more = () if found.distractors is None else (found.distractors,)
    columns = ("Err_for before", "as served", "forgotten images recognised", "Acc_mem before", "as served")
    table = Table("changed", *columns)
    for variation in (*found.templates, *more, *found.pictures):
        table.add_row(variation.name, *_pairs(variation))
    other = found.other_data
    if other is None:
        return [table]
    data = Table("other data", "classes", "accuracy before", "as served", "change in points")
    before = "–" if other.before is None else percent(other.before)
    data.add_row(other.data, str(other.classes), before, percent(other.after), points(other.change))
    return [table, data]


def _other_names(found: AuditRecord) -> Table:
    table = Table("class", "asked for as", "images", "recognised before", "as served")
    for other in found.other_names:
        before = "–" if other.before is None else percent(other.before)
        table.add_row(other.class_name, other.name, str(other.images), before, cell(other.accuracy))
    return table


def _pairs(variation: Variation) -> Sequence[str]:
    before, after = variation.before, variation.after
    return (
        "–" if before is None else f"{100 * before.err_for:.2f}",
        f"{100 * after.err_for:.2f}",
        cell(variation.recognised),
        "–" if before is None else f"{100 * before.acc_mem:.2f}",
        f"{100 * after.acc_mem:.2f}",
    )


def _scores(scores: Scores) -> list[str]:
    return [f"{100 * value:.2f}" for value in (scores.h, scores.err_for, scores.acc_mem)]


def _worst(side: Answers | None) -> str:
    worst = None if side is None else side.worst_kept
    return "–" if worst is None else f"{worst.name} {percent(worst.accuracy)}"
