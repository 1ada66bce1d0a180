"""The command line: parses, calls, prints."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from unsee.data import NAMED, load_data, whereabouts
from unsee.errors import InputError, UnseeError
from unsee.models import BlackBox, Bound, FeatureCache, load_model
from unsee.outcome import conclude
from unsee.progress import Console
from unsee.prompts import load_prompt, plain_names
from unsee.provenance import version
from unsee.records import Data, forget_mask
from unsee.runs import check_free, read_config
from unsee.settings import METHODS, PRESETS, parse
from unsee.tuner import PromptTuner

Command = Callable[..., Any]


def _shared(*names: str) -> Callable[[Command], Command]:
    """Options that several commands take."""
    options = {
        "data_dir": click.option(
            "--data-dir",
            envvar="UNSEE_DATA",
            type=click.Path(file_okay=False, path_type=Path),
            help="Where data sets lie.  [default: the user's data folder]",
        ),
        "json": click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, all else on stderr."),
        "cache": click.option(
            "--cache-dir",
            envvar="UNSEE_CACHE",
            type=click.Path(file_okay=False, path_type=Path),
            help="Where image features are kept.  [default: the user's cache folder]",
        ),
        "no_cache": click.option("--no-cache", is_flag=True, help="Encode all images anew and keep nothing."),
        "device": click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N."),
        "dtype": click.option("--dtype", default="float32", show_default=True, help="Half precision is for GPUs."),
    }

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            command = options[name](command)
        return command

    return decorate


MODEL_OPTIONS = ("data_dir", "cache", "no_cache", "device", "dtype", "json")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version(), prog_name="unsee")
def cli() -> None:
    """Make a black-box vision-language model unsee the classes you name."""


@cli.command()
@click.argument("data")
@click.option("--forget", "names", required=True, help="Classes to forget: NAME,NAME…")
@click.option(
    "--model", default="mini", show_default=True, help="mini, or a CLIP: hub id, folder, .pt, ARCHITECTURE:FILE."
)
@click.option("--method", default="lcs", show_default=True, type=click.Choice(list(METHODS)), help="How to tune.")
@click.option("--preset", default="tuned", show_default=True, type=click.Choice(list(PRESETS)), help="Sizes to use.")
@click.option("--shots", type=int, help="Images a class to tune on; as many again to validate.")
@click.option("--iterations", type=int, help="Generations of the search.")
@click.option("--budget", type=int, help="The most candidates to try, a hard limit.")
@click.option("--seed", default=0, show_default=True, help="Fixes the split, the projection and the search.")
@click.option("--out", type=click.Path(path_type=Path), help="The run folder.  [default: runs/DATA-METHOD-seedS]")
@click.option("--overwrite", is_flag=True, help="Start anew in a folder that holds a run.")
@click.option("--skip-bad-images", is_flag=True, help="Leave out images that cannot be read, and say which.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Any other setting, e.g. search=separable.")
@_shared(*MODEL_OPTIONS)
def forget(
    data: str,
    names: str,
    model: str,
    method: str,
    preset: str,
    shots: int | None,
    iterations: int | None,
    budget: int | None,
    seed: int,
    out: Path | None,
    overwrite: bool,
    skip_bad_images: bool,
    pairs: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Tune a prompt under which the model no longer recognises some classes of DATA.

    DATA is demo (embedded), cifar10, cifar100, cub200, imagenet30, imagenet (`unsee data` says how to get them), or a
    folder with train/<class>/* and test/<class>/*, or with one folder a class.
    """
    console = Console(as_json)
    out = out or Path("runs") / f"{Path(data).name}-{method}-seed{seed}"
    check_free(out, overwrite)
    settings = parse(dict(_pair(text) for text in pairs))
    settings |= {"shots": shots, "iterations": iterations, "budget": budget, "skip_bad_images": skip_bad_images}
    tuner = PromptTuner(plain_names(names), method, preset=preset, seed=seed, **settings)
    images = _readable(_data(data, seed, data_dir), skip_bad_images, console)
    forget_mask(images.class_names, tuner.forget)  # refuse before a large model is loaded
    loaded = _load(model, console, **where)
    test = loaded.bind(images.test, images.class_names)  # before tuning: a bad test image shows now, not hours later
    started = time.perf_counter()
    with console.tuning() as watch:
        tuner.fit(loaded, images, out=out, overwrite=overwrite, watch=watch)
    _finish(tuner, images, test, out, console, started)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--budget", type=int, help="A new limit on candidates, in all.")
@click.option("--iterations", type=int, help="A new number of generations, in all.")
@click.option("--model", help="Where the model lies now, if it has moved.")
@click.option("--data", help="Where the data lies now, if it has moved.")
@_shared(*MODEL_OPTIONS)
def resume(
    run: Path,
    budget: int | None,
    iterations: int | None,
    model: str | None,
    data: str | None,
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Go on with a run that was stopped, killed or ran out of budget."""
    console = Console(as_json)
    config, images, loaded = _reload(run, model, data, console, data_dir, **where)
    tuner = PromptTuner.from_config(config)
    test = loaded.bind(images.test, images.class_names)
    started = time.perf_counter()
    with console.tuning() as watch:
        tuner.resume(loaded, images, run, watch=watch, budget=budget, iterations=iterations)
    _finish(tuner, images, test, run, console, started)


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--model", help="Where the model lies now, if it has moved.")
@click.option("--data", help="Other data with the same classes.")
@_shared(*MODEL_OPTIONS)
def evaluate(
    run: Path, model: str | None, data: str | None, as_json: bool, data_dir: Path | None, **where: Any
) -> None:
    """Scores of a run's prompt on the test images, beside zero-shot and per class."""
    from unsee.evaluation import evaluate as score

    console = Console(as_json)
    prompt = load_prompt(run)
    config, images, loaded = _reload(run, model, data, console, data_dir, **where)
    prompt.check(loaded)
    if images.class_names != prompt.class_names:
        raise InputError(f"the data's classes are not the run's: {', '.join(prompt.class_names[:8])}, …")
    bound = loaded.bind(images.test, prompt.class_names)
    gone = forget_mask(prompt.class_names, prompt.forget)
    found = score(bound, images.test.labels, prompt.contexts, gone, prompt.template)
    console.evaluation(found, prompt, len(images.test), data or config["data"]["name"])


@cli.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", help="Where the model lies now, if it has moved.")
@click.option("--top", default=3, show_default=True, help="How many classes to show.")
@_shared(*MODEL_OPTIONS[1:])
def classify(run: Path, images: tuple[Path, ...], model: str | None, top: int, as_json: bool, **where: Any) -> None:
    """Top classes of each IMAGE, without and with the run's prompt."""
    console = Console(as_json)
    prompt = load_prompt(run)
    loaded = _load(model or prompt.model, console, **where)
    console.answers(prompt.classify(loaded, list(images), top))


@cli.command("compare")
@click.argument("data")
@click.option("--forget", "names", help="Classes to forget: NAME,NAME…  [default: the first 40 %, as in the paper]")
@click.option("--methods", default="all", show_default=True, help="Methods, separated by commas.")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds, separated by commas.")
@click.option("--model", default="mini", show_default=True, help="As for forget.")
@click.option("--preset", default="tuned", show_default=True, type=click.Choice(list(PRESETS)), help="Sizes to use.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where runs lie.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Any setting, for all methods.")
@_shared(*MODEL_OPTIONS)
def compare_methods(
    data: str,
    names: str | None,
    methods: str,
    seeds: str,
    model: str,
    preset: str,
    out: Path,
    pairs: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Methods side by side on DATA, over several seeds; runs only what is missing."""
    from unsee.compare import compare
    from unsee.grid import Place

    console = Console(as_json)
    numbers = _seeds(seeds)
    images = _data(data, numbers[0], data_dir)
    loaded = _load(model, console, **where)
    settings = parse(dict(_pair(text) for text in pairs))
    forget = images.class_names[: max(1, 4 * len(images.class_names) // 10)] if names is None else plain_names(names)
    chosen = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",")]
    place = Place(loaded, images, out)
    with console.tuning() as watch:
        rows = compare(place, forget, chosen, numbers, preset=preset, settings=settings, say=console.say, watch=watch)
    console.comparison(rows, f"{data}: forgetting {', '.join(forget)} ({len(images.test)} test images, {model})")


@cli.command("reproduce")
@click.argument("what", nargs=-1)
@click.option("--data", "sets", multiple=True, metavar="DATA", help="Only on this data.  [default: all of the paper's]")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds, separated by commas.")
@click.option("--model", default="mini", show_default=True, help="As for forget.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where runs lie.")
@click.option("--save", type=click.Path(file_okay=False, path_type=Path), help="Write tables and figures there.")
@click.option(
    "--pretrained", multiple=True, metavar="METHOD=FOLDER", help="Weights for scratch-resnet18 or scratch-vit."
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Threads of one run; results are the same to the last bit where this is.",
)
@click.option("--ray", "on_ray", is_flag=True, help="Runs side by side on a local Ray, one for each core.")
@click.option("--ray-address", help="Runs on this Ray cluster.")
@_shared(*MODEL_OPTIONS)
def reproduce_paper(
    what: tuple[str, ...],
    sets: tuple[str, ...],
    seeds: str,
    model: str,
    out: Path,
    save: Path | None,
    pretrained: Sequence[str],
    threads: int,
    on_ray: bool,
    ray_address: str | None,
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Tables and figures of the paper, ours beside the paper's; runs only what is missing.

    WHAT is table-main, fig-contexts and so on, or all; without it, they are listed.
    """
    from unsee import exhibits, experiments
    from unsee.cluster import Worker, run_on_ray
    from unsee.grid import Place, limit_threads, run_all
    from unsee.reproduce import Runner, reproduce

    console = Console(as_json)
    if not what:
        console.experiments([experiments.load(name) for name in experiments.names()])
        return
    chosen = [experiments.load(name) for name in (experiments.names() if what == ("all",) else what)]
    numbers = _seeds(seeds)
    wanted = []
    loaded = None
    for name in sets or dict.fromkeys(name for experiment in chosen for name in experiment.data):
        if name in NAMED and NAMED[name].find(_data_dir(data_dir) / NAMED[name].folder) is None:
            console.say(f"skipped: {name} is not in {_data_dir(data_dir)}; unsee data says how to get it")
            continue
        images = _data(name, numbers[0], data_dir)
        loaded = loaded or _load(model, console, **where)
        place = Place(loaded, images, out.resolve())
        wanted += [(experiment, place) for experiment in chosen if sets or name in experiment.data]
    if not wanted:
        console.say("none of the data sets is there, so nothing was run; try --data demo")
    weights = dict(map(_pair, pretrained))
    with ExitStack() as shown, limit_threads(threads):
        run: Runner
        if on_ray or ray_address:
            cache = None if where["no_cache"] else _cache_dir(where["cache_dir"])
            parts = (_data_dir(data_dir), cache, numbers[0], where["device"], where["dtype"], threads)
            run = partial(run_on_ray, Worker(*parts), ray_address)
        else:
            run = partial(run_all, watch=shown.enter_context(console.tuning()))
        finished = reproduce(wanted, numbers, pretrained=weights, run=run, watch=console.grid())
    console.finished(finished, exhibits.save(finished, save) if save else [])


@cli.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The page.")
@click.option("--also", default="", metavar="KINDS", help="Files beside it: png, svg (charts), csv, tex (tables).")
@_shared("json")
def report(runs: tuple[Path, ...], out: Path, also: str, as_json: bool) -> None:
    """One page about finished RUNS, pictures and tables, that opens without a network."""
    from unsee.report import write_report

    kinds = [kind.strip() for kind in also.split(",") if kind.strip()]
    Console(as_json).report(write_report(runs, out, kinds))


@cli.command()
@click.option(
    "--classes", "classes", type=int, multiple=True, help="Only these of the paper's settings: 10, 100, 200, 1000."
)
@click.option("--ours-only", is_flag=True, help="Do not time the other ways; much faster.")
@click.option("--overhead", "only_overhead", is_flag=True, help="Instead, the share of a run that is not the model.")
@_shared("json")
def bench(classes: tuple[int, ...], ours_only: bool, only_overhead: bool, as_json: bool) -> None:
    """Speed of a candidate as ratios, measured side by side in this one run.

    At the paper's settings, on random weights of ViT-B/16's size: this evaluator; all classes at 77 positions
    through transformers with cached image features; and the published way, which re-encodes all images.
    """
    from unsee.bench import PAPER, measure, overhead

    console = Console(as_json)
    if only_overhead:
        console.overhead(overhead(say=console.say))
        return
    chosen = [setting for setting in PAPER if not classes or setting.classes in classes]
    if not chosen:
        raise InputError(f"--classes is one of {', '.join(str(setting.classes) for setting in PAPER)}")
    console.timings(measure(chosen, against=not ours_only, say=console.say))


@cli.group(invoke_without_command=True)
@_shared("data_dir", "json")
@click.pass_context
def data(context: click.Context, data_dir: Path | None, as_json: bool) -> None:
    """Which data sets are there, where they lie, how to get the rest."""
    context.obj = _data_dir(data_dir)
    if context.invoked_subcommand is None:
        Console(as_json).listing("data", whereabouts(context.obj))


@data.command("get")
@click.argument("name", type=click.Choice(["cifar10"]))
@click.pass_context
def data_get(context: click.Context, name: str) -> None:
    """Fetch a data set: verified by checksum, put in place only when whole."""
    from unsee.data.fetch import get_cifar10

    get_cifar10(context.obj / name, Console().say)


@cli.command()
@_shared("json")
def models(as_json: bool) -> None:
    """Which models can be used, and what the embedded one is."""
    from unsee.models.mini import describe

    Console(as_json).models(describe())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Exit codes: 0 done, 1 a clear error, 2 bad usage, 130 interrupted."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        cli.main(arguments, prog_name="unsee", standalone_mode=False)
    except click.Abort:
        click.echo(
            "interrupted; go on with: unsee resume RUN (after compare or reproduce: the same command again)", err=True
        )
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except UnseeError as error:
        click.echo(f"error: {' '.join(str(error).split())}", err=True)
        return 1
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        return 0
    return 0


def _finish(tuner: PromptTuner, images: Data, test: Bound, out: Path, console: Console, started: float) -> None:
    for error in tuner.skipped_:
        console.say(f"skipped: {error}")
    result = conclude(tuner, images, test, out, {"tuning": time.perf_counter() - started})
    console.result(result, out, len(images.test))


def _reload(
    run: Path, model: str | None, data: str | None, console: Console, data_dir: Path | None, **where: Any
) -> tuple[dict[str, Any], Data, BlackBox]:
    """A run's config, data and model."""
    config = read_config(run)
    try:
        settings, names = config["settings"], (config["model"]["name"], config["data"]["name"])
        images = _data(data or names[1], settings["seed"], data_dir)
        skip = settings["skip_bad_images"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{run}/config.json: {error} is missing") from None
    return config, _readable(images, skip, console), _load(model or names[0], console, **where)


def _load(name: str, console: Console, cache_dir: Path | None, no_cache: bool, device: str, dtype: str) -> BlackBox:
    cache = None if no_cache else FeatureCache(_cache_dir(cache_dir), progress=console.encoding)
    return load_model(_name(name), cache=cache, device=device, dtype=dtype)


def _data(name: str, seed: int, data_dir: Path | None) -> Data:
    return load_data(_name(name), seed=seed, data_dir=_data_dir(data_dir))


def _cache_dir(given: Path | None) -> Path:
    return given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unsee"


def _data_dir(given: Path | None) -> Path:
    return given or Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "unsee"


def _name(given: str) -> str:
    """A known name as it is; a path so that it means the same from any working directory, for runs to be resumed."""
    known = given in ("mini", "demo", *NAMED)
    return str(Path(given).resolve()) if not known and Path(given).exists() else given


def _readable(data: Data, skip: bool, console: Console) -> Data:
    """The data without test images that cannot be read, each of them named, if asked for."""
    if not skip:
        return data
    test, bad = data.test.readable()
    for error in bad:
        console.say(f"skipped: {error}")
    return dataclasses.replace(data, test=test)


def _seeds(text: str) -> list[int]:
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds are whole numbers separated by commas, not {text!r}") from None


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"--set takes KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()


def run() -> None:
    """The `unsee` command."""
    sys.exit(main())


if __name__ == "__main__":
    run()
