"""What results are shown as: a table, written as CSV, LaTeX or Markdown, and a series, drawn by `charts`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # at the start of a row it would be taken for an argument of \\
    "]": "{]}",
    "±": r"$\pm$",
    "–": "--",
    "…": r"\ldots{}",
}
MANY_CLASSES = 60  # beyond, classes are no longer drawn one by one
_NUMBER = re.compile(r"[-−+]?\d[\d,. ]*( ± \d[\d.]*)?")
_SIGNED = re.compile(r"[-+]\d[\d.,]*(e[-+]?\d+)?( [\d .,%±()+–to-]*)?")  # also with its unit, spread or interval
# What a terminal obeys instead of showing: control characters, and marks that turn the direction of writing.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\udc80-\udc9f]")


@dataclass(frozen=True)
class TextTable:
    """Cells as they are to be read, a header over them, a title that may be empty, and notes below."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"a row of {len(row)} cells under a header of {len(self.header)}: {list(row)}")

    def numeric(self, column: int) -> bool:
        """Whether a column holds numbers alone; these are set to the right."""
        cells = [row[column] for row in self.rows if row[column] not in ("", "–")]
        return bool(cells) and all(_NUMBER.fullmatch(cell) for cell in cells)


@dataclass(frozen=True)
class Series:
    """One line: x are numbers or labels; spread, if known, is the standard deviation of each y."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    spread: Sequence[float] | None = None


def percent(share: float | None, digits: int = 1, unit: str = " %") -> str:
    """A share in percent; a dash where there is none."""
    return "–" if share is None else f"{100 * share:.{digits}f}{unit}"


def points(mean: float, std: float, runs: int) -> str:
    """A share in percent, with its standard deviation where there are several runs."""
    return f"{100 * mean:.2f}" + (f" ± {100 * std:.2f}" if runs > 1 else "")


def harmless(text: str) -> str:
    """The text with everything in it that a terminal would obey written out, such as \\x1b."""
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def harmless_json(text: str) -> str:
    """The same for JSON, which stays the same JSON."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_csv(table: TextTable) -> str:
    """Comma-separated, quoted where needed; title and notes are left out."""
    out = io.StringIO()
    rows = ([_no_formula(cell) for cell in row] for row in [table.header, *table.rows])
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _no_formula(cell: str) -> str:
    """The cell as no spreadsheet takes it for a formula; numbers stay as they are."""
    text = cell.replace("\r", " ")
    begins = text.lstrip()[:1]
    return f"'{text}" if begins in ("=", "@") or (begins in ("+", "-") and not _SIGNED.fullmatch(text)) else text


def as_latex(table: TextTable) -> str:
    """A table in the manner of booktabs; every special character stands for itself."""
    columns = "".join("r" if table.numeric(i) else "l" for i in range(len(table.header)))
    lines = [r"\begin{table}", r"\centering"]
    if table.title:
        lines.append(rf"\caption{{{_latex(table.title)}}}")
    lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_row(table.header), r"\midrule"]
    lines += [_latex_row(row) for row in table.rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip\footnotesize {_latex(note)}" for note in table.notes]
    lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def as_markdown(table: TextTable) -> str:
    """A pipe table, under its title in bold and over its notes."""
    rules = ["---:" if table.numeric(i) else "---" for i in range(len(table.header))]
    lines = [f"**{_markdown(table.title)}**", ""] if table.title else []
    lines += [_markdown_row(table.header), "|" + "|".join(rules) + "|"]
    lines += [_markdown_row(row) for row in table.rows]
    for note in table.notes:
        lines += ["", _markdown(note)]
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in _one_line(text))


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(_latex(cell) for cell in cells) + r" \\"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*<|\[\]])", r"\\\1", _one_line(text))


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_markdown(cell) for cell in cells) + " |"


def _one_line(text: str) -> str:
    return " ".join(text.split())
