"""`unsee audit`: what the answers leak."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unsee.cli.completion import complete_data
from unsee.cli.inputs import read_data, reload_run, split_list
from unsee.cli.options import MODEL_OPTIONS, RUN, make_console, shared


@click.command()
@RUN
@shared("moved_model", "moved_data")
@click.option(
    "--names",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default="none",
    help='Other names of the forgotten classes to try, as JSON: {"cat": ["kitty"]}.',
)
@click.option(
    "--others",
    shell_complete=complete_data,
    metavar="DATA",
    show_default="none",
    help="Another data set, whose classes were neither forgotten nor kept: is it damaged too?",
)
@click.option(
    "--skip",
    default="",
    metavar="PART[,PART]",
    show_default="nothing",
    help="Parts to leave out, e.g. membership, names, templates; an earlier audit's are kept.",
)
@click.option(
    "--relearn", is_flag=True, help="Also tune fresh prompts, to see how few labelled images bring the classes back."
)
@click.option(
    "--key",
    metavar="KEY",
    show_default="UNSEE_KEY in the environment",
    help="Audit --model http://HOST as this key sees it; other users can see it, unlike --key-file.",
)
@click.option(
    "--all-images",
    is_flag=True,
    help="Ask a service about all test images, one by one, though its key may only classify; usually about a sample.",
)
@shared(*MODEL_OPTIONS)
def audit(
    run: Path,
    model: str | None,
    data: str | None,
    names: Path | None,
    others: str | None,
    skip: str,
    relearn: bool,
    key: str | None,
    all_images: bool,
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Measure what answers still leak about forgotten classes.

    Leakage, robustness and damage to kept classes, with intervals, then a verdict: findings, worst first. Takes
    finished runs of every method, and writes audit.json into the run folder. With the address of a service as --model,
    the service is asked in every way that the key allows; a key that may only classify gets audit-service.json.
    """
    from unsee.audit.audit import audit as run_audit
    from unsee.audit.parts import choose_parts
    from unsee.audit.tables import audit_parts
    from unsee.data.other_names import read_names_file

    console = make_console(as_json)
    parts = choose_parts(split_list(skip), also=["relearning"] if relearn else [])
    known = None if names is None else read_names_file(names)
    _, images, loaded = reload_run(run, model, data, console, data_dir, key=key, **where)
    more = None if others is None else read_data(others, 0, data_dir)
    found = run_audit(
        run,
        loaded,
        images,
        parts=parts,
        other_names=known,
        other_data=more,
        all_images=all_images,
        say=console.say,
    )
    console.show(found.model_dump(mode="json") | {"run": str(run)}, audit_parts(found, run))
