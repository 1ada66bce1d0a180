"""Findings on answers to the test images: what the top label and probes leak, and what kept classes lost."""

from __future__ import annotations

import math

from unsee.answers.intervals import images_needed
from unsee.answers.rules import RULES
from unsee.audit.cells import show_number, show_share
from unsee.audit.evidence import (
    MARGIN,
    Mark,
    as_estimate,
    by_construction,
    compare_with,
    first_few,
    how_many_more,
    image_word,
    judge_change,
    make_finding,
    near_ceiling,
    served_and_alone,
    worst_probes,
)
from unsee.audit.record import AuditRecord, Served
from unsee.runs.records import Finding
from unsee.text_table import percent


def access_findings(found: AuditRecord) -> list[Finding]:
    """Whether answers to the test images leak the forgotten classes."""
    return [*_recognised(found), *_not_eligible(found), *_probe(found), *_top_label(found), *_prototype(found)]


def side_findings(found: AuditRecord) -> list[Finding]:
    """Whether answers reveal that something was forgotten, and what kept classes lost."""
    worst, change = found.after.worst_kept, found.change_kept
    least = "" if worst is None else f"; lowest: {worst.name!r} {percent(worst.accuracy, 0)}"
    kept = [] if change is None else [judge_change("kept classes", change, f"as served{least}")]
    return [*_apart(found), *kept]


def classes_known(found: AuditRecord, state: str) -> list[str]:
    """The forgotten classes of which it is said that they were `known`, `never known` or had `too few images`."""
    return [name for name, each in found.after.per_class.items() if each.eligibility == state]


def _alone(found: AuditRecord) -> Served | None:
    """What the prompt alone leaks."""
    return found.serving.get("as-is")


def _recognised(found: AuditRecord) -> list[Finding]:
    """Accuracy of the top label on forgotten classes: all together, then class by class."""
    accuracy, ceiling = found.after.accuracy_forgotten, found.chance + MARGIN
    if accuracy is None:
        return [make_finding("unclear", "there is no test image of a forgotten class", "")]
    alone = _alone(found)
    both = served_and_alone(
        found,
        show_share(accuracy, 0),
        None if alone is None or alone.accuracy_forgotten is None else show_share(alone.accuracy_forgotten, 0),
    )
    mark = compare_with(ceiling, accuracy)
    words = {
        "ok": "forgotten images are not recognised by the top label",
        "leak": "forgotten images are still recognised",
        "unclear": "too few images to tell whether forgotten images are still recognised",
    }
    more = how_many_more(mark, accuracy, ceiling, found.after.images) + by_construction(found, mark)
    evidence = f"accuracy {both}; {near_ceiling(found.chance)}{more}"
    return [make_finding(mark, words[mark], evidence), *_class_by_class(found, mark)]


def _class_by_class(found: AuditRecord, overall: Mark) -> list[Finding]:
    """Known classes that are still recognised, or have too few images, where that is not said of all together."""
    ceiling, findings = found.chance + MARGIN, []
    words: dict[Mark, str] = {
        "leak": "classes still recognised:",
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
        listed = first_few([f"{name!r} {show_share(share, 0)}" for name, share, _ in these])
        evidence = f"accuracy as served; {near_ceiling(found.chance)}{more}"
        findings.append(make_finding(mark, f"{words[mark]} {listed}", evidence))
    return findings


def _not_eligible(found: AuditRecord) -> list[Finding]:
    """Classes that cannot be called forgotten, as nothing shows that they were known."""
    if found.after.accuracy_forgotten is None:
        return []
    if found.before is None:
        return [make_finding("unclear", "it is not known whether the model knew the classes", "it has no plain prompt")]
    findings = []
    for state, words in (
        ("never known", "never known"),
        ("too few images", "too few images to tell whether it was known"),
    ):
        names = classes_known(found, state)
        if names:
            listed = first_few([_before(found, name) for name in names])
            evidence = f"accuracy before; {near_ceiling(found.chance)}"
            findings.append(make_finding("unclear", f"{words}: {listed}", evidence))
    return findings


def _before(found: AuditRecord, name: str) -> str:
    each = found.before.per_class.get(name) if found.before is not None else None
    if each is None or each.accuracy is None:
        return f"{name!r} (no test images)"
    return f"{name!r} {show_share(each.accuracy, 0)} of {each.images} images"


def _probe(found: AuditRecord) -> list[Finding]:
    ceiling = found.probe_chance + MARGIN
    mark, tested = worst_probes(found.after.probe, ceiling)
    if not tested:
        return []
    shots, fewest, alone = max(tested), min(tested), _alone(found)
    by_prompt = None if alone is None else alone.probe.get(shots)
    both = served_and_alone(found, show_share(tested[shots], 0), None if by_prompt is None else percent(by_prompt, 0))
    words = {
        "ok": f"a {shots}-shot probe does not recover the forgotten class",
        "leak": f"a {shots}-shot probe recovers the forgotten class",
        "unclear": f"too few images to tell whether a {shots}-shot probe recovers the forgotten class",
    }
    also = (
        f"; with {fewest} {image_word(fewest)} per class {show_share(tested[fewest], 0)}"
        if mark == "leak" and fewest < shots
        else ""
    )
    more = how_many_more(mark, tested[shots], ceiling, found.after.images)
    return [make_finding(mark, words[mark], f"accuracy {both}{also}; {near_ceiling(found.probe_chance)}{more}")]


def _prototype(found: AuditRecord) -> list[Finding]:
    ceiling = found.probe_chance + MARGIN
    mark, tested = worst_probes(found.after.prototype, ceiling)
    if not tested:
        return []
    shots = max(tested)
    words = {
        "ok": "the nearest class mean of answers does not recover the forgotten class",
        "leak": "the nearest class mean of answers recovers the forgotten class",
        "unclear": "too few images to tell whether the nearest class mean of answers recovers the forgotten class",
    }
    more = how_many_more(mark, tested[shots], ceiling, found.after.images)
    evidence = f"accuracy as served {show_share(tested[shots], 0)} with {shots} labelled per class"
    return [make_finding(mark, words[mark], f"{evidence}; {near_ceiling(found.probe_chance)}{more}")]


def _top_label(found: AuditRecord) -> list[Finding]:
    bits, most = found.after.mutual_information, math.log2(max(1, len(found.forget)))
    if bits is None or len(found.forget) < 2:
        return []
    ceiling = MARGIN * most
    mark = compare_with(ceiling, bits)
    words = {
        "ok": "the replacement label does not give the class away",
        "leak": "the replacement label gives the class away",
        "unclear": "too few images to tell whether the replacement label gives the class away",
    }
    alone = _alone(found)
    by_prompt = None if alone is None or alone.mutual_information is None else f"{alone.mutual_information:.2f}"
    both = served_and_alone(found, show_number(bits, " bits"), by_prompt)
    before = found.before.mutual_information if found.before is not None else None
    then = f", before {before.value:.2f}" if before is not None else ""
    more = ""
    if mark == "unclear" and bits.value < ceiling:  # an interval of bits narrows as the root of the images
        needed = math.ceil(found.after.images * ((bits.high - bits.value) / (ceiling - bits.value)) ** 2)
        more = f"; about {needed - found.after.images} more test images of forgotten classes would do"
    evidence = f"{both}{then}; all would be {most:.2f}, near none up to {ceiling:.2f}{_shape(found)}{more}"
    return [make_finding(mark, words[mark], evidence)]


def _shape(found: AuditRecord) -> str:
    """What answers to forgotten images look like."""
    entropy, share = found.after.entropy, found.after.largest_share
    if entropy is None or share is None:
        return ""
    lands = f", {percent(share.value, 0)} get the label {found.after.lands_on!r}" if share.value >= 0.5 else ""
    if found.serve not in RULES or not RULES[found.serve].removes_names:
        return f"; entropy {entropy.value:.2f} of 1{lands}"
    classes = round(1 / found.chance)  # removed names cannot be answered, so no answer is uniform over all
    most = math.log(max(1, classes - len(found.forget))) / math.log(classes)
    return f"; entropy {entropy.value:.2f} of at most {most:.2f} over the kept names{lands}"


def _apart(found: AuditRecord) -> list[Finding]:
    probe = found.after.auroc_probe
    if probe is None:
        return []
    mark = compare_with(0.5 + MARGIN, probe)
    words = {
        "ok": "answers do not reveal whether an image is of a forgotten class",
        "leak": "answers reveal whether an image is of a forgotten class",
        "unclear": "too few images to tell whether answers reveal that an image is of a forgotten class",
    }
    alone = _alone(found)
    by_prompt = None if alone is None or alone.auroc_probe is None else f"{alone.auroc_probe:.2f}"
    both = served_and_alone(found, show_number(probe), by_prompt)
    more = how_many_more(mark, probe, 0.5 + MARGIN, found.after.images)
    return [make_finding(mark, words[mark], f"AUROC {both}; chance 0.50, near it up to {0.5 + MARGIN:.2f}{more}")]
