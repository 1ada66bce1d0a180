"""What forgetting did to classes of another data set, which were neither forgotten nor kept."""

from __future__ import annotations

import numpy as np

from unsee.audit.asking import AskedOthers, ask_both, sample
from unsee.audit.case import Case
from unsee.audit.cells import show_change
from unsee.audit.evidence import judge_change
from unsee.audit.part import Part
from unsee.audit.record import AuditRecord, OtherData
from unsee.audit.subject import Subject
from unsee.data.class_names import plain
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.errors import InputError
from unsee.models.black_box import bind
from unsee.runs.records import Finding
from unsee.text_table import TextTable, percent


def ask_other_data(subject: Subject, data: Data, images: Images) -> AskedOthers:
    """Answers to images of another data set under its own names, without classes that were to be forgotten."""
    names, forgotten = data.class_names, {plain(name).lower() for name in subject.task.forgotten}
    new = np.array([plain(name).lower() not in forgotten for name in names])
    kept = images.subset(np.flatnonzero(new[images.labels]))
    if len(kept) == 0:
        raise InputError(f"{data.name} has no images of classes other than the forgotten ones")
    renamed = [n if n in names else None for n in subject.data.class_names]
    bound = bind(subject.model, kept, names)
    return AskedOthers(data.name, names, kept, *ask_both(subject, bound, names, ~new, renamed))


def _measure(case: Case) -> OtherData | None:
    if case.other_data is None:
        return None
    few = sample(case.other_data.test, case.subject.seed)
    case.others = ask_other_data(case.subject, case.other_data, few)
    return case.others.record()


def _table(found: AuditRecord) -> list[TextTable]:
    other = found.other_data
    if other is None:
        return []
    cells = other.data, str(other.classes), percent(other.before), percent(other.after), show_change(other.change)
    return [TextTable(("other data", "classes", "accuracy before", "as served", "change in points"), [cells])]


def _findings(found: AuditRecord) -> list[Finding]:
    other = found.other_data
    if other is None or other.change is None or other.before is None:
        return []
    evidence = f"as served {percent(other.after, 0)}, before {percent(other.before, 0)}"
    return [judge_change(f"{other.classes} other classes", other.change, evidence)]


OTHER_CLASSES = Part(_measure, _table, _findings, field="other_data", when="always", access=False)
