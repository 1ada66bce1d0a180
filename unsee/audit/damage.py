"""What forgetting did to classes that were to stay: near the forgotten ones, far from them, and on changed images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unsee.answers.intervals import Estimate, paired_difference, share_of
from unsee.answers.metrics import top_classes
from unsee.audit.asking import AskedAgain, AskedOthers
from unsee.audit.attack_records import Change, Fragility, NearDamage
from unsee.audit.case import Case
from unsee.audit.cells import show_change, show_share
from unsee.audit.evidence import MARGIN, first_few, judge_loss, make_finding
from unsee.audit.part import Part
from unsee.audit.record import AuditRecord, estimate
from unsee.audit.subject import Subject
from unsee.data.class_names import plain
from unsee.errors import InputError
from unsee.models.black_box import bind
from unsee.runs.records import EstimateRecord, Finding
from unsee.text_table import TextTable
from unsee.types import Floats, Ints, Mask

KEPT_HEADER = ("classes to keep", "images", "before", "as served")


def nearest_kept(plain_confidences: Floats, labels: Ints, forget: Mask) -> dict[int, int]:
    """For each forgotten class the kept one that the plain prompt is surest of on its images. (n, C), (n,), (C,)."""
    kept, found = np.flatnonzero(~forget), {}
    for c in np.flatnonzero(forget).tolist():
        mine = plain_confidences[labels == c]
        if len(mine):
            found[c] = int(kept[mine[:, kept].mean(axis=0).argmax()])
    return found


def nearest_others(confidences: Floats, labels: Ints, columns: Sequence[int]) -> list[int]:
    """For each of these columns, a forgotten name each, the class whose images have most confidence in it."""
    present = np.unique(labels)
    means = np.stack([confidences[labels == c].mean(axis=0) for c in present])  # (classes, names)
    return [int(present[means[:, column].argmax()]) for column in columns]


def near_damage(
    before: Ints, after: Ints, labels: Ints, near: Sequence[int]
) -> tuple[Change, Change, EstimateRecord | None]:
    """Accuracy on images of near classes, on the others, and by how much more the near ones lose.

    before, after, labels (n,): top answers to images that were not to be forgotten.
    """
    is_near = np.isin(labels, near)
    sides = [_change(before[side], after[side], labels[side]) for side in (is_near, ~is_near)]
    right = [(top == labels)[side] for side in (is_near, ~is_near) for top in (after, before)]  # lost, not gained
    difference = _apart(paired_difference(*right[:2]), paired_difference(*right[2:]))
    return sides[0], sides[1], estimate(difference)


def kept_damage(
    plain_confidences: Floats, after: Floats, labels: Ints, forget: Mask, names: Sequence[str]
) -> NearDamage:
    """Damage to the kept classes nearest to the forgotten ones. plain_confidences, after (n, C): on all test images."""
    nearest, stay = nearest_kept(plain_confidences, labels, forget), ~forget[labels]
    before, now = top_classes(plain_confidences), top_classes(after)
    found = near_damage(before[stay], now[stay], labels[stay], [*nearest.values()])
    return NearDamage(
        nearest={names[c]: names[k] for c, k in nearest.items()}, near=found[0], far=found[1], difference=found[2]
    )


def sibling_damage(subject: Subject, asked: AskedOthers) -> NearDamage:
    """Damage to the classes of other data nearest to the forgotten ones.

    Its images are asked under the plain prompt among its own names and the forgotten ones: nearest to a forgotten class
    is the class whose images have most confidence in that name.
    """
    if asked.before is None:
        raise InputError("classes near the forgotten ones are found by the plain prompt, and this model answers none")
    names = list(asked.class_names)
    at = {plain(name).lower(): i for i, name in enumerate(names)}
    columns = []
    for name in subject.task.forgotten:
        if plain(name).lower() not in at:
            at[plain(name).lower()] = len(names)
            names.append(name)
        columns.append(at[plain(name).lower()])
    confidences = subject.before(bind(subject.model, asked.images, names))
    if confidences is None:
        raise InputError("this model answers no plain-text prompt")
    labels = asked.images.labels
    nearest = nearest_others(confidences, labels, columns)
    found = near_damage(asked.before, asked.after, labels, nearest)
    return NearDamage(
        nearest={name: names[c] for name, c in zip(subject.task.forgotten, nearest, strict=True)},
        near=found[0],
        far=found[1],
        difference=found[2],
    )


def fragility(asked: AskedAgain, forget: Mask) -> Fragility | None:
    """How many kept images some view turns wrong, of those recognised without change; None without views."""
    if not asked.pictures:
        return None
    labels, views = asked.labels, asked.pictures
    kept = ~forget[labels]
    now = _Turned(kept, labels, top_classes(asked.after), [view.after for view in views])
    then = None
    if asked.before is not None:
        then = _Turned(kept, labels, asked.before, [view.before for view in views if view.before is not None])
    return Fragility(
        views=len(views),
        images_before=0 if then is None else int(then.known.sum()),
        before=None if then is None else estimate(share_of(then.wrong[then.known])),
        images_after=int(now.known.sum()),
        after=estimate(share_of(now.wrong[now.known])),
        difference=None if then is None else estimate(_more_fragile(then, now)),
    )


class _Turned:
    """Which kept images are recognised without change, and which some view turns wrong. Both (n,)."""

    def __init__(self, kept: Mask, labels: Ints, top: Ints, views: Sequence[Ints]) -> None:
        self.known: Mask = kept & (top == labels)
        self.wrong: Mask = np.any([seen != labels for seen in views], axis=0)


def _more_fragile(then: _Turned, now: _Turned) -> Estimate:
    """How many more images are turned wrong than before, of those that are recognised both times."""
    both = then.known & now.known
    return paired_difference(then.wrong[both], now.wrong[both])


def _change(before: Ints, after: Ints, labels: Ints) -> Change:
    return Change(
        classes=len(np.unique(labels)),
        images=len(labels),
        before=estimate(share_of(before == labels)),
        after=estimate(share_of(after == labels)),
    )


def _apart(first: Estimate, second: Estimate) -> Estimate:
    """The first minus the second, of different images: each end from the distances of both ends (MOVER)."""
    value = first.value - second.value
    low = math.hypot(first.value - first.low, second.high - second.value)
    high = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value, value - low, value + high)


def _near_kept(case: Case) -> NearDamage | None:
    if case.before is None:
        return None
    subject = case.subject
    return kept_damage(case.before, case.after, case.test.labels, subject.forget, subject.data.class_names)


def _near_others(case: Case) -> NearDamage | None:
    return None if case.others is None or case.before is None else sibling_damage(case.subject, case.others)


def _near_table(damage: NearDamage | None, where: str) -> list[TextTable]:
    """Accuracy near the forgotten classes and far from them."""
    if damage is None:
        return []
    near = ", ".join(dict.fromkeys(damage.nearest.values()))
    rows = [
        (name, str(change.images), show_share(change.before), show_share(change.after))
        for name, change in (
            (f"{where}, nearest to the forgotten: {near}", damage.near),
            (f"{where}, the others", damage.far),
        )
    ]
    return [
        TextTable(KEPT_HEADER, [*rows, ("  lost near minus lost far, points", "", "", show_change(damage.difference))])
    ]


def _near_findings(damage: NearDamage | None, name: str) -> list[Finding]:
    if damage is None or damage.difference is None:
        return []
    mark = judge_loss(damage.difference)
    words = {
        "ok": f"{name} lose no more accuracy than the others",
        "damage": f"{name} lose more accuracy than the others",
        "unclear": f"too few images to tell whether {name} lose more accuracy than the others",
    }
    near = first_few(list(dict.fromkeys(damage.nearest.values())))
    evidence = f"{show_change(damage.difference, ' points more')}; near: {near}"
    return [make_finding(mark, words[mark], f"{evidence}; up to {100 * MARGIN:.0f} points counts as no more")]


def _fragile_table(found: AuditRecord) -> list[TextTable]:
    """How easily kept images are lost, whatever was forgotten."""
    fragile = found.fragility
    if fragile is None:
        return []
    name = f"kept, recognised, lost in one of {fragile.views} views"
    images = f"{fragile.images_before}, {fragile.images_after}"
    return [TextTable(KEPT_HEADER, [(name, images, show_share(fragile.before), show_share(fragile.after))])]


def _fragile_findings(found: AuditRecord) -> list[Finding]:
    """Whether kept classes are lost more easily than before: the control for what views do to forgotten ones."""
    fragile = found.fragility
    if fragile is None or fragile.after is None or fragile.before is None or fragile.difference is None:
        return []
    mark = judge_loss(fragile.difference)
    words = {
        "ok": "kept images are no more fragile than before",
        "damage": "kept images are more fragile than before",
        "unclear": "too few images to tell whether kept images are more fragile than before",
    }
    now, then = show_share(fragile.after, 0), show_share(fragile.before, 0)
    lost = f"{now} are lost in one of {fragile.views} views, before {then}"
    evidence = f"{lost}; of the same images {show_change(fragile.difference, ' points more')}"
    return [make_finding(mark, words[mark], evidence)]


NEAR_KEPT = Part(
    _near_kept,
    lambda found: _near_table(found.near_kept, "kept"),
    lambda found: _near_findings(found.near_kept, "kept classes near the forgotten ones"),
    field="near_kept",
    when="always",
    access=False,
)
NEAR_OTHERS = Part(
    _near_others,
    lambda found: _near_table(found.near_others, "other data"),
    lambda found: _near_findings(found.near_others, "other classes near the forgotten ones"),
    field="near_others",
    when="always",
    access=False,
)
FRAGILE = Part(
    lambda case: fragility(case.asked, case.subject.forget),
    _fragile_table,
    _fragile_findings,
    field="fragility",
    when="always",
    access=False,
)
