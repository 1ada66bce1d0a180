"""Words for findings: marks by interval, and the evidence beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from unsee.answers.intervals import Estimate, images_needed
from unsee.audit.record import AuditRecord
from unsee.methods.registry import METHODS
from unsee.runs.records import EstimateRecord, Finding

MARGIN = 0.05
"""Five points above chance count as near it, for shares and AUROCs alike; of bits, 5 % of those that name the class.

Less than five points could not be shown with the images that people have: 0 of 75 leaves 4.9 %.
"""
SHOWN = 3  # names in one finding
Mark = Literal["leak", "damage", "unclear", "ok"]
WORST_FIRST: tuple[Mark, ...] = ("leak", "damage", "unclear", "ok")


def compare_with(ceiling: float, found: EstimateRecord) -> Mark:
    """`ok` if the whole interval is at or below the ceiling, `leak` if all of it is above, `unclear` otherwise."""
    return "ok" if found.high <= ceiling else "leak" if found.low > ceiling else "unclear"


def make_finding(mark: Mark, finding: str, evidence: str) -> Finding:
    """A line of the verdict."""
    return Finding(mark=mark, finding=finding, evidence=evidence)


def worst_of(marks: Sequence[Mark]) -> Mark:
    """The mark that comes first."""
    return min(marks, key=WORST_FIRST.index)


def worst_probes(probes: Mapping[int, EstimateRecord | None], ceiling: float) -> tuple[Mark, dict[int, EstimateRecord]]:
    """The worst mark of these probes, and those that have it, by shots; none where none could be tested."""
    tested = {shots: probe for shots, probe in sorted(probes.items()) if probe is not None}
    marks = {shots: compare_with(ceiling, probe) for shots, probe in tested.items()}
    if not marks:
        return "ok", {}
    worst = worst_of(list(marks.values()))
    return worst, {shots: tested[shots] for shots, mark in marks.items() if mark == worst}


def served_and_alone(found: AuditRecord, served: str, alone: str | None) -> str:
    """What a caller sees beside what the prompt alone gives; of a method without a prompt, what a caller sees."""
    if not METHODS[found.method].tunes_prompt:
        return f"{served} as served"
    if found.serve == "as-is" or alone is None:
        return f"{served} prompt alone, which is as served" if found.serve == "as-is" else f"{served} as served"
    return f"{served} as served ({found.serve}), {alone} prompt alone"


def how_many_more(mark: Mark, found: EstimateRecord, ceiling: float, images: int) -> str:
    """How many more images would tell, where these are too few."""
    if mark != "unclear":
        return ""
    needed = images_needed(as_estimate(found), ceiling, images)
    if needed is None:
        return "; the value itself is above that"
    return f"; about {max(1, needed - images)} more test images of forgotten classes would do"


def near_chance(chance: float) -> str:
    """Chance, and up to where it is near."""
    return f"chance {show_percent(chance)}, near it up to {show_percent(chance + MARGIN)}"


def as_estimate(found: EstimateRecord) -> Estimate:
    """The record as an estimate."""
    return Estimate(found.value, found.low, found.high)


def mirrored(found: EstimateRecord) -> EstimateRecord:
    """The same AUROC with the two sides swapped."""
    return EstimateRecord(value=1 - found.value, low=1 - found.high, high=1 - found.low)


def first_few(told: Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    return ", ".join(told[:SHOWN]) + (f" and {len(told) - SHOWN} more" if len(told) > SHOWN else "")


def count_of(n: int, what: str) -> str:
    """How many of something are below."""
    return f"{n} {what}{'' if n == 1 else 's'} below"


def image_word(n: int) -> str:
    """One image, two images."""
    return "image" if n == 1 else "images"


def show_share(found: EstimateRecord) -> str:
    """A share with its interval, in percent."""
    return f"{100 * found.value:.0f} % ({100 * found.low:.0f}–{100 * found.high:.0f})"


def show_auroc(found: EstimateRecord) -> str:
    """An AUROC with its interval."""
    return f"{found.value:.2f} ({found.low:.2f}–{found.high:.2f})"


def show_percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.0f} %"
