"""The cells of tables: numbers, and names of rules."""

from __future__ import annotations

from unsee.runs.records import EstimateRecord


def cell(found: EstimateRecord | None, as_percent: bool = True) -> str:
    """The measure and its interval."""
    if found is None:
        return "–"
    if as_percent:
        return f"{100 * found.value:.1f} % ({100 * found.low:.1f}–{100 * found.high:.1f})"
    return f"{found.value:.2f} ({found.low:.2f}–{found.high:.2f})"


def number(value: float | None, digits: int = 2) -> str:
    """The value with so many digits."""
    return "–" if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    """The share in per cent."""
    return "–" if share is None else f"{100 * share:.1f} %"


def points(change: EstimateRecord | None) -> str:
    """A change of a share, in points."""
    return "–" if change is None else f"{100 * change.value:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"


def rule_name(name: str, served: str) -> str:
    """A serving rule, with a note where it is the one that the run carries, or none."""
    return name + (" (as served)" if name == served else " (prompt alone)" if name == "as-is" else "")
