"""`unsee reproduce`: the paper's tables and figures."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.completion import complete_data, complete_experiments, complete_list
from unsee.cli.inputs import (
    cache_folder,
    data_folder,
    read_data,
    read_methods,
    read_model,
    read_pairs,
    read_seeds,
    split_pair,
)
from unsee.cli.interruption import SAME_COMMAND, advising
from unsee.cli.options import MODEL_OPTIONS, make_console, shared
from unsee.methods.registry import METHODS

if TYPE_CHECKING:
    from unsee.cli.console import Console, Part
    from unsee.report.paper.experiments import Experiment
    from unsee.report.paper.reproduce import Reproduced, SweepWatch
    from unsee.runs.records import ResultRecord
    from unsee.runs.sweep import RunRequest, Workspace


@click.command()
@click.argument("what", nargs=-1, shell_complete=complete_experiments)
@click.option(
    "--data",
    "sets",
    shell_complete=complete_data,
    multiple=True,
    metavar="DATA",
    show_default="all of the paper's that are there",
    help="Data set to run on. Repeatable.",
)
@shared("model")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    show_default="print only",
    help="Folder to write tables and figures to.",
)
@click.option(
    "--known",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    show_default="none",
    help="Folder of tables saved earlier: runs whose numbers are there are not made again.",
)
@click.option(
    "--pretrained",
    multiple=True,
    metavar="METHOD=FOLDER",
    show_default="random weights",
    help="Weights that scratch-resnet18 or scratch-vit start from. Repeatable.",
)
@click.option(
    "--without",
    shell_complete=complete_list(METHODS),
    default="",
    metavar="METHOD[,METHOD]",
    show_default="nothing",
    help="Rows to leave out, e.g. cbbt-own; the table says so.",
)
@click.option("--ray", "on_ray", is_flag=True, help="Run in parallel on a local Ray, one run per core.")
@click.option("--ray-address", metavar="ADDRESS", show_default="none", help="Run in parallel on this Ray cluster.")
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=1,
    help="Threads per run. The same number gives the same bytes.",
)
@shared("seeds", "out", "set", *MODEL_OPTIONS)
def reproduce(
    what: tuple[str, ...],
    sets: tuple[str, ...],
    seeds: str,
    model: str,
    out: Path,
    save: Path | None,
    known: Path | None,
    pretrained: Sequence[str],
    without: str,
    threads: int,
    on_ray: bool,
    ray_address: str | None,
    pairs: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Make tables and figures of the paper, beside its own values.

    WHAT is table-main, fig-contexts and so on, or all; without it, they are listed. Only missing runs are made. --set
    changes a setting in every row that does not define it itself; the output says so.
    """
    from unsee.report.paper.experiments import experiment_names, load_experiment
    from unsee.report.paper.known_runs import read_known
    from unsee.report.paper.rendering import save_all
    from unsee.report.paper.reproduce import Runner
    from unsee.report.paper.reproduce import reproduce as run_experiments
    from unsee.runs.ray import Worker, run_on_ray
    from unsee.runs.sweep import limit_threads, run_all

    console = make_console(as_json)
    if not what:
        show_experiments(console, [load_experiment(name) for name in experiment_names()])
        return
    numbers, settings = read_seeds(seeds), read_pairs(pairs)
    names = experiment_names() if what == ("all",) else what
    absent = read_methods(without) if without else ()
    chosen = [dataclasses.replace(load_experiment(name), changed=settings, without=absent) for name in names]
    with advising(SAME_COMMAND):
        wanted = _workspaces(chosen, sets, numbers[0], model, out, threads, console, data_dir, **where)
        if not wanted:
            console.say("none of the data sets was found, so nothing was run; try --data demo")
        weights = dict(map(split_pair, pretrained))
        with ExitStack() as shown, limit_threads(threads):
            run: Runner
            if on_ray or ray_address:
                cache = None if where["no_cache"] else cache_folder(where["cache_dir"])
                parts = (data_folder(data_dir), cache, numbers[0], where["device"], where["dtype"], threads)
                run = partial(run_on_ray, Worker(*parts), ray_address)
            else:
                run = partial(run_all, watch=shown.enter_context(console.tuning()), say=console.say)
            found = run_experiments(
                wanted,
                numbers,
                pretrained=weights,
                known=read_known(known) if known else None,
                run=run,
                watch=sweep_lines(console),
                say=console.say,
            )
    files = save_all(found, save) if save else []
    content = {"experiments": [each.as_dict() for each in found], "files": [str(path) for path in files]}
    console.show(content, reproduced_parts(found, files))


def show_experiments(console: Console, known: Sequence[Experiment]) -> None:
    """Prints what can be reproduced."""
    from rich.table import Table

    table = Table("name", "in the paper", "what", "data")
    for e in known:
        table.add_row(e.name, e.paper, e.title, ", ".join(e.data))
    console.show({"experiments": [{"name": e.name, "title": e.title, "data": e.data} for e in known]}, [table])


def sweep_lines(console: Console) -> SweepWatch:
    """Prints a line after each run, with the time left for all of them."""
    from unsee.methods.forecast import duration

    started = time.monotonic()

    def watch(
        done: int, total: int, workspace: Workspace, request: RunRequest, result: ResultRecord, seconds: float
    ) -> None:
        left = (time.monotonic() - started) / done * (total - done)
        name = Path(workspace.data.name).name
        parts = [f"{name} {request.method} seed {request.seed}", f"forgetting {len(request.forget)}"]
        what = ", ".join(parts + [f"{name} {value}" for name, value in request.settings.items()])
        console.say(
            f"run {done} of {total}, about {duration(left)} left: {what}: H {100 * result.test.h:.2f} ({seconds:.0f} s)"
        )

    return watch


def reproduced_parts(found: Sequence[Reproduced], files: Sequence[Path]) -> list[Part]:
    """Ours beside the paper's, the model named in every header."""
    from unsee.report.paper.rendering import tabulate

    parts: list[Part] = []
    for each in found:
        given = tabulate(each)
        parts += [f"\n{given.title}", given, *given.notes]
    return [*parts, "mean ± standard deviation over seeds, in points", *(f"written: {path}" for path in files)]


def _workspaces(
    chosen: Sequence[Experiment],
    sets: Sequence[str],
    split_seed: int,
    model: str,
    out: Path,
    threads: int,
    console: Console,
    data_dir: Path | None,
    **where: Any,
) -> list[tuple[Experiment, Workspace]]:
    """Each experiment with a workspace for every data set it is wanted on and that is there."""
    from unsee.data import NAMED
    from unsee.runs.sweep import Workspace

    wanted, loaded = [], None
    for name in sets or dict.fromkeys(name for experiment in chosen for name in experiment.data):
        if name in NAMED and NAMED[name].find(data_folder(data_dir) / NAMED[name].folder) is None:
            console.say(f"skipped: {name} is not in {data_folder(data_dir)}; unsee data says how to get it")
            continue
        images = read_data(name, split_seed, data_dir)
        loaded = loaded or read_model(model, console, threads=threads, **where)
        workspace = Workspace(loaded, images, out.resolve())
        wanted += [(experiment, workspace) for experiment in chosen if sets or name in experiment.data]
    return wanted
