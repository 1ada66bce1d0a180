"""An audit as tables and a list of findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from unsee.audit.answer_tables import answer_tables
from unsee.audit.parts import PARTS
from unsee.audit.record import AuditRecord
from unsee.audit.subject import BY_SERVICE
from unsee.audit.verdict import sentences
from unsee.runs.folder import AUDIT, SERVICE_AUDIT
from unsee.runs.records import Finding
from unsee.text_table import TextTable


def audit_parts(found: AuditRecord, run: Path) -> list[str | Table]:
    """All that `unsee audit` prints."""
    names = ", ".join(found.forget)
    first = f"{found.data}: {found.method} forgot {names} ({found.images} test images, {found.model})"
    shown = joined([*answer_tables(found), *(each for part in PARTS.values() for each in part.tables(found))])
    file = SERVICE_AUDIT if found.serve == BY_SERVICE else AUDIT
    return [
        first,
        *(_as_rich(each) if isinstance(each, TextTable) else each for each in shown),
        *(f"not audited: {sentence}" for sentence in found.not_audited),
        _verdict(found.findings),
        f"{found.image_queries} image queries, {found.seconds:.1f} s\naudit: {run / file}",
    ]


def joined(shown: Sequence[TextTable | str]) -> list[TextTable | str]:
    """The same with tables of one header made one, where the first of them is; empty tables are left out."""
    tables: dict[tuple[str, ...], TextTable] = {}
    order: list[tuple[str, ...] | str] = []
    for each in shown:
        if isinstance(each, str):
            order.append(each)
            continue
        header = tuple(each.header)
        if header in tables:
            tables[header] = replace(tables[header], rows=[*tables[header].rows, *each.rows])
        elif each.rows:
            tables[header] = each
            order.append(header)
    return [each if isinstance(each, str) else tables[each] for each in order]


def _as_rich(given: TextTable) -> Table:
    table = Table(*given.header, caption=" ".join(given.notes) or None)
    for row in given.rows:
        table.add_row(*row)
    return table


def _verdict(findings: Sequence[Finding]) -> str:
    """A line per finding, worst first; the first is the headline."""
    lines = [f"  {each.mark:<8}{text}" for each, text in zip(findings, sentences(findings), strict=True)]
    return "\n".join(["verdict, of answers alone:", *lines])
