"""Commands about one run: forget, resume, evaluate, classify."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.options import (
    MODEL_HELP,
    MODEL_OPTIONS,
    join_settings,
    make_console,
    read_data,
    read_model,
    reload_run,
    shared,
    without_bad_images,
)
from unsee.methods.presets import PRESETS
from unsee.methods.registry import METHODS
from unsee.settings import GOALS, SERVED_AS

if TYPE_CHECKING:
    from unsee.cli.console import Console
    from unsee.tuner import PromptTuner


@click.command()
@click.argument("data")
@click.option("--forget", "names", required=True, help="Classes to forget: NAME,NAME…")
@click.option("--model", default="mini", show_default=True, help=MODEL_HELP)
@click.option("--method", default="lcs", show_default=True, type=click.Choice(list(METHODS)), help="How to tune.")
@click.option("--preset", default="tuned", show_default=True, type=click.Choice(PRESETS), help="Sizes to use.")
@click.option("--goal", type=click.Choice(GOALS), help="What to ask of forgotten images' answers.  [default: entropy]")
@click.option("--serve", type=click.Choice(SERVED_AS), help="What is done to answers before they leave.")
@click.option("--shots", type=int, help="Images per class to tune on; as many again to validate.")
@click.option("--iterations", type=int, help="Generations of the search.")
@click.option("--budget", type=int, help="The most candidates to try, a hard limit.")
@click.option("--seed", default=0, show_default=True, help="Fixes the split, the projection and the search.")
@click.option("--out", type=click.Path(path_type=Path), help="The run folder.  [default: runs/DATA-METHOD-seedS]")
@click.option("--overwrite", is_flag=True, help="Start over in a folder that holds a run.")
@click.option("--skip-bad-images", is_flag=True, help="Leave out images that cannot be read, and say which.")
@shared("names", "set", *MODEL_OPTIONS)
def forget(
    data: str,
    names: str,
    model: str,
    method: str,
    preset: str,
    goal: str | None,
    serve: str | None,
    shots: int | None,
    iterations: int | None,
    budget: int | None,
    seed: int,
    out: Path | None,
    overwrite: bool,
    skip_bad_images: bool,
    names_file: Path | None,
    pairs: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Tune a prompt under which the model no longer recognises some classes of DATA.

    DATA is demo (embedded), cifar10, cifar100, cub200, imagenet30, imagenet (`unsee data` says how to get them), a
    folder with train/<class>/* and test/<class>/*, or with one folder per class, or a .csv with path and label.
    """
    from unsee.data.class_folders import refuse_inside
    from unsee.data.class_names import forget_mask, read_names
    from unsee.methods.forecast import forecast
    from unsee.models.black_box import bind
    from unsee.runs.folder import check_free
    from unsee.tuner import PromptTuner

    console = make_console(as_json)
    out = out or Path("runs") / f"{Path(data).name}-{method}-seed{seed}"
    check_free(out, overwrite)
    own = {
        "goal": goal,
        "serve": serve,
        "shots": shots,
        "iterations": iterations,
        "budget": budget,
        "skip_bad_images": skip_bad_images,
    }
    settings = join_settings(pairs, own)
    tuner = PromptTuner(read_names(names), method, preset=preset, seed=seed, **settings)
    skip = bool(settings.get("skip_bad_images"))
    images = read_data(data, seed, data_dir, names_file)
    refuse_inside(images, out)
    images = without_bad_images(images, skip, console)
    forget_mask(images.class_names, tuner.forget)  # refuse before a large model is loaded
    loaded = read_model(model, console, **where)
    test = bind(loaded, images.test)  # before tuning: a bad test image shows now, not hours later
    console.say(forecast([tuner.task(loaded, images)]).sentence())
    with console.tuning() as watch:
        tuner.fit(loaded, images, out=out, test=test, overwrite=overwrite, watch=watch, say=console.say)
    _show(tuner, out, console)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--budget", type=int, help="A new limit on candidates, in all.")
@click.option("--iterations", type=int, help="A new number of generations, in all.")
@click.option("--model", help="Where the model is now, if it has moved.")
@click.option("--data", help="Where the data is now, if it has moved.")
@shared(*MODEL_OPTIONS)
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
    """Continue a run that was stopped, killed or ran out of budget."""
    from unsee.models.black_box import bind
    from unsee.runs.folder import check_resumable
    from unsee.tuner import PromptTuner

    console = make_console(as_json)
    check_resumable(run)
    config, images, loaded = reload_run(run, model, data, console, data_dir, **where)
    tuner = PromptTuner.from_config(config)
    test = bind(loaded, images.test)
    with console.tuning() as watch:
        longer = {"budget": budget, "iterations": iterations}
        tuner.resume(loaded, images, run, test=test, watch=watch, say=console.say, **longer)
    _show(tuner, run, console)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--model", help="Where the model is now, if it has moved.")
@click.option("--data", help="Other data with the same classes.")
@shared(*MODEL_OPTIONS)
def evaluate(
    run: Path, model: str | None, data: str | None, as_json: bool, data_dir: Path | None, **where: Any
) -> None:
    """Scores of a run's prompt on the test images, beside zero-shot and per class."""
    from unsee.answers.evaluation import evaluate as score
    from unsee.data.class_names import forget_mask
    from unsee.models.black_box import bind
    from unsee.runs.identity import check_data
    from unsee.runs.prompt import load_prompt

    console = make_console(as_json)
    prompt = load_prompt(run)
    config, images, loaded = reload_run(run, model, data, console, data_dir, **where)
    prompt.check(loaded)
    test = images.test.in_classes(prompt.class_names)
    if data is None:
        check_data(config, images, run)
    bound = bind(loaded, test, prompt.class_names)
    gone = forget_mask(prompt.class_names, prompt.forget)
    found = score(bound.zero_shot(prompt.template), prompt.unserved(bound), bound.labels, gone, prompt.serve)
    console.evaluation(found, prompt, len(images.test), data or config.data.name)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--model", help="Where the model is now, if it has moved.")
@click.option("--top", default=3, show_default=True, type=click.IntRange(1), help="How many classes to show.")
@shared(*MODEL_OPTIONS[1:])
def classify(run: Path, images: tuple[Path, ...], model: str | None, top: int, as_json: bool, **where: Any) -> None:
    """Top classes of each IMAGE, without and with the run's prompt."""
    from unsee.runs.prompt import load_prompt

    console = make_console(as_json)
    prompt = load_prompt(run)
    loaded = read_model(model or prompt.model, console, **where)
    console.answers(prompt.classify(loaded, list(images), top))


def _show(tuner: PromptTuner, out: Path, console: Console) -> None:
    from unsee.runs.folder import read_result

    for error in tuner.skipped_:
        console.say(f"skipped: {error}")
    console.result(read_result(out), out, len(tuner.data_.test))
