"""Does forgetting hold where a class is asked for under another name?"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from unsee.answers.intervals import images_needed
from unsee.audit.asking import Renamed, ask_both
from unsee.audit.case import Case
from unsee.audit.cells import show_share
from unsee.audit.evidence import MARGIN, as_estimate, compare_with, first_few, make_finding, near_ceiling, worst_of
from unsee.audit.part import Part
from unsee.audit.record import AuditRecord, OtherName
from unsee.audit.subject import Subject
from unsee.data.class_names import listed
from unsee.data.images import Images
from unsee.data.other_names import OtherNames, rounds, without_other_names
from unsee.runs.records import EstimateRecord, Finding
from unsee.text_table import TextTable, percent


def ask_other_names(subject: Subject, images: Images, other_names: OtherNames) -> list[Renamed]:
    """Answers with forgotten classes asked for under other names while the rest stay as they are."""
    own, forget, bound = subject.data.class_names, subject.forget, subject.bind(images)
    found = []
    for renamed in rounds(own, subject.task.forgotten, other_names):
        names = [renamed.get(name, name) for name in own]
        listed = np.array([gone and name not in renamed for name, gone in zip(own, forget, strict=True)])
        found.append(Renamed(renamed, *ask_both(subject, bound, names, listed, names)))
    return found


def _measure(case: Case) -> tuple[OtherName, ...]:
    case.asked.renamed = ask_other_names(case.subject, case.few, case.other_names)
    names = case.subject.data.class_names
    return tuple(record for each in case.asked.renamed for record in each.records(case.few.labels, names))


def _table(found: AuditRecord) -> list[TextTable]:
    rows = [
        (other.class_name, other.name, str(other.images), percent(other.before), show_share(other.accuracy))
        for other in found.other_names
    ]
    return [TextTable(("class", "asked for as", "images", "accuracy before", "as served"), rows)]


def _findings(found: AuditRecord) -> list[Finding]:
    asked = [(other, other.accuracy) for other in found.other_names if other.accuracy is not None]
    if not asked:
        return []
    ceiling = found.chance + MARGIN
    mark = worst_of([compare_with(ceiling, accuracy) for _, accuracy in asked])
    near = near_ceiling(found.chance)
    if mark == "ok":
        highest = percent(max(accuracy.high for _, accuracy in asked), 0)
        words = f"forgotten classes stay unrecognised under {len(asked)} other names"
        return [make_finding("ok", words, f"accuracy as served at most {highest}; {near}")]
    these = [(other, accuracy) for other, accuracy in asked if compare_with(ceiling, accuracy) == mark]
    these.sort(key=lambda pair: -pair[1].value)
    listed = first_few([f"{other.name!r} {show_share(accuracy, 0)}" for other, accuracy in these])
    if mark == "leak":
        return [make_finding("leak", f"recognised under other names: {listed}", f"accuracy as served; {near}")]
    missing = _images_missing(these, ceiling)
    more = f"; about {missing} more test images of each class would do" if missing > 0 else ""
    words = f"too few images to tell under other names: {listed}"
    return [make_finding("unclear", words, f"accuracy as served; {near}{more}")]


def _images_missing(asked: Sequence[tuple[OtherName, EstimateRecord]], ceiling: float) -> int:
    return max((images_needed(as_estimate(a), ceiling, o.images) or 0) - o.images for o, a in asked)


def _not_tried(case: Case) -> list[str]:
    subject = case.subject
    names = without_other_names(subject.data.class_names, subject.task.forgotten, case.other_names)
    if not names or not subject.takes_names:
        return []
    example = json.dumps({names[0]: ["another name"]}, ensure_ascii=False)
    return [f"other names of {listed(names)}: none are known; give them with --names FILE, as JSON such as {example}"]


UNDER_OTHER_NAMES = Part(_measure, _table, _findings, field="other_names", not_tried=_not_tried)
