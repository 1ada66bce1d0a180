"""`unsee extend`: a run for other classes, from the answers of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from unsee.cli.forget import show_run
from unsee.cli.inputs import read_forget, reload_run
from unsee.cli.interruption import resumable
from unsee.cli.options import MODEL_OPTIONS, RUN, make_console, shared


@click.command()
@RUN
@click.option("--forget", "names", multiple=True, metavar="NAME[,NAME]", help="Classes to forget as well. Repeatable.")
@click.option("--restore", multiple=True, metavar="NAME[,NAME]", help="Forgotten classes to restore. Repeatable.")
@click.option(
    "--image-queries",
    type=int,
    show_default="a tenth of the run's own",
    help="Most image queries; answers of the earlier run cost none.",
)
@shared("price")
@click.option(
    "--out", type=click.Path(path_type=Path), show_default="by data, method and classes", help="Run folder to write."
)
@click.option("--overwrite", is_flag=True, help="Replace a run that is in the folder.")
@shared("moved_model", "moved_data", *MODEL_OPTIONS)
def extend(
    run: Path,
    names: Sequence[str],
    restore: Sequence[str],
    image_queries: int | None,
    price: float | None,
    out: Path | None,
    overwrite: bool,
    model: str | None,
    data: str | None,
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Forget more classes, or restore some, starting from the answers of an earlier run.

    What the model answered does not depend on what is to be forgotten, so the new run starts with all that the earlier
    one has paid for. It is a run of its own, and names its parent.

    \b
    Examples:
      unsee extend runs/pets --forget rabbit
      unsee extend runs/pets --restore cat --out runs/only-dogs
    """
    from unsee.methods.forecast import forecast
    from unsee.models.black_box import bind
    from unsee.runs.extending import EXTENDED_SHARE, inherit, other_list
    from unsee.runs.folder import check_free, check_resumable
    from unsee.runs.folder_name import folder_name
    from unsee.runs.tuning import start_run
    from unsee.tuner import PromptTuner

    console = make_console(as_json)
    check_resumable(run)
    config, images, loaded = reload_run(run, model, data, console, data_dir, **where)
    wanted = other_list(config, read_forget(names, None), read_forget(restore, None))
    s = config.settings
    out = out or Path("runs") / folder_name(config.data.name, s.method, wanted, s.seed)
    with resumable(out):
        before = PromptTuner.from_config(config)
        limit = image_queries or max(1, (s.image_queries or 0) // EXTENDED_SHARE) or None
        after = PromptTuner.from_config(config).set_params(forget=wanted, image_queries=limit, iterations=s.iterations)
        task = inherit(run, before.task(loaded, images), after.task(loaded, images))
        check_free(out, overwrite)
        test = bind(loaded, images.test)
        console.say(forecast([task]).sentence(price))
        with console.tuning() as watch:
            found = start_run(task, out, test, overwrite=overwrite, watch=watch, say=console.say)
    show_run(found, out, console, price)
