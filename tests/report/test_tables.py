from __future__ import annotations

import csv
import io

import pytest

from unsee.text_table import TextTable, as_csv, as_latex, as_markdown

NASTY = r"50% of_A & B {x} $y$ #1 ~ ^ \ <b> | [z]"
TABLE = TextTable(("class", "H"), (("cat", "96.30 ± 0.46"), (NASTY, "–")), "Forgetting 100%")


def test_csv_gives_back_every_cell():
    cells = [["a,b", 'say "x"', "two\nlines"], ["", "a=1+1", "ü"]]
    read = list(csv.reader(io.StringIO(as_csv(TextTable(("x", "y", "z"), cells)), newline="")))
    assert read == [["x", "y", "z"], *cells]


def test_latex_escapes_every_special_character():
    row = next(line for line in as_latex(TABLE).splitlines() if "50" in line)
    assert row == (
        r"50\% of\_A \& B \{x\} \$y\$ \#1 \textasciitilde{} \textasciicircum{} \textbackslash{} "
        r"\textless{}b\textgreater{} \textbar{} {[}z{]} & -- \\"
    )
    assert r"cat & 96.30 $\pm$ 0.46 \\" in as_latex(TABLE)
    assert r"\caption{Forgetting 100\%}" in as_latex(TABLE)


def test_latex_is_in_the_manner_of_booktabs_with_numbers_to_the_right():
    text = as_latex(TABLE)
    assert r"\begin{tabular}{lr}" in text
    assert [text.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == sorted(
        text.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")
    )
    assert "caption" not in as_latex(TextTable(("a",), ()))


def test_markdown_keeps_cells_apart_and_shows_no_html():
    lines = as_markdown(TABLE).splitlines()
    assert lines[0] == "**Forgetting 100%**"
    assert lines[2:4] == ["| class | H |", "|---|---:|"]
    assert r"\<b> \| \[z\]" in lines[-1]
    assert as_markdown(TextTable(("a",), [["x\ny"]])).splitlines()[-1] == "| x y |"


def test_rows_of_another_length_than_the_header_are_refused():
    with pytest.raises(ValueError, match="a row of 1 cells under a header of 2"):
        TextTable(("a", "b"), (("x",),))


@pytest.mark.parametrize("name", ["=cmd|'/C calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", " =1", "-", "+cat"])
def test_a_name_is_no_formula_in_a_spreadsheet(name):
    rows = list(csv.reader(io.StringIO(as_csv(TextTable([name, "h"], [[name, "1.0"]])), newline="")))
    assert rows == [[f"'{name}", "h"], [f"'{name}", "1.0"]]


@pytest.mark.parametrize(
    "number", ["-3.25", "+12.3", "-3.25 ± 0.50", "-1.5 %", "+12.3 (+10.1 to +14.5)", "-1e-05", "−4", "–"]
)
def test_numbers_stay_numbers_in_a_spreadsheet(number):
    assert list(csv.reader([as_csv(TextTable(["h"], [[number]])).splitlines()[1]])) == [[number]]
