"""`unsee compare`: methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.completion import complete_list
from unsee.cli.inputs import read_data, read_forget, read_model, read_pairs, read_seeds, split_list
from unsee.cli.interruption import SAME_COMMAND, advising
from unsee.cli.options import DATA, MODEL_OPTIONS, make_console, shared
from unsee.methods.registry import METHODS
from unsee.settings import GOALS

if TYPE_CHECKING:
    from unsee.cli.console import Part
    from unsee.report.comparison import Comparison


@click.command()
@DATA
@shared("first_forget", "forget_file")
@click.option(
    "--methods",
    default="all",
    shell_complete=complete_list(METHODS),
    metavar="NAME[,NAME]",
    help="Methods to compare, or all.",
)
@shared("model", "preset")
@click.option(
    "--goals",
    shell_complete=complete_list(GOALS),
    default="",
    metavar="GOAL[,GOAL]",
    show_default="entropy",
    help="Tune every prompt once by each of these goals (entropy, mask, push, constrained): one row per goal.",
)
@click.option("--audit", "audited", is_flag=True, help="Audit every run too, and add what its answers leak.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="print only",
    help="CSV file to write the scores of every seed to.",
)
@shared("seeds", "out", "set", *MODEL_OPTIONS)
def compare(
    data: str,
    names: Sequence[str],
    forget_file: Path | None,
    methods: str,
    seeds: str,
    model: str,
    preset: str,
    goals: str,
    audited: bool,
    save: Path | None,
    out: Path,
    pairs: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Compare methods at equal image queries, over several seeds.

    Runs that are already in --out are reused; an interrupted comparison is continued by the same command.
    """
    from unsee.data.class_folders import refuse_inside
    from unsee.data.class_names import first_share, listed
    from unsee.files import write_bytes
    from unsee.report.comparison import compare as run_comparison
    from unsee.runs.sweep import Workspace
    from unsee.text_table import as_csv

    console = make_console(as_json)
    numbers, settings = read_seeds(seeds), read_pairs(pairs)
    with advising(SAME_COMMAND):
        images = read_data(data, numbers[0], data_dir)
        refuse_inside(images, out)  # before a large model is loaded
        loaded = read_model(model, console, **where)
        forget = read_forget(names, forget_file) or first_share(images.class_names)
        chosen = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",")]
        workspace = Workspace(loaded, images, out)
        with console.tuning() as watch:
            found = run_comparison(
                workspace,
                forget,
                chosen,
                numbers,
                preset=preset,
                settings=settings,
                goals=split_list(goals),
                audited=audited,
                say=console.say,
                watch=watch,
            )
    if save is not None:
        save.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(save, as_csv(found.by_seed()).encode())
    title = f"{data}: forgetting {listed(forget)} ({len(images.test)} test images, {model})"
    console.show(comparison_facts(found, title), comparison_parts(found, title))


def comparison_facts(found: Comparison, title: str) -> Mapping[str, object]:
    """What `--json` prints."""
    return {
        "title": title,
        "image_queries": found.image_queries,
        "seeds": list(found.seeds),
        "rows": [
            row.as_dict() | {"difference": each and each.as_dict()}
            for row, each in zip(found.methods, found.differences(), strict=True)
        ],
        "audits": [row.as_dict() for row in found.audits],
        "served": [row.as_dict() for row in found.served],
    }


def comparison_parts(found: Comparison, title: str) -> list[Part]:
    """Methods side by side, in points."""
    from unsee.audit.side_by_side import audits_table, served_table

    seeds = found.methods[0].seeds
    parts: list[Part] = [
        title,
        f"Every black-box method has {found.image_queries:,} image queries; guided, cbbt-own and methods that see "
        "gradients or weights follow their own schedule.",
        _methods_table(found),
    ]
    if found.audits:
        parts += [audits_table(found.audits), served_table(found.served)]
    over = f"mean ± standard deviation (n − 1) over {seeds} seeds" if seeds > 1 else "one seed"
    return [
        *parts,
        f"{over}, in points; H of means, H by seed, its difference, "
        "Err_for and Acc_mem are those of the prompt alone"
        + ("; differences are paired by seed, with Student's 95 % interval over seeds" if seeds > 1 else ""),
    ]


def _methods_table(found: Comparison) -> Part:
    from rich.table import Table

    from unsee.text_table import points

    apart = found.differences()
    to = next((f"H − {each.to}, 95 %" for each in apart if each), "")
    names = ("method", "H prompt alone", "H as served", "H of means", "H by seed", *([to] if to else []))
    table = Table(*names, "Err_for", "Acc_mem", "sees", "steps", "candidates", "image queries", "s")
    for row, difference in zip(found.methods, apart, strict=True):
        served = row.served
        table.add_row(
            row.method,
            points(row.h, row.h_std, row.seeds),
            "–" if served is None else points(served.h, served.h_std, row.seeds),
            f"{100 * row.h_of_means:.2f}",
            " ".join(f"{100 * h:.1f}" for h in row.h_by_seed),
            *([str(difference or "–")] if to else []),
            points(row.err_for, row.err_for_std, row.seeds),
            points(row.acc_mem, row.acc_mem_std, row.seeds),
            row.access,
            str(row.steps),
            str(row.candidates),
            str(row.image_queries),
            f"{row.seconds:.0f}",
        )
    return table
