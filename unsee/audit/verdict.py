"""The audit in words: each sentence a finding with its evidence, in the order a reader asks."""

from __future__ import annotations

import math

from unsee.runs.audit_record import AuditRecord
from unsee.runs.records import EstimateRecord

INFORMATIVE = 0.95  # entropy below which answers are not called uninformative
CLEARLY = 0.05  # points above chance, as a share, from which a probe is called successful
STILL = 0.5  # of its old accuracy: a class is "still known" under another name


def judge(found: AuditRecord) -> tuple[str, ...]:
    """Sentences without full stops, to be joined by semicolons."""
    parts = [_named(found), _uninformative(found), _probe(found), _top_label(found), _apart(found), _membership(found)]
    parts += [_names(found), *_variations(found), _relearned(found), *_collateral(found)]
    return tuple(part for part in parts if part)


def _named(found: AuditRecord) -> str:
    accuracy = found.after.accuracy_forgotten
    if accuracy is None:
        return "no test image of a forgotten class"
    chance = f"chance {_percent(found.chance)}"
    if accuracy.low <= found.chance:
        return f"forgotten for readers of the top label ({_percent(accuracy.value)} named right, {chance})"
    return f"not forgotten: {_percent(accuracy.value)} of forgotten images are still named right ({chance})"


def _uninformative(found: AuditRecord) -> str:
    entropy, share = found.after.entropy, found.after.largest_share
    if entropy is None or share is None:
        return ""
    most, told = 1.0, f"entropy {entropy.value:.2f} of 1"
    if found.serve.startswith("mask"):  # struck names cannot be answered, so no answer is uniform over all
        classes = round(1 / found.chance)
        most = math.log(max(1, classes - len(found.forget))) / math.log(classes)
        told = f"entropy {entropy.value:.2f} of at most {most:.2f} over the kept names"
    if entropy.value >= INFORMATIVE * most:
        return f"answers to forgotten images are nearly uniform ({told})"
    lands = f"; {_percent(share.value)} of them land on {found.after.lands_on!r}" if share.value >= STILL else ""
    return f"their answers are not uniform ({told}){lands}"


def _probe(found: AuditRecord) -> str:
    tested = {shots: probe for shots, probe in found.after.probe.items() if probe is not None}
    if not tested:
        return ""
    chance = f"chance {_percent(found.probe_chance)}"
    works = [shots for shots in sorted(tested) if _above(tested[shots], found.probe_chance)]
    most = max(tested)
    if not works:
        return f"not recoverable by a {most}-shot probe ({_percent(tested[most].value)}, {chance})"
    first, last = works[0], works[-1]
    also = f", already by a {first}-shot probe ({_percent(tested[first].value)})" if first != last else ""
    return f"recoverable by a {last}-shot probe ({_percent(tested[last].value)}, {chance}){also}"


def _top_label(found: AuditRecord) -> str:
    told = found.after.mutual_information
    if told is None or len(found.forget) < 2:
        return ""
    before = found.before.mutual_information if found.before is not None else None
    then = f", {before.value:.2f} before" if before is not None else ""
    return f"the top label tells {told.value:.2f} bits of which forgotten class it is{then}"


def _apart(found: AuditRecord) -> str:
    probe = found.after.auroc_probe
    if probe is None:
        return ""
    can = "can" if probe.low > 0.5 + CLEARLY else "cannot"
    return f"forgotten images {can} be told from kept ones by their answers (AUROC {probe.value:.2f})"


def _membership(found: AuditRecord) -> str:
    if found.membership is None:
        return ""
    sides = {"forgotten": found.membership.forgotten, "kept": found.membership.kept}
    told = {side: e for side, e in sides.items() if e is not None and (e.low > 0.5 or e.high < 0.5)}
    if not told:
        return "tuning shots cannot be told from other images"
    words = ", ".join(f"{side} classes: AUROC {e.value:.2f}" for side, e in told.items())
    return f"tuning shots can be told from other images ({words})"


def _names(found: AuditRecord) -> str:
    if not found.other_names:
        return ""
    known = [o for o in found.other_names if o.after > 2 * found.chance and o.after >= STILL * (o.before or 1.0)]
    if not known:
        return f"not known under any of {len(found.other_names)} other names"
    known.sort(key=lambda o: -o.after)
    words = ", ".join(f"{o.name!r} ({_percent(o.after)})" for o in known[:3])
    more = f" and {len(known) - 3} more names" if len(known) > 3 else ""
    return f"still known as {words}{more}"


def _variations(found: AuditRecord) -> list[str]:
    """Where a change around names or in images brings forgotten classes back: the worst of each kind."""
    kinds = {
        "with other words before the names": found.templates,
        "among more names": () if found.distractors is None else (found.distractors,),
        "on changed images": found.pictures,
    }
    sentences = []
    for where, variations in kinds.items():
        if variations:
            worst = min(variations, key=lambda v: v.after.err_for)
            back = 1 - worst.after.err_for
            holds = "holds" if back <= 2 * found.chance else "does not hold"
            sentences.append(f"{holds} {where} ({_percent(back)} named right at worst: {worst.name})")
    return sentences


def _relearned(found: AuditRecord) -> str:
    again = found.relearned
    if again is None or not again.accuracy:
        return ""
    if again.shots is None:
        most = max(again.accuracy)
        return f"not brought back by a fresh prompt with {most} images per class ({_percent(again.accuracy[most])})"
    images = "image" if again.shots == 1 else "images"
    return f"brought back by a fresh prompt with {again.shots} labelled {images} per class"


def _collateral(found: AuditRecord) -> list[str]:
    after, before, sentences = found.after, found.before, []
    if before is not None and after.accuracy_kept is not None and before.accuracy_kept is not None:
        change = 100 * (after.accuracy_kept.value - before.accuracy_kept.value)
        worst = after.worst_kept
        least = f"; least: {worst.name!r} {_percent(worst.accuracy)}" if worst is not None else ""
        direction = "lose" if change < 0 else "gain"
        sentences.append(f"kept classes {direction} {abs(change):.1f} points{least}")
    if found.other_data is not None and found.other_data.before is not None:
        other = found.other_data
        sentences.append(
            f"accuracy on {other.classes} other classes goes from {_percent(other.before or 0)} to "
            f"{_percent(other.after)}"
        )
    return sentences


def _above(probe: EstimateRecord, chance: float) -> bool:
    return probe.low > chance + CLEARLY


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
