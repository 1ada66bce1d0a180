"""A reproduced table or figure to look at and to keep: text tables, CSV, LaTeX, and charts of figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unsee.files import write_bytes
from unsee.report.paper.experiments import COLUMN_NAMES, LEVEL, PHOTOS_OF, SETTINGS_OF, ResultLine
from unsee.report.paper.reproduce import Reproduced
from unsee.text_table import Series, TextTable, as_csv, as_latex, as_markdown


def heading(found: Reproduced) -> str:
    """What it is and of what: no number means anything without its model."""
    e = found.experiment
    seeds = max(line.seeds for line in found.lines)
    photos = f" ({PHOTOS_OF[found.data]})" if found.data in PHOTOS_OF else ""
    tested = f"{found.data}{photos}, {found.images} test images, {seeds} seed{'s' if seeds != 1 else ''}"
    changed = ", ".join(f"{name}={value}" for name, value in e.changed.items())
    ours = f"ours on {found.model}" + (f" and not at the paper's settings ({changed})" if changed else "")
    if found.data in SETTINGS_OF:
        return f"{e.name}: {e.title} ({SETTINGS_OF[found.data]}'s settings, other photos). {tested}; {ours}"
    return f"{e.name}: {e.title} ({e.paper}). {tested}; {ours}, the paper's on CLIP ViT-B/16"


def tabulate(found: Reproduced) -> TextTable:
    """Ours beside the paper's, mean ± standard deviation over seeds, in points. What was left out has no mean.

    Where there is a row of LCS, the others have their difference in H to it, seed by seed, with its 95 % interval.
    """
    e = found.experiment
    both = found.data not in SETTINGS_OF
    columns = [
        text for c in e.columns for text in (f"{COLUMN_NAMES[c]}, {found.model}", *(["paper, CLIP"] if both else []))
    ]
    compared = next((line.difference.to for line in found.lines if line.difference), "")
    rows = []
    for line in found.lines:
        seen = min(line.seeds, 2)  # one seed has no spread
        pairs = [
            (
                _spread(line.ours[c][:seen]) if c in line.ours else "–",
                *([_spread(line.paper[c], 0) if c in line.paper else "–"] if both else []),
            )
            for c in e.columns
        ]
        name = f"{line.row} ({line.left_out})" if line.left_out else line.row
        cells = [name, *_points(found, [line.point]), *(text for pair in pairs for text in pair)]
        rows.append(cells + ([str(line.difference or "–")] if compared else []))
    last = [f"H − {compared}, 95 %"] if compared else []
    return TextTable(["", *_points(found, [e.x]), *columns, *last], rows, heading(found), notes(found))


def notes(found: Reproduced) -> list[str]:
    """What a reader must know about the table and its rows."""
    e = found.experiment
    own = [note for note in (e.note, *(f"{row.name}: {row.note}" for row in e.rows if row.note)) if note]
    fewer = sorted({line.seeds for line in found.lines if line.ours})
    counts = [
        f"{line.row}: {line.seeds} seed{'s' if line.seeds != 1 else ''}"
        for line in found.lines
        if line.ours and line.seeds < fewer[-1]
    ]
    spread = ["± is the standard deviation over seeds (n − 1)"] if fewer[-1:] > [1] else []
    paired = ["differences are paired by seed; their intervals are Student's over seeds"]
    return [
        *own,
        *counts,
        *spread,
        *(paired if any(line.difference and line.difference.seeds > 1 for line in found.lines) else []),
    ]


def save_all(found: Sequence[Reproduced], folder: Path) -> list[Path]:
    """Every table as CSV (full figures, for programs), Markdown and LaTeX, every figure as PNG and SVG too."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for each in found:
        name = f"{each.experiment.name}-{Path(each.data).name}"
        table = tabulate(each)
        content = {".csv": _plain(each), "-seeds.csv": _by_seed(each)}
        parts = {ending: as_csv(plain).encode() for ending, plain in content.items()}
        parts |= {".md": as_markdown(table).encode(), ".tex": as_latex(table).encode()}
        if each.experiment.kind == "figure":
            parts |= _drawn(each)
        for ending, data in parts.items():
            files.append(folder / f"{name}{ending}")
            write_bytes(files[-1], data)
    return files


def _drawn(found: Reproduced) -> dict[str, bytes]:
    """One panel per column; a row that does not depend on x is a level line."""
    from unsee.report.charts import as_png, as_svg, panels  # matplotlib takes a while to import

    labels = list(dict.fromkeys(line.point for line in found.lines if line.point != LEVEL))
    parts = []
    for column in found.experiment.columns:
        series = []
        for name, lines in _by_row([line for line in found.lines if line.ours]).items():
            values = [line.ours[column] for line in lines]
            if lines[0].point == LEVEL:
                values *= len(labels)
            series.append(Series(name, labels, [mean for mean, _ in values], [spread for _, spread in values]))
        parts.append((f"{COLUMN_NAMES[column]} on {found.data}, {found.model}", series))
    figure = panels(parts, found.experiment.x, "percent")
    return {".png": as_png(figure), ".svg": as_svg(figure).encode()}


def _by_row(lines: Sequence[ResultLine]) -> dict[str, list[ResultLine]]:
    rows: dict[str, list[ResultLine]] = {}
    for line in lines:
        rows.setdefault(line.row, []).append(line)
    return rows


def _plain(found: Reproduced) -> TextTable:
    """Numbers alone, one per column; none of ours, and 0 seeds, for what was left out."""
    columns = found.experiment.columns
    kinds = ("mean", "std", "paper_mean", "paper_std")
    header = ["row", "point", "method", "data", "model", "seeds", *(f"{c}_{kind}" for c in columns for kind in kinds)]
    rows = []
    for line in found.lines:
        numbers: list[str] = []
        for column in columns:
            paper = [*line.paper.get(column, ())]
            numbers += [f"{value:.4f}" for value in line.ours.get(column, ())] or ["", ""]
            numbers += [f"{value:.2f}" for value in paper] + [""] * (2 - len(paper))
        facts = [line.row, line.point, line.method, found.data, found.model, str(line.seeds)]
        rows.append([*facts, *numbers])
    return TextTable(header, rows)


def _by_seed(found: Reproduced) -> TextTable:
    """Every run's numbers."""
    columns = found.experiment.columns
    rows = []
    for line in found.lines:
        for i, seed in enumerate(line.seed_numbers):
            numbers = (f"{line.by_seed[column][i]:.4f}" for column in columns)
            rows.append([line.row, line.point, line.method, found.data, found.model, str(seed), *numbers, line.runs[i]])
    return TextTable(["row", "point", "method", "data", "model", "seed", *columns, "run"], rows)


def _points(found: Reproduced, cells: list[str]) -> list[str]:
    """Cells of the column that only figures have."""
    return cells if found.experiment.x else []


def _spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean and spread; the paper's spreads are known to the point only."""
    mean, *spread = values
    return f"{mean:.2f}" + (f" ± {spread[0]:.{digits}f}" if spread else "")
