"""Figures: lines over a setting or over candidates, bars by class, confusion under each prompt.

Told apart without colour: by line style, marker and hatching. Nothing global is touched for longer than a call,
a user's matplotlibrc does not count, and the same figure is the same bytes on every run.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from unsee.answers.picture import NO_LABEL
from unsee.text_table import MANY_CLASSES, Series
from unsee.types import Doubles, Ints, Mask

INK, GREY, KEEP_BLUE, FORGET_ORANGE = "#1a1a1a", "#c9c9c9", "#0072B2", "#D55E00"
COLOURS = (KEEP_BLUE, FORGET_ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK)
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")
STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.color": "#e4e4e4",
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be found, and a browser has letters that matplotlib's font lacks
    "svg.hashsalt": "unsee",
    "text.parse_math": False,  # a class may be called $x$
}
CROWDED = 44  # letters under one chart; more would run into each other and are slanted
MANY_POINTS = 12  # from here on a spread is a band, not bars
NUMBERED = 15  # up to here a cell has room for its number
LONG_NAME = 22  # letters of a class name that fit beside a chart
TRIMMED: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.05}  # square maps leave room around them


def panels(parts: Sequence[tuple[str, Sequence[Series]]], x_label: str = "", y_label: str = "") -> Figure:
    """Charts side by side with one legend; lines of the same name look the same in all."""
    names = list(dict.fromkeys(s.name for _, series in parts for s in series))
    width = max(4.2, 3.6 * len(parts))
    rows = -(-len(names) // _legend_columns(names, width)) if names else 0
    with _style():
        figure = Figure(figsize=(width, max(3.4, 2.6 + 0.2 * rows)))
        for i, (title, series) in enumerate(parts):
            axes = figure.add_subplot(1, len(parts), i + 1)
            _lines(axes, series, names)
            axes.set(title=title, xlabel=x_label, ylabel=y_label if i == 0 else "")
            if title.endswith("%"):  # one point at 100 would get an axis up to 105
                low, high = axes.get_ylim()
                axes.set_ylim(max(low, -2), min(high, 102))
        if len(names) > 1:
            _legend(figure, names)
        return figure


def bars(
    names: Sequence[str],
    before: Sequence[float],
    after: Mapping[str, Sequence[float] | Doubles],
    forgotten: Sequence[bool],
) -> Figure:
    """Accuracy of each class, as fractions, under the plain prompt and in each way of `after`; forgotten classes first.

    With many classes, one point per class: before against after. NaN is a class without images, or, where all are NaN
    before, a model that answers no plain-text prompt.
    """
    gone, old = np.asarray(forgotten, dtype=np.bool_), 100 * np.asarray(before, dtype=np.float64)
    new = {title: 100 * np.asarray(shares, dtype=np.float64) for title, shares in after.items()}
    with _style():
        return _scatter(old, new, gone) if len(names) > MANY_CLASSES else _bars(names, old, new, gone)


def confusion(given: Mapping[str, Ints], names: Sequence[str], forgotten: Sequence[bool]) -> Figure:
    """Heat maps of counts (C, C + 1), true class by answer, as shares of each row; forgotten classes first.

    given: one map by title each; the last column is no label, shown where some image has none.

    With many classes they are counted together: answers right, wrong within the forgotten, wrong within the kept.
    """
    gone = np.asarray(forgotten, dtype=np.bool_)
    order, whole = _forgotten_first(gone), len(names) <= MANY_CLASSES
    unlabelled = [NO_LABEL] if any(counts[:, -1].any() for counts in given.values()) else []
    if not whole:
        rows = ["to forget", "to keep"]
        columns = ["right", "another to\nforget", "another to\nkeep", *unlabelled]
        maps, size = [_blocks(m, gone)[:, : len(columns)] for m in given.values()], (3.6 * len(given), 2.6)
    else:
        rows = [_short(names[i]) for i in order]
        columns = [*rows, *unlabelled]
        maps = [m[np.ix_(order, np.append(order, len(names)))][:, : len(columns)] for m in given.values()]
        cells, room = (
            (0.24 if len(names) <= NUMBERED else 0.13) * max(len(columns), 5),
            0.07 * max(map(len, columns)),
        )
        size = (len(given) * cells + room + 1.0, cells + room + 0.9)
    with _style():
        figure = Figure(figsize=size)
        for i, (title, counts) in enumerate(zip(given, maps, strict=True)):
            axes = figure.add_subplot(1, len(given), i + 1)
            _heat(axes, counts, rows if i == 0 else [""] * len(rows), columns)
            axes.set(title=title, xlabel="answer", ylabel="true class" if i == 0 else "")
            if whole:  # between the forgotten and the kept
                axes.axhline(gone.sum() - 0.5, color=FORGET_ORANGE, linewidth=1)
                axes.axvline(gone.sum() - 0.5, color=FORGET_ORANGE, linewidth=1)
        return figure


def as_svg(figure: Figure) -> str:
    """The figure as SVG, without a date."""
    out = io.StringIO()
    with _style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, **TRIMMED)
    return out.getvalue()


def as_png(figure: Figure) -> bytes:
    """The figure as PNG, fine enough for print."""
    out = io.BytesIO()
    with _style():
        figure.savefig(out, format="png", dpi=200, metadata={"Software": None}, **TRIMMED)
    return out.getvalue()


@contextmanager
def _style() -> Iterator[None]:
    """Matplotlib's defaults and ours for the time of a call; figures read them when made and again when drawn."""
    with matplotlib.style.context(["default", STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in another script
        yield


def _lines(axes: Axes, series: Sequence[Series], names: Sequence[str]) -> None:
    """Draws each line in the look that belongs to its name."""
    labels = list(dict.fromkeys(x for s in series for x in s.x)) if any(_texts(s) for s in series) else None
    for s in series:
        x = np.array([labels.index(v) if labels is not None else v for v in s.x], dtype=np.float64)
        y = np.array(s.y, dtype=np.float64)
        look, every = _look(names.index(s.name)), max(1, len(x) // 8)
        if labels is not None:  # side by side, so that bars of equal values can be seen
            x += 0.08 * (names.index(s.name) - (len(names) - 1) / 2) / max(1, len(names) / 4)
        if s.spread is not None and len(x) <= MANY_POINTS:
            axes.errorbar(x, y, np.array(s.spread), label=s.name, capsize=3, **look)
            continue
        first = every * names.index(s.name) // len(names)  # markers of lines that coincide do not
        axes.plot(x, y, label=s.name, markevery=(min(first, len(x) - 1), every), **look)
        if s.spread is not None:
            spread = np.array(s.spread, dtype=np.float64)
            axes.fill_between(x, y - spread, y + spread, color=look["color"], alpha=0.15, linewidth=0)
    if labels is not None:
        texts = [str(label) for label in labels]
        crowded = sum(map(len, texts)) > CROWDED
        axes.set_xticks(range(len(texts)), texts, rotation=30 if crowded else 0, ha="right" if crowded else "center")


def _look(i: int) -> dict[str, Any]:
    """Colours, dashes and markers repeat at different paces, so that no two of many lines look alike."""
    dash, marker = DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)]
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": dash,
        "marker": marker,
        "markersize": 4.5,
        "linewidth": 1.5,
    }


def _texts(series: Series) -> bool:
    return any(isinstance(x, str) for x in series.x)


def _legend(figure: Figure, names: Sequence[str]) -> None:
    """One entry a name, under the charts, in this order."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    columns = _legend_columns(names, figure.get_figwidth())
    handles = [found[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, handlelength=3.5)


def _legend_columns(names: Sequence[str], width: float) -> int:
    """How many names fit side by side below charts of this width in inches."""
    return max(1, min(len(names), int(14 * width / (max(map(len, names)) + 6))))


def dots(names: Sequence[str], ways: Mapping[str, Sequence[float]], x_label: str) -> Figure:
    """One line per name, one mark per way: values in percent, NaN where there is none."""
    with _style():
        figure = Figure(figsize=(5.4, 1.2 + 0.24 * len(names)))
        axes, place = figure.add_subplot(), np.arange(len(names))
        marks = (("o", KEEP_BLUE, "none"), ("D", FORGET_ORANGE, FORGET_ORANGE))
        for (title, values), (marker, colour, fill) in zip(ways.items(), marks, strict=False):
            look: dict[str, Any] = {"marker": marker, "color": colour, "markerfacecolor": fill}
            axes.plot(values, place, linestyle="", markersize=5.5, clip_on=False, label=title, **look)
        axes.set_yticks(place, [_short(name, 44) for name in names])
        axes.set(xlim=(0, 100), ylim=(len(names) - 0.5, -0.5), xlabel=x_label)
        _legend(figure, list(ways))
        return figure


def _bars(names: Sequence[str], before: Doubles, after: Mapping[str, Doubles], gone: Mask) -> Figure:
    order, place, each = _forgotten_first(gone), np.arange(len(names)), 0.8 / (1 + len(after))
    figure = Figure(figsize=(4.6, 1.6 + (0.1 + 0.12 * (1 + len(after))) * len(names)))
    axes = figure.add_subplot()
    edge: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.5}
    axes.barh(place - 0.4 + each / 2, before[order], 0.95 * each, color=GREY, **edge)
    for bar, shares in enumerate(after.values(), start=1):
        down, look = -0.4 + each * (bar + 0.5), _bar_look(bar == len(after))
        for row, i in enumerate(order):
            if np.isnan(shares[i]):
                continue
            colour = FORGET_ORANGE if gone[i] else KEEP_BLUE
            axes.barh(row + down, shares[i], 0.95 * each, color=colour, **look, **edge)
            # the number, as a bar of no length cannot be seen
            axes.text(shares[i] + 0.7, row + down + 0.02, f"{shares[i]:.0f}", va="center", fontsize=7)
    for row, i in enumerate(order):
        if all(np.isnan(shares[i]) for shares in after.values()):
            axes.text(1, row, "no images", va="center", color="#555555")
    axes.set_yticks(place, [_short(names[i]) for i in order])
    axes.set(xlim=(0, 105), ylim=(len(names) - 0.4, -0.6), xlabel="accuracy, %")
    axes.grid(visible=False, axis="y")
    keys = [] if np.isnan(before).all() else [Patch(facecolor=GREY, edgecolor=INK, label="plain prompt")]
    for bar, title in enumerate(after, start=1):
        look = _bar_look(bar == len(after))
        keys += [
            Patch(facecolor=colour, edgecolor=INK, label=f"{title}, to {fate}", **look)
            for fate, colour in (("forget", FORGET_ORANGE), ("keep", KEEP_BLUE))
        ]
    figure.legend(handles=keys, loc="outside upper left", fontsize=8)
    return figure


def _bar_look(last: bool) -> dict[str, Any]:
    """The last of several bars is solid, those before it are pale and hatched."""
    return {} if last else {"alpha": 0.45, "hatch": "////"}


def _scatter(before: Doubles, after: Mapping[str, Doubles], gone: Mask) -> Figure:
    figure = Figure(figsize=(max(4.6, 3.7 * len(after)), 4.4))
    for i, (title, shares) in enumerate(after.items()):
        _scatter_panel(figure.add_subplot(1, len(after), i + 1), before, shares, gone, title)
    _legend(figure, ["to forget", "to keep"])
    return figure


def _scatter_panel(axes: Axes, before: Doubles, after: Doubles, gone: Mask, title: str) -> None:
    label = "accuracy under the plain prompt, %"
    if np.isnan(before).all():
        before, label = np.linspace(0, 100, len(after))[np.argsort(np.argsort(after))], "classes by accuracy, %"
    else:
        axes.plot([0, 100], [0, 100], color="#888888", linewidth=0.8, linestyle="--")
        axes.annotate("as before", (82, 84), rotation=45, color="#555555", ha="center", va="bottom")
    look: dict[str, Any] = {"linestyle": "", "markersize": 4.5, "markerfacecolor": "none", "clip_on": False}
    axes.plot(before[~gone], after[~gone], marker="o", color=KEEP_BLUE, label="to keep", **look)
    axes.plot(before[gone], after[gone], marker="x", color=FORGET_ORANGE, label="to forget", **look)
    axes.set(xlim=(0, 100), ylim=(0, 100), xlabel=label, ylabel="accuracy, %", title=title)
    axes.set_aspect("equal")


def _heat(axes: Axes, counts: Ints, rows: Sequence[str], columns: Sequence[str]) -> None:
    total = counts.sum(axis=1, keepdims=True)
    shares = 100 * counts / np.maximum(total, 1)
    axes.imshow(shares, cmap="Greys", vmin=0, vmax=100, aspect="auto" if len(rows) == 2 else "equal")
    axes.grid(visible=False)
    size = 9 if len(rows) <= NUMBERED else max(4.0, 9 - 0.1 * len(rows))
    axes.set_yticks(range(len(rows)), rows, fontsize=size)
    axes.set_xticks(range(len(columns)), columns, rotation=90 if len(columns) > 4 else 0, fontsize=size)
    if len(rows) > NUMBERED:
        return
    for (row, column), share in np.ndenumerate(shares):
        if round(share) > 0:
            colour = "white" if share > 55 else INK
            axes.text(column, row, f"{share:.0f}", ha="center", va="center", color=colour, fontsize=7)


def _blocks(counts: Ints, gone: Mask) -> Ints:
    """Counts (C, C + 1) as (2, 4): forgotten and kept, by right, wrong and forgotten, wrong and kept, no label."""
    counts, none = counts[:, :-1], counts[:, -1]
    wrong = counts - np.diag(np.diag(counts))
    right = np.diag(counts)
    rows = [
        [right[own].sum(), wrong[own][:, gone].sum(), wrong[own][:, ~gone].sum(), none[own].sum()]
        for own in (gone, ~gone)
    ]
    return np.array(rows, dtype=np.int64)


def _forgotten_first(gone: Mask) -> Ints:
    return np.argsort(~gone, kind="stable").astype(np.int64)


def _short(name: str, most: int = LONG_NAME) -> str:
    name = " ".join(name.split())
    return name if len(name) <= most else name[: most - 1] + "…"
