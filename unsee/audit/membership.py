"""Do answers reveal which images were used for tuning?"""

from __future__ import annotations

import numpy as np

from unsee.answers.intervals import Estimate, auroc_of, images_needed
from unsee.audit.asking import sample
from unsee.audit.case import Case
from unsee.audit.cells import show_number
from unsee.audit.evidence import MARGIN, as_estimate, compare_with, make_finding, mirrored
from unsee.audit.part import Part
from unsee.audit.record import AuditRecord, Membership, estimate
from unsee.data.images import Images
from unsee.runs.records import Finding
from unsee.text_table import TextTable
from unsee.types import Floats, Ints, Mask


def measure_membership(
    shots: Floats, shot_labels: Ints, others: Floats, other_labels: Ints, forget: Mask, which: str
) -> Membership:
    """Whether answers to the tuning shots differ from those to other images of their classes.

    The attacker looks at the confidence in the true class. As each class has a level of its own, a shot is compared
    with images of its class only.
    """

    def within(side: Mask) -> Estimate | None:
        mine, theirs = side[shot_labels], side[other_labels]
        classes = np.concatenate([shot_labels[mine], other_labels[theirs]])
        found = np.concatenate([shots[mine], others[theirs]])
        values = found[np.arange(len(classes)), classes].astype(np.float64)
        return auroc_of(values, np.arange(len(classes)) < mine.sum(), classes)

    return Membership(
        forgotten=estimate(within(forget)),
        kept=estimate(within(~forget)),
        others=which,
        forgotten_shots=int(forget[shot_labels].sum()),
        kept_shots=int((~forget[shot_labels]).sum()),
    )


def _measure(case: Case) -> Membership:
    """The shots against training images that were not tuned or validated on; where there are none, test images."""
    subject = case.subject
    shots, others, which = _compared(case)
    mine, theirs = (subject.after(subject.bind(images)) for images in (shots, others))
    return measure_membership(mine, shots.labels, theirs, others.labels, subject.forget, which)


def _compared(case: Case) -> tuple[Images, Images, str]:
    """The shots, the images they are compared with, and what these are."""
    subject = case.subject
    train, split = subject.data.train, subject.task.split
    free = np.setdiff1d(np.arange(len(train)), np.concatenate([split.train, split.valid]))
    unused = subject.usable(sample(train.subset(free), subject.seed, 25 if subject.one_by_one else 100))
    which = "training images that were not used"
    if len(np.unique(unused.labels)) < len(np.unique(train.labels)):
        unused, which = subject.data.test, "test images"
    return train.subset(split.train), _labelled(unused), which


def _count(case: Case) -> int:
    shots, others, _ = _compared(case)
    return len(shots) + len(others)


def _labelled(images: Images) -> Images:
    return images.subset(np.flatnonzero(images.labels >= 0))


def _table(found: AuditRecord) -> list[TextTable]:
    if found.membership is None:
        return []
    sides = (("forgotten", found.membership.forgotten), ("kept", found.membership.kept))
    rows = [(f"shots of {name} classes", show_number(auroc), "0.50") for name, auroc in sides]
    return [TextTable(("tuning shots detected", "AUROC as served", "by chance"), rows)]


def _findings(found: AuditRecord) -> list[Finding]:
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
        words = {
            "ok": f"answers do not reveal the tuning shots of {side} classes",
            "leak": f"answers reveal the tuning shots of {side} classes",
            "unclear": f"too few shots to tell whether answers reveal those of {side} classes",
        }
        needed = images_needed(as_estimate(away), 0.5 + MARGIN, shots) if mark == "unclear" else None
        more = f"; {shots} shots, about {needed} would do" if needed is not None and shots else ""
        findings.append(make_finding(mark, words[mark], f"AUROC as served {show_number(auroc)}; chance 0.50{more}"))
    return findings


TUNING_SHOTS = Part(_measure, _table, _findings, field="membership", questions=_count, access=False)
