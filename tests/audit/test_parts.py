"""Parts of an audit: one dict, and a part of one's own is measured, kept, shown and judged like any other."""

from __future__ import annotations

import pytest

import unsee
from tests.audit.test_verdict import FORGOTTEN, record
from unsee.audit.audit import audit_case
from unsee.audit.case import Case
from unsee.audit.evidence import make_finding
from unsee.audit.part import Part
from unsee.audit.parts import PARTS, choose_parts, usual_parts
from unsee.audit.record import AuditRecord
from unsee.audit.subject import open_subject
from unsee.audit.tables import audit_parts, joined
from unsee.audit.verdict import judge
from unsee.runs.records import Record
from unsee.text_table import TextTable


class Sure(Record):
    """A measure that the package does not have."""

    top: float


@pytest.fixture(scope="module")
def subject(model, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("parts") / "run"
    tuner = unsee.PromptTuner(("bird", "cat"), "label-mask", shots=2).fit(model, data, out=out)
    tuner.finish(out, tuner.run_.bind(data.test))
    return open_subject(out, model, data)


def test_a_part_of_ones_own_is_measured_kept_shown_and_judged(subject, monkeypatch, tmp_path):
    def findings(found):
        mine = found.part("sure", Sure)
        return [] if mine is None else [make_finding("leak", "answers are sure", f"{mine.top:.2f}")]

    part = Part(
        lambda case: Sure(top=float(case.after.max())),
        lambda found: [TextTable(("sure",), [[str(found.more["sure"]["top"])]])],
        findings,
    )
    monkeypatch.setitem(PARTS, "sure", part)
    found = audit_case(Case(subject), parts=["sure"])
    assert AuditRecord.model_validate_json(found.model_dump_json()) == found
    assert 0 < found.part("sure", Sure).top <= 1
    assert found.findings[0].evidence.endswith("below")
    assert "answers are sure" in [each.finding for each in found.findings]
    assert str(found.more["sure"]["top"]) in [str(part.columns[0]._cells[0]) for part in shown_tables(found, tmp_path)]
    assert audit_case(Case(subject), parts=[]).part("sure", Sure) is None
    assert "sure" in usual_parts()


def shown_tables(found, run):
    return [each for each in audit_parts(found, run) if not isinstance(each, str)]


def test_every_part_has_a_field_of_the_record():
    fields = {part.field for part in PARTS.values() if part.field is not None}  # the others are in `more`
    assert fields <= set(AuditRecord.model_fields)


def test_parts_are_chosen_by_name():
    assert "relearning" not in choose_parts()
    assert set(choose_parts(["names"], also=["relearning"])) == {*usual_parts(), "relearning"} - {"names"}
    for name in ("nmes", "near kept"):  # the second is always measured
        with pytest.raises(unsee.InputError, match="unknown part to skip"):
            choose_parts([name])


def test_tables_of_one_header_become_one_and_empty_ones_are_left_out():
    first, second, empty = TextTable(("a",), [["1"]]), TextTable(("a",), [["2"]]), TextTable(("b",), [])
    assert joined([first, "a line", second, empty]) == [TextTable(("a",), [["1"], ["2"]]), "a line"]


@pytest.mark.parametrize(
    ("method", "serve", "noted"),
    [("lcs", "as-is", False), ("lcs", "mask", True), ("label-mask", "as-is", True), ("uniform-gate", "as-is", False)],
)
def test_what_a_rule_makes_true_by_removing_names_is_marked_so(method, serve, noted):
    findings = judge(record(FORGOTTEN, serve=serve, method=method))
    found = next(each for each in findings if "top label" in each.finding)
    assert found.mark == "ok"
    assert ("by construction" in found.evidence) == noted
    assert not any("by construction" in each.evidence for each in findings if "probe" in each.finding)
