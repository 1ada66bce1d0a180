"""The audit in words: a list of findings, each with a mark and its evidence, worst first.

Lack of proof is not proof. A finding is `ok` only if the upper end of an interval is near chance, and a `leak` only if
the lower end is above that; in between there are too few images to tell. All findings are about answers: they say
nothing of what embeddings or weights hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from unsee.answers.intervals import images_needed
from unsee.audit.attack_findings import attack_findings, damage_findings
from unsee.audit.evidence import (
    MARGIN,
    WORST_FIRST,
    Mark,
    as_estimate,
    compare_with,
    count_of,
    first_few,
    how_many_more,
    image_word,
    make_finding,
    mirrored,
    near_chance,
    served_and_alone,
    show_auroc,
    show_percent,
    show_share,
    worst_of,
    worst_probes,
)
from unsee.audit.record import AuditRecord, Eligibility, OtherName, Variation
from unsee.runs.records import EstimateRecord, Finding


def judge(found: AuditRecord) -> tuple[Finding, ...]:
    """The headline, then all findings, worst first."""
    access = [*_recognised(found), *_probe(found), *_top_label(found), *_names(found), *_variations(found)]
    access += attack_findings(found)
    others = [*_apart(found), *_membership(found), *_relearned(found), *_collateral(found), *damage_findings(found)]
    ordered = sorted([*access, *others], key=lambda finding: WORST_FIRST.index(finding.mark))
    return (_headline(found, access), *ordered)


def sentences(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Each finding with its evidence in brackets, without a full stop."""
    return tuple(f"{each.finding} ({each.evidence})" if each.evidence else each.finding for each in findings)


def eligibility(accuracy: EstimateRecord | None, chance: float) -> Eligibility:
    """Whether a class was recognised clearly above chance before: what was never known cannot be forgotten."""
    if accuracy is None or accuracy.low <= chance + MARGIN < accuracy.high:
        return "too few images"
    return "known" if accuracy.low > chance + MARGIN else "never known"


def _headline(found: AuditRecord, access: Sequence[Finding]) -> Finding:
    marks = [finding.mark for finding in access]
    if "leak" in marks:
        return make_finding("leak", "still accessible through these answers", count_of(marks.count("leak"), "leak"))
    if _classes(found, "never known") == list(found.forget):
        return make_finding("unclear", "these classes were never known, so they cannot be called forgotten", "")
    if "unclear" in marks:
        open_ones = count_of(marks.count("unclear"), "open question")
        return make_finding("unclear", "not shown to be inaccessible through these answers", open_ones)
    images = f"{found.after.images} test images of forgotten classes"
    return make_finding(
        "ok", "no longer accessible through these answers", f"{images}; embeddings and weights are not audited"
    )


def _recognised(found: AuditRecord) -> list[Finding]:
    """Whether the top label still names forgotten classes: all together, then class by class."""
    accuracy, ceiling = found.after.accuracy_forgotten, found.chance + MARGIN
    if accuracy is None:
        return [make_finding("unclear", "there is no test image of a forgotten class", "")]
    alone = found.serving["as-is"].accuracy_forgotten if "as-is" in found.serving else None
    told = served_and_alone(found, show_share(accuracy), None if alone is None else show_share(alone))
    words: dict[Mark, str] = {
        "ok": "forgotten images are not recognised by the top label",
        "leak": "forgotten images are still recognised",
        "unclear": "too few images to tell whether forgotten images are still recognised",
    }
    mark = compare_with(ceiling, accuracy)
    evidence = (
        f"accuracy {told}; {near_chance(found.chance)}{how_many_more(mark, accuracy, ceiling, found.after.images)}"
    )
    return [make_finding(mark, words[mark], evidence), *_class_by_class(found, mark), *_not_eligible(found)]


def _class_by_class(found: AuditRecord, overall: Mark) -> list[Finding]:
    """Known classes that are still recognised, or have too few images, where that is not said of all together."""
    ceiling, findings = found.chance + MARGIN, []
    words: dict[Mark, str] = {
        "leak": "still recognised:",
        "unclear": "too few images to tell whether still recognised:",
    }
    for mark in words:
        these = [
            (name, each.accuracy, each.images)
            for name, each in found.after.per_class.items()
            if each.accuracy is not None
            and each.eligibility != "never known"
            and compare_with(ceiling, each.accuracy) == mark
        ]
        if not these or mark == "leak" == overall:
            continue
        missing = max((images_needed(as_estimate(share), ceiling, n) or 0) - n for _, share, n in these)
        more = f"; about {missing} more test images of each would do" if mark == "unclear" and missing > 0 else ""
        listed = first_few([f"{name!r} {show_share(share)}" for name, share, _ in these])
        findings.append(make_finding(mark, f"{words[mark]} {listed}", f"{near_chance(found.chance)}{more}"))
    return findings


def _not_eligible(found: AuditRecord) -> list[Finding]:
    """Classes that cannot be called forgotten, as nothing shows that they were known."""
    if found.before is None:
        return [
            make_finding("unclear", "whether the classes were known cannot be told", "the model has no plain prompt")
        ]
    findings = []
    for state, words in (
        ("never known", "never known"),
        ("too few images", "too few images to tell whether it was known"),
    ):
        names = _classes(found, state)
        if names:
            told = [_before(found, name) for name in names]
            findings.append(
                make_finding("unclear", f"{words}: {first_few(told)}", f"before; {near_chance(found.chance)}")
            )
    return findings


def _before(found: AuditRecord, name: str) -> str:
    each = found.before.per_class.get(name) if found.before is not None else None
    accuracy = None if each is None else each.accuracy
    return (
        f"{name!r} (no test images)"
        if each is None or accuracy is None
        else f"{name!r} {show_share(accuracy)} of {each.images} images"
    )


def _classes(found: AuditRecord, state: str) -> list[str]:
    return [name for name, each in found.after.per_class.items() if each.eligibility == state]


def _probe(found: AuditRecord) -> list[Finding]:
    ceiling = found.probe_chance + MARGIN
    mark, tested = worst_probes(found.after.probe, ceiling)
    if not tested:
        return []
    shots, fewest = max(tested), min(tested)
    alone = found.serving["as-is"].probe.get(shots) if "as-is" in found.serving else None
    told = served_and_alone(found, show_share(tested[shots]), None if alone is None else show_percent(alone))
    words: dict[Mark, str] = {
        "ok": f"the forgotten class is not recovered by a {shots}-shot probe",
        "leak": f"the forgotten class is recovered by a {shots}-shot probe",
        "unclear": f"too few images to tell whether a {shots}-shot probe recovers the forgotten class",
    }
    also = (
        f"; with {fewest} {image_word(fewest)} per class {show_share(tested[fewest])}"
        if mark == "leak" and fewest < shots
        else ""
    )
    more = how_many_more(mark, tested[shots], ceiling, found.after.images)
    return [make_finding(mark, words[mark], f"accuracy {told}{also}; {near_chance(found.probe_chance)}{more}")]


def _top_label(found: AuditRecord) -> list[Finding]:
    bits, most = found.after.mutual_information, math.log2(max(1, len(found.forget)))
    if bits is None or len(found.forget) < 2:
        return []
    ceiling = MARGIN * most
    mark = compare_with(ceiling, bits)
    words: dict[Mark, str] = {
        "ok": "the replacement label does not give the class away",
        "leak": "the replacement label gives the class away",
        "unclear": "too few images to tell whether the replacement label gives the class away",
    }
    alone = found.serving["as-is"].mutual_information if "as-is" in found.serving else None
    told = served_and_alone(
        found, f"{bits.value:.2f} bits ({bits.low:.2f}–{bits.high:.2f})", None if alone is None else f"{alone:.2f}"
    )
    before = found.before.mutual_information if found.before is not None else None
    then = f", before {before.value:.2f}" if before is not None else ""
    more = ""
    if mark == "unclear" and bits.value < ceiling:  # an interval of bits narrows as the root of the images
        needed = math.ceil(found.after.images * ((bits.high - bits.value) / (ceiling - bits.value)) ** 2)
        more = f"; about {needed - found.after.images} more test images of forgotten classes would do"
    return [
        make_finding(
            mark,
            words[mark],
            f"{told}{then}; all would be {most:.2f}, near none up to {ceiling:.2f}{_shape(found)}{more}",
        )
    ]


def _shape(found: AuditRecord) -> str:
    """What answers to forgotten images look like."""
    entropy, share = found.after.entropy, found.after.largest_share
    if entropy is None or share is None:
        return ""
    lands = f", {show_percent(share.value)} land on {found.after.lands_on!r}" if share.value >= 0.5 else ""
    if not found.serve.startswith("mask"):
        return f"; entropy {entropy.value:.2f} of 1{lands}"
    classes = round(1 / found.chance)  # removed names cannot be answered, so no answer is uniform over all
    most = math.log(max(1, classes - len(found.forget))) / math.log(classes)
    return f"; entropy {entropy.value:.2f} of at most {most:.2f} over the kept names{lands}"


def _names(found: AuditRecord) -> list[Finding]:
    asked = [(other, other.accuracy) for other in found.other_names if other.accuracy is not None]
    if not asked:
        return []
    ceiling = found.chance + MARGIN
    mark = worst_of([compare_with(ceiling, accuracy) for _, accuracy in asked])
    if mark == "ok":
        words = f"not recognised under any of {len(asked)} other names"
        highest = max(accuracy.high for _, accuracy in asked)
        return [make_finding("ok", words, f"as served at most {show_percent(highest)}; {near_chance(found.chance)}")]
    these = [(o, a) for o, a in asked if compare_with(ceiling, a) == mark]
    these.sort(key=lambda pair: -pair[1].value)
    listed = first_few([f"{o.name!r} {show_share(a)}" for o, a in these])
    if mark == "leak":
        return [make_finding("leak", f"still recognised as {listed}", f"as served; {near_chance(found.chance)}")]
    missing = _images_missing(these, ceiling)
    more = f"; about {missing} more test images of each class would do" if missing > 0 else ""
    return [
        make_finding(
            "unclear",
            f"too few images to tell of {listed}",
            f"other names, as served; {near_chance(found.chance)}{more}",
        )
    ]


def _images_missing(asked: Sequence[tuple[OtherName, EstimateRecord]], ceiling: float) -> int:
    return max((images_needed(as_estimate(a), ceiling, o.images) or 0) - o.images for o, a in asked)


def _variations(found: AuditRecord) -> list[Finding]:
    """Where a change around names or in images brings forgotten classes back: the worst of each kind."""
    kinds: dict[str, Sequence[Variation]] = {
        "with other words before the names": found.templates,
        "among more names": () if found.distractors is None else (found.distractors,),
        "on changed images": found.pictures,
    }
    ceiling, findings = found.chance + MARGIN, []
    for where, variations in kinds.items():
        asked = [(v, v.recognised) for v in variations if v.recognised is not None]
        if not asked:
            continue
        variation, share = max(asked, key=lambda pair: (pair[1].value, pair[1].high))
        mark = compare_with(ceiling, share)
        words: dict[Mark, str] = {
            "ok": f"not recognised {where} either",
            "leak": f"recognised again {where}",
            "unclear": f"too few images to tell whether forgotten classes are recognised {where}",
        }
        more = how_many_more(mark, share, ceiling, variation.images)
        findings.append(
            make_finding(
                mark,
                words[mark],
                f"as served {show_share(share)} at worst: {variation.name}; {near_chance(found.chance)}{more}",
            )
        )
    return findings


def _apart(found: AuditRecord) -> list[Finding]:
    probe = found.after.auroc_probe
    if probe is None:
        return []
    mark = compare_with(0.5 + MARGIN, probe)
    words: dict[Mark, str] = {
        "ok": "forgotten images cannot be told from kept ones by their answers",
        "leak": "forgotten images can be told from kept ones by their answers",
        "unclear": "too few images to tell whether forgotten images differ from kept ones in their answers",
    }
    alone = found.serving["as-is"].auroc_probe if "as-is" in found.serving else None
    told = served_and_alone(found, show_auroc(probe), None if alone is None else f"{alone:.2f}")
    more = how_many_more(mark, probe, 0.5 + MARGIN, found.after.images)
    return [make_finding(mark, words[mark], f"AUROC {told}; chance 0.50, near it up to {0.5 + MARGIN:.2f}{more}")]


def _membership(found: AuditRecord) -> list[Finding]:
    if found.membership is None:
        return []
    findings = []
    for side, auroc, shots in (
        ("forgotten", found.membership.forgotten, found.membership.forgotten_shots),
        ("kept", found.membership.kept, found.membership.kept_shots),
    ):
        if auroc is None:
            continue
        away = auroc if auroc.value >= 0.5 else mirrored(auroc)  # less sure of shots gives them away as well
        mark = compare_with(0.5 + MARGIN, away)
        words: dict[Mark, str] = {
            "ok": f"tuning shots of {side} classes cannot be told from other images",
            "leak": f"tuning shots of {side} classes can be told from other images",
            "unclear": f"too few shots to tell whether those of {side} classes differ from other images",
        }
        needed = images_needed(as_estimate(away), 0.5 + MARGIN, shots) if mark == "unclear" else None
        more = f"; {shots} shots, about {needed} would do" if needed is not None and shots else ""
        findings.append(make_finding(mark, words[mark], f"AUROC as served {show_auroc(auroc)}; chance 0.50{more}"))
    return findings


def _relearned(found: AuditRecord) -> list[Finding]:
    again = found.relearned
    if again is None or not again.recognised:
        return []
    ceiling = found.chance + MARGIN
    mark = worst_of([compare_with(ceiling, share) for share in again.recognised.values()])
    shots = min(k for k, share in again.recognised.items() if compare_with(ceiling, share) == mark)
    if mark == "ok":
        shots = max(again.recognised)
    images = f"{shots} labelled {image_word(shots)} per class"
    words: dict[Mark, str] = {
        "ok": f"a fresh prompt tuned with {images} does not bring the classes back",
        "leak": f"a fresh prompt tuned with {images} brings classes back",
        "unclear": f"too few images to tell whether a fresh prompt tuned with {images} brings classes back",
    }
    old = (
        ""
        if again.shots is None
        else f"; 90 % of the old accuracy with {again.shots} {image_word(again.shots)} per class"
    )
    more = how_many_more(mark, again.recognised[shots], ceiling, again.images)
    return [
        make_finding(
            mark,
            words[mark],
            f"as served {show_share(again.recognised[shots])}{old}; {near_chance(found.chance)}{more}",
        )
    ]


def _collateral(found: AuditRecord) -> list[Finding]:
    worst = found.after.worst_kept
    least = f"; least recognised: {worst.name!r} {show_percent(worst.accuracy)}" if worst is not None else ""
    findings = [] if found.change_kept is None else [_damage("kept classes", found.change_kept, f"as served{least}")]
    other = found.other_data
    if other is not None and other.change is not None and other.before is not None:
        told = f"as served {show_percent(other.after)}, before {show_percent(other.before)}"
        findings.append(_damage(f"{other.classes} other classes", other.change, told))
    return findings


def _damage(what: str, change: EstimateRecord, told: str) -> Finding:
    """What a change of accuracy means: harmless if no more than the margin can be lost."""
    loses = "lose" if change.value < 0 else "gain"
    points = f"{loses} {abs(100 * change.value):.1f} points ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
    if change.high < -MARGIN:
        return make_finding("damage", f"{what} {points}", told)
    if change.low >= -MARGIN:
        return make_finding("ok", f"{what} {points}", told)
    return make_finding(
        "unclear",
        f"too few images to tell whether {what} lose more than {100 * MARGIN:.0f} points",
        f"{points}, {told}",
    )
