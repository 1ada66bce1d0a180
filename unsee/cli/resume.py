"""`unsee resume`: a run continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from unsee.cli.forget import show_run
from unsee.cli.inputs import reload_run
from unsee.cli.interruption import advising, resume_line
from unsee.cli.options import MODEL_OPTIONS, RUN, make_console, shared


@click.command()
@RUN
@click.option("--budget", type=int, show_default="as before", help="New limit on candidates, those so far included.")
@click.option(
    "--iterations", type=int, show_default="as before", help="New number of generations, those so far included."
)
@click.option(
    "--image-queries", type=int, show_default="as before", help="New limit on image queries, those so far included."
)
@shared("price", "track", "moved_model", "moved_data", *MODEL_OPTIONS)
def resume(
    run: Path,
    budget: int | None,
    iterations: int | None,
    image_queries: int | None,
    price: float | None,
    trackers: Sequence[str],
    model: str | None,
    data: str | None,
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Continue a run that was interrupted or ran out of budget.

    The result has the same bytes as that of a run that was never interrupted. A finished run is continued with a larger
    --budget or more --iterations.
    """
    from unsee.models.black_box import bind
    from unsee.runs.folder import check_resumable
    from unsee.runs.trackers import make_tracker
    from unsee.tuner import PromptTuner

    console = make_console(as_json)
    check_resumable(run)
    told = [make_tracker(name, run) for name in dict.fromkeys(trackers)]
    with advising(resume_line(run)):
        config, images, loaded = reload_run(run, model, data, console, data_dir, **where)
        tuner = PromptTuner.from_config(config)
        test = bind(loaded, images.test)
        with console.tuning() as watch:
            tuner.resume(
                loaded,
                images,
                run,
                test=test,
                watch=watch,
                callbacks=told,
                say=console.say,
                budget=budget,
                iterations=iterations,
                image_queries=image_queries,
            )
    show_run(tuner.run_, run, console, price)
