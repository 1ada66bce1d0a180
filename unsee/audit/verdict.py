"""The audit in words: a list of findings, each with a mark and its evidence, worst first.

Lack of proof is not proof. A finding is `ok` only if the upper end of an interval is near chance, and a `leak` only if
the lower end is above that; in between there are too few images to tell. All findings are about answers: they say
nothing of what embeddings or weights hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from unsee.audit.answer_findings import access_findings, classes_known, side_findings
from unsee.audit.evidence import MARGIN, WORST_FIRST, count_of, make_finding
from unsee.audit.parts import PARTS
from unsee.audit.record import AuditRecord, Eligibility
from unsee.runs.records import EstimateRecord, Finding


def judge(found: AuditRecord) -> tuple[Finding, ...]:
    """The headline, then all findings, worst first."""
    access, others = access_findings(found), side_findings(found)
    for part in PARTS.values():
        (access if part.access else others).extend(part.findings(found))
    ordered = sorted([*access, *others], key=lambda finding: WORST_FIRST.index(finding.mark))
    return (_headline(found, access, ordered), *ordered)


def sentences(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Each finding with its evidence in brackets, without a full stop."""
    return tuple(f"{each.finding} ({each.evidence})" if each.evidence else each.finding for each in findings)


def eligibility(accuracy: EstimateRecord | None, chance: float) -> Eligibility:
    """Whether a class was recognised clearly above chance before: what was never known cannot be forgotten."""
    if accuracy is None or accuracy.low <= chance + MARGIN < accuracy.high:
        return "too few images"
    return "known" if accuracy.low > chance + MARGIN else "never known"


def _headline(found: AuditRecord, access: Sequence[Finding], listed: Sequence[Finding]) -> Finding:
    """Judged by the findings on access to the forgotten classes; counts all that are listed with its mark."""
    marks, below = ([finding.mark for finding in findings] for findings in (access, listed))
    if "leak" in marks:
        leaks = count_of(below.count("leak"), "leak")
        return make_finding("leak", "the answers still leak the forgotten classes", leaks)
    if classes_known(found, "never known") == list(found.forget):
        return make_finding("unclear", "these classes were never known, so they cannot be called forgotten", "")
    if "unclear" in marks:
        open_ones = count_of(below.count("unclear"), "open question")
        return make_finding("unclear", "not shown to be free of leaks", open_ones)
    images = f"{found.after.images} test images of forgotten classes"
    return make_finding("ok", "no leak found in these answers", f"{images}; embeddings and weights are not audited")
