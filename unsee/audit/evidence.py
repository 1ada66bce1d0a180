"""Words for findings: marks by interval, and the evidence beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from unsee.answers.intervals import Estimate, images_needed
from unsee.answers.rules import RULES
from unsee.audit.cells import show_change
from unsee.audit.record import AuditRecord
from unsee.methods.registry import METHODS
from unsee.runs.records import EstimateRecord, Finding
from unsee.text_table import percent

MARGIN = 0.05
"""Five points above chance count as near it, for shares and AUROCs alike; of bits, 5 % of those that name the class.

Less than five points could not be shown with the images that people have: 0 of 75 leaves 4.9 %.
"""
ENOUGH = 0.9  # of the old accuracy: so much brings a class back
SHOWN = 3  # names in one finding
Mark = Literal["leak", "damage", "unclear", "ok"]
WORST_FIRST: tuple[Mark, ...] = ("leak", "damage", "unclear", "ok")


def compare_with(ceiling: float, found: EstimateRecord) -> Mark:
    """`ok` if the whole interval is at or below the ceiling, `leak` if all of it is above, `unclear` otherwise."""
    return "ok" if found.high <= ceiling else "leak" if found.low > ceiling else "unclear"


def judge_loss(difference: EstimateRecord) -> Mark:
    """`damage` if more than the margin is lost for sure, `ok` if it cannot be more, `unclear` otherwise."""
    mark = compare_with(MARGIN, difference)
    return "damage" if mark == "leak" else mark


def judge_change(what: str, change: EstimateRecord, evidence: str) -> Finding:
    """A finding on a change of accuracy: harmless if no more than the margin can be lost."""
    verb, size = ("lose" if change.value < 0 else "gain"), f"{abs(100 * change.value):.1f} points"
    words = f"{what} {verb} {size} of accuracy"
    mark = judge_loss(mirrored(change, around=0.0))
    if mark == "unclear":
        words = f"too few images to tell whether {what} lose more than {100 * MARGIN:.0f} points of accuracy"
    return make_finding(mark, words, f"change {show_change(change)}; {evidence}")


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
    """A figure as served beside that of the prompt alone; for a method without a prompt, as served only."""
    if not METHODS[found.method].tunes_prompt:
        return f"{served} as served"
    if found.serve == "as-is" or alone is None:
        return f"{served} prompt alone, which is as served" if found.serve == "as-is" else f"{served} as served"
    return f"{served} as served ({found.serve}), {alone} prompt alone"


def by_construction(found: AuditRecord, mark: Mark) -> str:
    """A note where a finding must be `ok`: a name that the rule removes cannot be answered, whatever was tuned."""
    rule = RULES.get(found.method) or RULES.get(found.serve)
    if mark != "ok" or rule is None or not rule.removes_names:
        return ""
    return "; by construction: the rule removes these names"


def how_many_more(mark: Mark, found: EstimateRecord, ceiling: float, images: int) -> str:
    """How many more images would be enough, where these are too few."""
    if mark != "unclear":
        return ""
    needed = images_needed(as_estimate(found), ceiling, images)
    if needed is None:
        return "; the value itself is above that"
    return f"; about {max(1, needed - images)} more test images of forgotten classes would do"


def near_ceiling(chance: float) -> str:
    """Chance, and up to where it is near."""
    return f"chance {percent(chance, 0)}, near it up to {percent(chance + MARGIN, 0)}"


def as_estimate(found: EstimateRecord) -> Estimate:
    """The record as an estimate."""
    return Estimate(found.value, found.low, found.high)


def mirrored(found: EstimateRecord, around: float = 0.5) -> EstimateRecord:
    """The same on the other side: an AUROC with the two sides swapped, or around 0 a loss instead of a gain."""
    return EstimateRecord(value=2 * around - found.value, low=2 * around - found.high, high=2 * around - found.low)


def first_few(names: Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def count_of(n: int, what: str) -> str:
    """How many of something are below."""
    return f"{n} {what}{'' if n == 1 else 's'} below"


def image_word(n: int) -> str:
    """One image, two images."""
    return "image" if n == 1 else "images"
