"""One page about finished runs: a self-contained HTML file, and on request its charts and tables as files beside it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from unsee.audit.record import read_audit
from unsee.audit.side_by_side import audits_table, rules_table
from unsee.data.class_names import listed
from unsee.errors import InputError
from unsee.files import write_bytes
from unsee.report.fallen import fallen_classes, listed_first
from unsee.report.score_tables import classes_table, runs_data, runs_table, scores_data, scores_table
from unsee.report.summary import FEW_RUNS, SeedGroup, audit_rows, curves, fronts, group_by_seed, without_copies
from unsee.runs.stored import StoredRun, read_run
from unsee.text_table import MANY_CLASSES, Series, TextTable, as_csv, as_latex, percent
from unsee.types import Say, Scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASSETS = Path(__file__).parent.parent / "assets"
ALSO = ("png", "svg", "csv", "tex")
FEW_GROUPS = 4  # beyond, each one's details are folded


def write_report(
    folders: Sequence[str | Path], out: str | Path, also: Sequence[str] = (), say: Say = lambda text: None
) -> list[Path]:
    """Writes the report of these run folders, and its parts in the formats of `also`; returns all files, it first.

    A folder that holds the same run as another is left out, and said to be.
    """
    out = Path(out)
    for kind in also:
        if kind not in ALSO:
            raise InputError(f"--also takes {', '.join(ALSO)}, not {kind!r}")
    if out.is_dir():
        raise InputError(f"-o {out} is a folder; name a file such as {out / 'report.html'}")
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"-o {out} must end in .html")
    runs, copies = without_copies([read_run(folder) for folder in _once(folders)])
    for copy, first in copies:
        say(f"left out: {copy.folder} holds the same run as {first.folder}")
    groups = group_by_seed(runs)
    figures = draw(groups)
    files = {out: render(groups, figures).encode()}
    for name, content in _beside(groups, figures, also).items():
        files[out.with_name(f"{out.stem}{name}")] = content
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_bytes(path, content)
    except OSError as error:
        raise InputError(f"cannot write the report to {out}: {error.strerror}") from None
    return list(files)


def draw(groups: Sequence[SeedGroup]) -> dict[str, Figure]:
    """Charts by name: "overview" of several groups, "curves", if anything was searched for, and those of each group."""
    from unsee.report.charts import bars, confusion, dots, panels  # matplotlib takes a while to import

    figures = {}
    if len(groups) > 1:
        best = _best_first(groups)
        alone = [100 * g.summary.h for g in best]
        served = [float("nan") if (s := g.summary.served) is None else 100 * s.h for g in best]
        figures["overview"] = dots([g.label for g in best], {"prompt alone": alone, "as served": served}, "H, %")
    if parts := curves(groups):
        figures["curves"] = panels(parts, "candidates")
    if trade_offs := fronts(groups):
        figures["front"] = panels(trade_offs, "Acc_mem, %")
    for i, g in enumerate(groups):
        run = g.first
        ways = {title: each for when, title in g.ways().items() if not np.isnan(each := g.accuracy(when)).all()}
        figures[_key("classes", groups, i)] = bars(
            run.class_names, g.accuracy("before").tolist(), ways, run.forgotten.tolist()
        )
        words, counts = {"before": "plain prompt"} | g.ways(), g.confusion()
        if counts:
            maps = {words[when]: each for when, each in counts.items() if when in words}
            figures[_key("confusion", groups, i)] = confusion(maps, run.class_names, run.forgotten.tolist())
    return figures


def render(groups: Sequence[SeedGroup], figures: dict[str, Figure]) -> str:
    """The page as HTML. Whatever comes from a run is escaped."""
    from unsee.report.charts import as_svg

    images = {name: _uri(as_svg(figure).encode(), "image/svg+xml") for name, figure in figures.items()}
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    models = listed(list(dict.fromkeys(g.first.model for g in groups)))
    sections = [_section(g, groups, i, images) for i, g in enumerate(groups)]
    return environment.get_template("report.html").render(
        title=_title(groups),
        models=models,
        several_models=len({g.first.config.model.fingerprint for g in groups}) > 1,
        headline=headline(groups),
        overview=images.get("overview"),
        best=sections[groups.index(_best_first(groups)[0])],
        folded=len(groups) > FEW_GROUPS,
        scores=scores_table(groups, "Scores on the test images, in percent"),
        curves=images.get("curves"),
        curves_alt=_curves_alt(curves(groups)),
        front=images.get("front"),
        front_alt=_front_alt(fronts(groups)),
        audits=audits_table(rows, "What the answers leak") if (rows := audit_rows(groups)) else None,
        averaged=sum(len(g.runs) for g in groups) > FEW_RUNS,
        groups=sections,
        runs=runs_table(groups, "Every run of this page, in percent"),
    )


def _best_first(groups: Sequence[SeedGroup]) -> list[SeedGroup]:
    """By H, as served where there is a prompt."""
    return sorted(groups, key=lambda g: -(g.summary.h if g.summary.served is None else g.summary.served.h))


def headline(groups: Sequence[SeedGroup]) -> list[str]:
    """The result in words, a sentence or two."""
    tasks = {g.first.task for g in groups}
    runs = sum(len(g.runs) for g in groups)
    if len(tasks) > 1:
        return [f"{runs} runs of {len(tasks)} tasks, which are not to be compared with each other."]
    if len(groups) == 1:
        return [_sentence(groups[0]), _mask_sentence(groups[0].first)]
    best = _best_first(groups)[0]
    counted = f"{runs} runs in {len(groups)} groups. The highest H, as served, is that of {best.name}."
    return [counted, _sentence(best), _mask_sentence(best.first)]


def _sentence(g: SeedGroup) -> str:
    run, row = g.first, g.summary
    zero, served = run.result.zero_shot, row.served
    how = f"Under the prompt tuned by {g.name}, alone," if g.tunes_prompt else f"With {g.name},"
    runs = f", mean of {row.seeds} runs" if row.seeds > 1 else ""
    words = (
        f"{how} {run.model} errs on {_percent(row.err_for)} of the test images of "
        f"{listed(run.result.forget)}{_plain(zero, 'err_for', ' under the plain prompt')} and is right on "
        f"{_percent(row.acc_mem)} of the other classes'{_plain(zero, 'acc_mem')}: "
        f"H\u00a0{100 * row.h:.2f}{runs}" + (f"; zero-shot\u00a0{100 * zero.h:.2f}." if zero else ".")
    )
    if served is None:
        return words
    if served.rule == "as-is":
        return f"{words} Answers are served as they are, so this is what a caller sees."
    return (
        f"{words} As served ({served.rule}), it errs on {_percent(served.err_for)} and is right on "
        f"{_percent(served.acc_mem)}: H\u00a0{100 * served.h:.2f}."
    )


def _plain(zero: Scores | None, key: str, words: str = "") -> str:
    """What it was under the plain prompt, in brackets; nothing for a model that answers none."""
    return f" ({_percent(getattr(zero, key))}{words})" if zero else ""


def _mask_sentence(run: StoredRun) -> str:
    found = run.result.label_mask
    if found is None:
        return "The model answers no plain-text prompt, so there is nothing to compare with."
    return f"Removing the forgotten names from the label list, with no tuning at all, gives H\u00a0{100 * found.h:.2f}."


def _percent(share: float) -> str:
    return percent(share, unit="\u00a0%")


def _title(groups: Sequence[SeedGroup]) -> str:
    data = listed(list(dict.fromkeys(g.first.data for g in groups)))
    lists = list(dict.fromkeys(tuple(g.first.result.forget) for g in groups))
    return f"Forgetting {listed(lists[0], 4) if len(lists) == 1 else f'{len(lists)} lists of classes'} on {data}"


def _section(g: SeedGroup, groups: Sequence[SeedGroup], i: int, images: dict[str, str]) -> dict[str, Any]:
    """What the page says of one group."""
    run, fallen = g.first, fallen_classes(g)
    split = {name: f"{len(rows)} images" for name, rows in run.config.split.model_dump().items()}
    config = run.config.model_dump(mode="json") | {"split": split}
    return {
        "name": g.name,
        "label": g.label,
        "model": run.model,
        "path": run.result.model,
        "data": run.data,
        "before": any(record.before is not None for record in run.result.per_class.values()),
        "images": None if run.answers is None else len(run.answers["labels"]),
        "runs": [str(r.folder) for r in g.runs],
        "seed": run.result.seed,
        "sentence": _sentence(g),
        "own": run.result.access == "nothing",
        "mixed": len({r.config.data.fingerprint for r in g.runs}) > 1,
        "many": len(run.class_names) > MANY_CLASSES,
        "remaining": listed_first(fallen.remaining),
        "lost": listed_first(fallen.lost),
        "ways": " → ".join(g.ways().values()),
        "either": " or ".join(g.ways().values()),
        "bars": images[_key("classes", groups, i)],
        "classes": classes_table(g, "Accuracy on the test images by class"),
        "confusion": images.get(_key("confusion", groups, i)),
        "picture": None if run.picture is None else _uri(run.picture, "image/png"),
        "rule": g.rule,
        "entropy": {
            words: f"{found:.3f}"
            for when, words in ({"before": "plain prompt"} | g.ways()).items()
            if not np.isnan(found := g.entropy(when))
        },
        "verdicts": [(r.result.seed, r.result.audit.findings) for r in g.runs if r.result.audit is not None],
        "serving": _serving(g),
        "ledger": _ledger(g),
        "config": json.dumps(config, indent=1, ensure_ascii=False),
    }


def _serving(g: SeedGroup) -> TextTable | None:
    """What answers leak under rules that a provider can add, of the first run that was audited."""
    found = next((a for run in g.runs if (a := read_audit(run.folder)) is not None), None)
    if found is None:
        return None
    return rules_table(found, f"Under rules that a provider can add, seed {found.seed}")


def _ledger(g: SeedGroup) -> TextTable:
    names = list(g.first.result.ledger.as_dict())
    words = [name.replace("_", " ") for name in names]
    rows = []
    for run in g.runs:
        counts = [str(count) for count in run.result.ledger.as_dict().values()]
        rows.append([str(run.result.seed), *counts, f"{run.result.seconds['tuning']:.1f}"])
    return TextTable(("seed", *words, "tuning, s"), rows, "What the search asked of the model")


def _beside(groups: Sequence[SeedGroup], figures: dict[str, Figure], also: Sequence[str]) -> dict[str, bytes]:
    """Charts and tables by the end of their file's name."""
    from unsee.report.charts import as_png, as_svg

    files: dict[str, bytes] = {}
    if "png" in also:
        files |= {f"-{name}.png": as_png(figure) for name, figure in figures.items()}
    if "svg" in also:
        files |= {f"-{name}.svg": as_svg(figure).encode() for name, figure in figures.items()}
    classes = {_key("classes", groups, i): classes_table(g, f"{g.name}, {g.first.model}") for i, g in enumerate(groups)}
    if "csv" in also:
        files |= {".csv": as_csv(scores_data(groups)).encode(), "-runs.csv": as_csv(runs_data(groups)).encode()}
        files |= {f"-{name}.csv": as_csv(table).encode() for name, table in classes.items()}
        if rows := audit_rows(groups):
            files["-audits.csv"] = as_csv(audits_table(rows)).encode()
    if "tex" in also:
        models = listed(list(dict.fromkeys(g.first.model for g in groups)))
        tables = [scores_table(groups, f"{_title(groups)}. Model: {models}")]
        if rows := audit_rows(groups):
            tables.append(audits_table(rows, f"What the answers leak. Model: {models}"))
        tables += [table for table in classes.values() if len(table.rows) <= MANY_CLASSES]  # more overflow a page
        files[".tex"] = "\n".join(["% needs \\usepackage{booktabs}", *map(as_latex, tables)]).encode()
    return files


def _key(what: str, groups: Sequence[SeedGroup], i: int) -> str:
    """A chart's name; with several groups it is numbered and says which method, in letters any file system takes."""
    method = re.sub(r"[^a-z0-9]+", "-", groups[i].summary.method.lower()).strip("-")
    return what if len(groups) == 1 else f"{what}-{i + 1}-{method}"


def _curves_alt(parts: Sequence[tuple[str, Sequence[Series]]]) -> str:
    lines = [f"{title} of {s.name} from {s.y[0]:.2f} to {s.y[-1]:.2f}" for title, series in parts for s in series[:8]]
    return "Line charts over candidates: " + "; ".join(lines) + "."


def _front_alt(parts: Sequence[tuple[str, Sequence[Series]]]) -> str:
    lines = [
        f"{title} of {s.name} from {s.y[0]:.2f} at Acc_mem {s.x[0]:.1f} to {s.y[-1]:.2f} at {s.x[-1]:.1f}"
        for title, series in parts
        for s in series[:8]
    ]
    return "Line charts over Acc_mem: " + "; ".join(lines) + "."


def _uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _once(folders: Sequence[str | Path]) -> list[Path]:
    """Each folder once, however it is written."""
    return list({Path(folder).resolve(): Path(folder) for folder in folders}.values())
