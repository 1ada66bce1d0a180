"""`unsee forget`: a new run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.inputs import join_settings, offering_to_skip, read_data, read_forget, read_model, without_bad_images
from unsee.cli.interruption import resumable
from unsee.cli.options import DATA, MODEL_OPTIONS, Name, make_console, shared
from unsee.methods.presets import default_method
from unsee.methods.registry import METHODS
from unsee.runs.given import stable_name
from unsee.settings import GOALS, SERVED_AS

if TYPE_CHECKING:
    from unsee.cli.console import Console
    from unsee.runs.tuning import TunedRun


@click.command()
@DATA
@shared("forget", "forget_file", "model")
@click.option(
    "--method",
    type=Name(list(METHODS)),
    metavar="NAME",
    show_default="guided; lcs with --preset paper or more than 20 classes",
    help=f"A search guided by the model's answers, the paper's (lcs), or another way: {', '.join(METHODS)}.",
)
@shared("preset")
@click.option(
    "--goal",
    type=Name(GOALS),
    show_default="entropy",
    help="What answers to forgotten images should become: uniform (entropy), as if their names were removed (mask), "
    "anything but the true class (push), or uniform as far as the kept classes allow (constrained).",
)
@click.option(
    "--serve",
    type=Name(SERVED_AS),
    metavar="RULE",
    show_default="mask-top-digit; as-is with --preset paper",
    help=f"How answers are rounded or cut before a caller sees them: {', '.join(SERVED_AS)}.",
)
@click.option(
    "--shots",
    type=int,
    show_default="by data set",
    help="Labelled images per class to tune on; as many again to validate on.",
)
@click.option("--iterations", type=int, show_default="by preset", help="Generations of the search.")
@click.option("--budget", type=int, show_default="no limit", help="Most candidates (prompts) to try.")
@click.option(
    "--image-queries",
    type=int,
    show_default="for guided a twentieth of what lcs takes; for others no limit",
    help="Most image queries: one image scored under one prompt.",
)
@shared("price")
@click.option("--seed", default=0, help="Seed of the split, the projection and the search.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    show_default="runs/DATA-METHOD-CLASSES-seedSEED",
    help="Run folder to write.",
)
@click.option("--overwrite", is_flag=True, help="Replace a run that is in the folder.")
@click.option("--skip-bad-images", is_flag=True, help="Leave out images that cannot be read, and name them.")
@shared("track", "names", "set", *MODEL_OPTIONS)
def forget(
    data: str,
    names: Sequence[str],
    forget_file: Path | None,
    model: str,
    method: str | None,
    preset: str,
    goal: str | None,
    serve: str | None,
    shots: int | None,
    iterations: int | None,
    budget: int | None,
    image_queries: int | None,
    price: float | None,
    seed: int,
    out: Path | None,
    overwrite: bool,
    skip_bad_images: bool,
    trackers: Sequence[str],
    names_file: Path | None,
    pairs: Sequence[str],
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Tune a prompt under which the model stops recognising classes.

    DATA is demo (embedded), cifar10, cifar100, cub200, imagenet30, imagenet (`unsee data` says how to get them), a
    folder with `train/<class>/*` and `test/<class>/*`, or with one folder per class, or a .csv with path and label.

    \b
    Examples:
      unsee forget demo --forget cat,dog
      unsee forget photos/ --forget cat --forget dog --out runs/pets
      unsee forget photos/ --forget-file names.txt --iterations 200
    """
    from unsee.data.class_folders import refuse_inside
    from unsee.data.class_names import forget_mask
    from unsee.methods.forecast import forecast
    from unsee.methods.task import check_lengths, make_task
    from unsee.models.black_box import bind
    from unsee.runs.folder import check_free
    from unsee.runs.folder_name import folder_name
    from unsee.runs.trackers import make_tracker
    from unsee.runs.tuning import start_run

    if not names and forget_file is None:
        raise click.UsageError("say what to forget: --forget NAME[,NAME] or --forget-file FILE")
    console = make_console(as_json)
    wanted = read_forget(names, forget_file)
    own = {
        "goal": goal,
        "serve": serve,
        "shots": shots,
        "iterations": iterations,
        "budget": budget,
        "image_queries": image_queries,
        "skip_bad_images": skip_bad_images,
    }
    settings = join_settings(pairs, own)
    images = read_data(data, seed, data_dir, names_file)
    method = method or default_method(preset, settings, len(images.class_names))
    out = out or Path("runs") / folder_name(stable_name(data), method, wanted, seed)
    told = [make_tracker(name, out) for name in dict.fromkeys(trackers)]  # first: a library may be missing
    with resumable(out), offering_to_skip():
        refuse_inside(images, out)
        forget_mask(images.class_names, wanted)  # refuse before a large model is loaded
        images = without_bad_images(images, bool(settings.get("skip_bad_images")), console)
        loaded = read_model(model, console, **where)
        task = make_task(loaded, images, wanted, method, preset, seed, settings)
        check_lengths(task)
        check_free(out, overwrite)  # when nothing else is wrong: a typo is not hidden by a taken folder
        test = bind(loaded, images.test)  # before tuning: a bad test image shows now, not hours later
        console.say(forecast([task]).sentence(price))
        with console.tuning() as watch:
            run = start_run(task, out, test, overwrite=overwrite, watch=watch, callbacks=told, say=console.say)
    show_run(run, out, console, price)


def show_run(run: TunedRun, out: Path, console: Console, price: float | None = None) -> None:
    """Prints what a run ends with; price is that of 1,000 image queries."""
    from unsee.cli.scores import result_parts
    from unsee.runs.folder import read_result

    for error in run.task.split.skipped:
        console.say(f"skipped: {error}")
    result = read_result(out)
    if price is not None:
        spent = result.ledger.image_queries
        console.say(f"spent: {spent:,} image queries, {price * spent / 1000:,.2f} at {price:g} per 1,000")
    console.show(result.model_dump(mode="json") | {"run": str(out)}, result_parts(result, out, len(run.task.data.test)))
