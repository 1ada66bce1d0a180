"""Differences between two methods, seed by seed: runs of one seed share their shots, and with them much of their noise.

The interval is Student's over the seeds' differences. It says how the mean would vary with other seeds of the same
experiment, not with other images, models or data.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt

UPPER = 0.975  # of Student's distribution


@dataclass(frozen=True)
class Difference:
    """A mean difference over seeds, in points, with its 95 % interval; one seed has no interval."""

    to: str
    mean: float
    low: float | None
    high: float | None
    seeds: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:+.2f}"
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def difference_over_seeds(to: str, values: Sequence[float], others: Sequence[float]) -> Difference:
    """Values minus others, both in points and in the same order of seeds."""
    apart = [value - other for value, other in zip(values, others, strict=True)]
    mean = statistics.fmean(apart)
    if len(apart) < 2:
        return Difference(to, mean, None, None, len(apart))
    from scipy.stats import t as student  # takes a while to import

    half = float(student.ppf(UPPER, len(apart) - 1)) * statistics.stdev(apart) / sqrt(len(apart))
    return Difference(to, mean, mean - half, mean + half, len(apart))
