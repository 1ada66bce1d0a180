"""Commands about many runs: compare and reproduce."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.options import (
    MODEL_HELP,
    MODEL_OPTIONS,
    cache_folder,
    data_folder,
    make_console,
    read_data,
    read_model,
    read_pairs,
    read_seeds,
    shared,
    split_pair,
)
from unsee.data.class_names import listed
from unsee.methods.presets import PRESETS
from unsee.methods.registry import METHODS

if TYPE_CHECKING:
    from unsee.cli.console import Console
    from unsee.report.paper.experiments import Experiment
    from unsee.runs.sweep import Workspace

threads_option = click.option(
    "--threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Threads per run; results are the same to the last bit where this is.",
)


@click.command()
@click.argument("data")
@click.option("--forget", "names", help="Classes to forget: NAME,NAME…  [default: the first 40 %, as in the paper]")
@click.option("--methods", default="all", show_default=True, help="Methods, separated by commas.")
@click.option("--model", default="mini", show_default=True, help=MODEL_HELP)
@click.option("--preset", default="tuned", show_default=True, type=click.Choice(PRESETS), help="Sizes to use.")
@click.option("--goals", default="", metavar="GOAL,GOAL…", help="Tune prompts by each of these goals, a row each.")
@click.option("--audit", "audited", is_flag=True, help="Also what the answers of each method leak.")
@shared("seeds", "out", "set", *MODEL_OPTIONS)
def compare(
    data: str,
    names: str | None,
    methods: str,
    seeds: str,
    model: str,
    preset: str,
    goals: str,
    audited: bool,
    out: Path,
    pairs: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Compare methods on DATA at equal image queries, over several seeds; runs only what is missing."""
    from unsee.data.class_folders import refuse_inside
    from unsee.data.class_names import first_share, read_names
    from unsee.report.comparison import compare as run_comparison
    from unsee.runs.sweep import Workspace

    console = make_console(as_json)
    numbers, settings = read_seeds(seeds), read_pairs(pairs)
    images = read_data(data, numbers[0], data_dir)
    refuse_inside(images, out)  # before a large model is loaded
    loaded = read_model(model, console, **where)
    forget = first_share(images.class_names) if names is None else read_names(names)
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
            goals=[goal.strip() for goal in goals.split(",") if goal.strip()],
            audited=audited,
            say=console.say,
            watch=watch,
        )
    title = f"{data}: forgetting {listed(forget)} ({len(images.test)} test images, {model})"
    console.comparison(found, title)


@click.command()
@click.argument("what", nargs=-1)
@click.option("--data", "sets", multiple=True, metavar="DATA", help="Only on this data.  [default: all of the paper's]")
@click.option("--model", default="mini", show_default=True, help=MODEL_HELP)
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), help="Write tables and figures there.")
@click.option(
    "--pretrained", multiple=True, metavar="METHOD=FOLDER", help="Weights for scratch-resnet18 or scratch-vit."
)
@click.option(
    "--without", default="", metavar="METHOD,METHOD…", help="Leave these rows out, e.g. cbbt-own; the table says so."
)
@click.option("--ray", "on_ray", is_flag=True, help="Runs side by side on a local Ray, one for each core.")
@click.option("--ray-address", help="Runs on this Ray cluster.")
@threads_option
@shared("seeds", "out", "set", *MODEL_OPTIONS)
def reproduce(
    what: tuple[str, ...],
    sets: tuple[str, ...],
    seeds: str,
    model: str,
    out: Path,
    save: Path | None,
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
    """Reproduce tables and figures of the paper, ours beside the paper's; runs only what is missing.

    WHAT is table-main, fig-contexts and so on, or all; without it, they are listed. --set changes a setting of
    every line that does not have it as its own; the output says so.
    """
    from unsee.report.paper.experiments import experiment_names, load_experiment
    from unsee.report.paper.rendering import save_all
    from unsee.report.paper.reproduce import Runner
    from unsee.report.paper.reproduce import reproduce as run_experiments
    from unsee.runs.ray import Worker, run_on_ray
    from unsee.runs.sweep import limit_threads, run_all

    console = make_console(as_json)
    if not what:
        console.experiments([load_experiment(name) for name in experiment_names()])
        return
    numbers, settings = read_seeds(seeds), read_pairs(pairs)
    names = experiment_names() if what == ("all",) else what
    absent = read_methods(without) if without else ()
    chosen = [dataclasses.replace(load_experiment(name), changed=settings, without=absent) for name in names]
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
        found = run_experiments(wanted, numbers, pretrained=weights, run=run, watch=console.sweep(), say=console.say)
    console.reproduced(found, save_all(found, save) if save else [])


def read_methods(text: str) -> tuple[str, ...]:
    """Names of methods, separated by commas."""
    from unsee.errors import InputError, unknown

    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in METHODS:
            raise InputError(unknown("method", name, METHODS))
    return names


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
