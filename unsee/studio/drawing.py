"""Charts as SVG, made here: lines over image queries, the trade-off front. Looks come from the style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_POINTS = 400  # of a line: more than the chart has pixels
WIDE, HIGH, LEFT, BELOW, ABOVE, RIGHT = 520, 220, 52, 34, 12, 16


@dataclass(frozen=True)
class Tick:
    """A mark on an axis."""

    at: float  # in the chart's own units
    text: str


@dataclass(frozen=True)
class Chart:
    """What a template draws: places in the chart's own units."""

    title: str
    x_label: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    points: tuple[tuple[float, float], ...]
    about: str  # for those who do not see it
    wide: int = WIDE
    high: int = HIGH
    left: int = LEFT
    bottom: int = HIGH - BELOW
    right: int = WIDE - RIGHT
    top: int = ABOVE

    @property
    def line(self) -> str:
        """The points as an SVG polyline has them."""
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)


def make_chart(
    title: str, x: Sequence[float], y: Sequence[float], x_label: str, y_range: tuple[float, float] | None = None
) -> Chart:
    """A chart of these points."""
    low, high = y_range or (min(y, default=0.0), max(y, default=1.0))
    start, end = (0.0 if y_range is None else min(x, default=0.0)), max(x, default=1.0)
    if y_range is not None:
        start, end = _rounded(start, end)
        low, high = _rounded(low, high)
    elif high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    end = end if end > start else start + 1.0

    def place(px: float, py: float) -> tuple[float, float]:
        across = LEFT + (px - start) / (end - start) * (WIDE - LEFT - RIGHT)
        return across, HIGH - BELOW - (py - low) / (high - low) * (HIGH - BELOW - ABOVE)

    most = math.inf if y_range is None else 100.0  # a range is given of shares in percent
    shown = _thinned(list(zip(x, y, strict=True)))
    about = f"{title}: from {y[0]:.4g} to {y[-1]:.4g} over {x_label} {x[0]:,.4g} to {x[-1]:,.4g}" if y else title
    return Chart(
        title,
        x_label,
        tuple(Tick(place(value, low)[0], _short(value)) for value in _ticks(start, end) if value <= most),
        tuple(Tick(place(start, value)[1], f"{value:g}") for value in _ticks(low, high) if value <= most),
        tuple(place(*point) for point in shown),
        about,
    )


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, -(-len(points) // MOST_POINTS))
    return [*points[:-1:step], *points[-1:]]


def _rounded(low: float, high: float) -> tuple[float, float]:
    """A range with some room, so that no point lies on the frame."""
    room = max((high - low) * 0.08, 0.5)
    return max(0.0, low - room), high + room


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers in a range."""
    rough = (high - low) / about
    if rough <= 0:
        return [low]
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [round(i * step, 10) for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
