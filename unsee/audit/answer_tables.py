"""Tables of answers to the test images: before and as served, class by class."""

from __future__ import annotations

from unsee.audit.cells import show_change, show_number, show_share, show_value
from unsee.audit.record import Answers, AuditRecord
from unsee.audit.side_by_side import rules_table
from unsee.text_table import TextTable, percent


def answer_tables(found: AuditRecord) -> list[TextTable]:
    """What answers leak, what is left of each forgotten class, and the same answers under every rule."""
    return [_answers(found), _classes(found), rules_table(found)]


def _answers(found: AuditRecord) -> TextTable:
    rows: list[tuple[str, ...]] = []
    sides = (found.before, found.after)

    def row(name: str, key: str, chance: str = "", share: bool = True) -> None:
        show = show_share if share else show_number
        rows.append((name, *(show(getattr(side, key) if side else None) for side in sides), chance))

    row("accuracy on forgotten images", "accuracy_forgotten", percent(found.chance))
    rows.append(("  times chance", *(show_value(side.times_chance if side else None) for side in sides), "1.00"))
    row("entropy, 1 = uniform", "entropy", share=False)
    row("KL to uniform, nats", "kl", share=False)
    row("largest share on one label", "largest_share")
    rows.append(("  which label", *(side.lands_on or "–" if side else "–" for side in sides), ""))
    row("bits the top label leaks about the class", "mutual_information", "0.00", share=False)
    for shots in found.after.probe:
        cells = (show_share(side.probe.get(shots) if side else None) for side in sides)
        rows.append((f"class recovered by a {shots}-shot probe", *cells, percent(found.probe_chance)))
    for shots in found.after.prototype:
        cells = (show_share(side.prototype.get(shots) if side else None) for side in sides)
        rows.append((f"class recovered by a {shots}-shot prototype probe", *cells, percent(found.probe_chance)))
    for name, key in (("confidence", "confidence"), ("entropy", "entropy"), ("a probe", "probe")):
        row(f"forgotten images detected by {name}, AUROC", f"auroc_{key}", "0.50", share=False)
    row("accuracy on kept images", "accuracy_kept")
    rows.append(("  change in points", "", show_change(found.change_kept), ""))
    errors = (show_value(side.calibration_error if side else None, 3) for side in sides)
    rows.append(("  calibration error", *errors, ""))
    rows.append(("  lowest class", *(_worst(side) for side in sides), ""))
    return TextTable(("answers to test images", "before", f"as served ({found.serve})", "by chance"), rows)


def _classes(found: AuditRecord) -> TextTable:
    header = (
        "forgotten class",
        "images",
        "known before?",
        "accuracy before",
        "as served",
        "entropy before",
        "as served",
    )
    rows = []
    for name, after in found.after.per_class.items():
        before = found.before.per_class[name] if found.before else None
        cells = (
            str(after.images),
            after.eligibility or "–",
            show_share(before.accuracy if before else None),
            show_share(after.accuracy),
            show_number(before.entropy if before else None),
            show_number(after.entropy),
            after.lands_on or "–",
            show_share(after.largest_share),
        )
        rows.append((name, *cells))
    return TextTable((*header, "most frequent label", "share"), rows)


def _worst(side: Answers | None) -> str:
    worst = None if side is None else side.worst_kept
    return "–" if worst is None else f"{worst.name} {percent(worst.accuracy)}"
