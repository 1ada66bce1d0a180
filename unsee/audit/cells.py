"""Figures as text, for tables and findings: a value with its interval, a dash where there is none."""

from __future__ import annotations

from unsee.runs.records import EstimateRecord


def show_share(found: EstimateRecord | None, digits: int = 1) -> str:
    """A share with its interval, in percent."""
    if found is None:
        return "–"
    return f"{100 * found.value:.{digits}f} % ({100 * found.low:.{digits}f}–{100 * found.high:.{digits}f})"


def show_number(found: EstimateRecord | None, unit: str = "") -> str:
    """An AUROC, an entropy or another number with its interval."""
    return "–" if found is None else f"{found.value:.2f}{unit} ({found.low:.2f}–{found.high:.2f})"


def show_value(value: float | None, digits: int = 2) -> str:
    """A number without an interval."""
    return "–" if value is None else f"{value:.{digits}f}"


def show_change(change: EstimateRecord | None, words: str = "") -> str:
    """A change of a share with its interval, in points."""
    if change is None:
        return "–"
    return f"{100 * change.value:+.1f}{words} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"


def rule_name(name: str, served: str) -> str:
    """A rule on answers, with a note if the run carries it, or if it is none."""
    return name + (" (as served)" if name == served else " (prompt alone)" if name == "as-is" else "")
