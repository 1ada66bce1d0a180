r"""Draws what `benchmarks.queries` measured, and prints it as a table.

    python -m benchmarks.queries_chart IN.csv OUT.png

A panel for each model: mean H against image queries with its 95 % interval over lists and seeds. The table has paired
differences from the paper's search with all of its image queries.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.queries import Row, read
from unsee.types import Doubles

COLOURS = {"guided": "#0b6e99", "lcs": "#b5541c"}


def values(rows: Sequence[Row], model: str, method: str) -> dict[int, dict[tuple[str, str], float]]:
    """H by image queries, then by list and seed."""
    found = dict[int, dict[tuple[str, str], float]]()
    for row in rows:
        if row["model"] == model and row["method"] == method:
            found.setdefault(int(row["image_queries"]), {})[row["list"], row["seed"]] = float(row["h"])
    return dict(sorted(found.items()))


def interval(numbers: Doubles) -> float:
    """Half of a 95 % interval of the mean."""
    return float(1.96 * numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else 0.0


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown: for each model and number of image queries, mean H, its spread, and the difference from `lcs`."""
    lines = [
        "| model | image queries | guided | difference from lcs with all | lcs with as many |",
        "|---|---|---|---|---|",
    ]
    for model in dict.fromkeys(row["model"] for row in rows):
        guided, lcs = values(rows, model, "guided"), values(rows, model, "lcs")
        whole = max(lcs)
        for count, found in guided.items():
            keys = sorted(found.keys() & lcs[whole].keys())
            mine = np.array([found[key] for key in keys])
            apart = mine - np.array([lcs[whole][key] for key in keys])
            same = np.array([lcs[count][key] for key in keys])
            lines.append(
                f"| {model} | {count:,} (1/{whole // count}) | {mine.mean():.2f} ± {mine.std(ddof=1):.2f} "
                f"| {apart.mean():+.2f} [{apart.mean() - interval(apart):+.2f}, {apart.mean() + interval(apart):+.2f}] "
                f"| {same.mean():.2f} ± {same.std(ddof=1):.2f} |"
            )
        every = np.array(list(lcs[whole].values()))
        lines.append(f"| {model} | {whole:,} (all) | | | {every.mean():.2f} ± {every.std(ddof=1):.2f} |")
    return lines


def draw(rows: Sequence[Row], out: Path) -> None:
    """One panel for each model."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = plt.subplots(1, len(models), figsize=(3.6 * len(models), 3.2), sharey=True, squeeze=False)
    for axis, model in zip(axes[0], models, strict=True):
        for method, colour in COLOURS.items():
            curve = {count: np.array(list(h.values())) for count, h in values(rows, model, method).items()}
            mean = np.array([h.mean() for h in curve.values()])
            half = np.array([interval(h) for h in curve.values()])
            axis.plot(list(curve), mean, "o-", color=colour, label=method, markersize=3)
            axis.fill_between(list(curve), mean - half, mean + half, color=colour, alpha=0.2, linewidth=0)
        axis.set(xscale="log", xlabel="image queries", title=model)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("H on test images")
    axes[0][0].legend(frameon=False)
    figure.tight_layout()
    for path in (out, out.with_suffix(".svg")):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Prints the table and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    rows = read(given.table)
    print("\n".join(table(rows)))
    draw(rows, given.out)


if __name__ == "__main__":
    main()
