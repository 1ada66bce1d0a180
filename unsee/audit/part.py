"""What a part of an audit is: how it is measured, kept, shown and judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from unsee.audit.case import Case
from unsee.audit.record import AuditRecord
from unsee.runs.records import Finding, Record
from unsee.text_table import TextTable

Measured = Record | tuple[Record, ...] | None


def _nothing(found: AuditRecord | Case) -> tuple[()]:
    return ()


def _none(case: Case) -> int:
    return 0


@dataclass(frozen=True)
class Part:
    """One part of an audit.

    `measure` raises InputError where the method or the model does not allow it; the audit then says so and goes on.
    Tables with the same header become one.
    """

    measure: Callable[[Case], Measured]
    tables: Callable[[AuditRecord], Sequence[TextTable | str]] = _nothing
    findings: Callable[[AuditRecord], Sequence[Finding]] = _nothing
    field: str | None = None  # of audit.json; without one it is in `more` under the part's name
    when: Literal["usual", "on request", "always"] = "usual"  # "always": cannot be skipped
    not_tried: Callable[[Case], Sequence[str]] = _nothing  # what lacks input, and how to give it
    questions: Callable[[Case], int] = _none  # of a service that is asked one by one: about how many
    access: bool = True  # its findings are ways to reach the classes, which the headline counts
