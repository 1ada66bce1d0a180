"""Attacks and damage in words: findings on the worst case, on undoing the prompt, and on what lies near."""

from __future__ import annotations

from unsee.answers.intervals import wilson
from unsee.audit.attack_records import Attack, NearDamage
from unsee.audit.evidence import (
    MARGIN,
    Mark,
    compare_with,
    first_few,
    how_many_more,
    make_finding,
    near_chance,
    show_percent,
    show_share,
    worst_of,
    worst_probes,
)
from unsee.audit.record import AuditRecord
from unsee.runs.records import EstimateRecord, Finding


def attack_findings(found: AuditRecord) -> list[Finding]:
    """What attackers recover through answers."""
    return [*_prototype(found), *_worst_case(found), *_rebuilt(found)]


def damage_findings(found: AuditRecord) -> list[Finding]:
    """What else was lost."""
    near = {"kept classes near the forgotten ones": found.near_kept}
    near["other classes near the forgotten ones"] = found.near_others
    return [*(each for name, damage in near.items() for each in _near(name, damage)), *_fragile(found)]


def _prototype(found: AuditRecord) -> list[Finding]:
    ceiling = found.probe_chance + MARGIN
    mark, tested = worst_probes(found.after.prototype, ceiling)
    if not tested:
        return []
    shots = max(tested)
    words: dict[Mark, str] = {
        "ok": "the forgotten class is not recovered by the nearest class mean of answers",
        "leak": "the forgotten class is recovered by the nearest class mean of answers",
        "unclear": "too few images to tell whether the nearest class mean of answers recovers the forgotten class",
    }
    more = how_many_more(mark, tested[shots], ceiling, found.after.images)
    evidence = f"as served {show_share(tested[shots])} with {shots} labelled per class"
    return [make_finding(mark, words[mark], f"{evidence}; {near_chance(found.probe_chance)}{more}")]


def _worst_case(found: AuditRecord) -> list[Finding]:
    """Whether some attack recovers more than chance does: all together, and each alone."""
    worst = found.worst_case
    if worst is None or worst.any.share is None:
        return []
    named = {"any without labelled images": worst.without_labels, "any of all": worst.any}
    shares = [
        (attack.share, attack.by_chance + MARGIN)
        for attack in (worst.any, worst.without_labels, *worst.attacks.values())
        if attack.share is not None
    ]
    mark = worst_of([compare_with(ceiling, share) for share, ceiling in shares])
    share, ceiling = next(each for each in shares if compare_with(each[1], each[0]) == mark)
    words: dict[Mark, str] = {
        "ok": f"{len(worst.attacks)} attacks together recover no more forgotten images than chance",
        "leak": f"some of {len(worst.attacks)} attacks recover forgotten images",
        "unclear": f"too few images to tell whether {len(worst.attacks)} attacks recover more than chance",
    }
    best, most = max(worst.attacks.items(), key=lambda item: item[1].above_chance or 0.0)
    told = [_told(name, attack) for name, attack in (*named.items(), (f"most alone: {best}", most))]
    more = how_many_more(mark, share, ceiling, worst.images)
    return [make_finding(mark, words[mark], f"{'; '.join(told)}; {worst.any.budget}{more}")]


def _rebuilt(found: AuditRecord) -> list[Finding]:
    """Whether a caller who chooses label lists undoes the prompt, under the rule that it carries."""
    rebuilt = found.rebuilt
    if rebuilt is None or found.serve not in rebuilt.rules:
        return []
    undone = rebuilt.rules[found.serve].from_answers
    lists = max(undone.accuracy)
    images = max(undone.accuracy[lists])
    back, ceiling = wilson(undone.accuracy[lists][images], rebuilt.images), found.chance + MARGIN
    share = EstimateRecord(value=back.value, low=back.low, high=back.high)
    mark = compare_with(ceiling, share)
    words: dict[Mark, str] = {
        "ok": "a caller who chooses label lists does not undo the forgetting",
        "leak": "a caller who chooses label lists undoes the forgetting"
        + ("" if undone.lists is not None else " in part"),
        "unclear": "too few images to tell whether a caller who chooses label lists undoes the forgetting",
    }
    old = f"accuracy as served {show_share(share)} from {lists} lists and {images} images whose plain answers are known"
    enough = "" if undone.lists is None else f"; {undone.lists} lists and {undone.images} images give 90 % of it back"
    more = how_many_more(mark, share, ceiling, rebuilt.images)
    return [make_finding(mark, words[mark], f"{old}, {show_percent(rebuilt.accuracy_before)} before{enough}{more}")]


def _near(name: str, damage: NearDamage | None) -> list[Finding]:
    if damage is None or damage.difference is None:
        return []
    mark, margin = _lost(damage.difference), f"{100 * MARGIN:.0f} points"
    words: dict[Mark, str] = {
        "ok": f"{name} lose no more than the others",
        "damage": f"{name} lose more than the others",
        "unclear": f"too few images to tell whether {name} lose more than the others",
    }
    told = f"{_points(damage.difference)}; near: {first_few(list(dict.fromkeys(damage.nearest.values())))}"
    return [make_finding(mark, words[mark], f"{told}; up to {margin} counts as no more")]


def _fragile(found: AuditRecord) -> list[Finding]:
    """Whether kept classes are lost more easily than before: the control for what views do to forgotten ones."""
    fragile = found.fragility
    if fragile is None or fragile.after is None or fragile.before is None or fragile.difference is None:
        return []
    mark = _lost(fragile.difference)
    words: dict[Mark, str] = {
        "ok": "kept images are no more fragile than before",
        "damage": "kept images are more fragile than before",
        "unclear": "too few images to tell whether kept images are more fragile than before",
    }
    told = f"one of {fragile.views} views turns {show_share(fragile.after)} wrong, before {show_share(fragile.before)}"
    return [make_finding(mark, words[mark], f"{told}; of the same images {_points(fragile.difference)}")]


def _lost(difference: EstimateRecord) -> Mark:
    mark = compare_with(MARGIN, difference)
    return "damage" if mark == "leak" else mark


def _told(name: str, attack: Attack) -> str:
    share = "–" if attack.share is None else show_share(attack.share)
    return f"{name} {share}, by chance {show_percent(attack.by_chance)}"


def _points(found: EstimateRecord) -> str:
    return f"{100 * found.value:+.1f} points more ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
