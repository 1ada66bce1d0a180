"""Commands that ask what a run is worth: audit, pick."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unsee.cli.options import MODEL_OPTIONS, make_console, read_data, reload_run, shared


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--model", help="Where the model is now, if it has moved.")
@click.option("--data", help="Where the data is now, if it has moved.")
@click.option("--names", type=click.Path(path_type=Path), help='Other names to try: JSON, {"cat": ["kitty"]}.')
@click.option("--others", metavar="DATA", help="Another data set, whose classes were neither forgotten nor kept.")
@click.option("--skip", default="", metavar="PARTS", help="Leave out: membership, names, templates, …")
@click.option("--relearn", is_flag=True, help="Also tune fresh prompts, to see how few images bring classes back.")
@shared(*MODEL_OPTIONS)
def audit(
    run: Path,
    model: str | None,
    data: str | None,
    names: Path | None,
    others: str | None,
    skip: str,
    relearn: bool,
    as_json: bool,
    data_dir: Path | None,
    **where: Any,
) -> None:
    """Is it really forgotten? Leakage, robustness, collateral damage, and a verdict in words.

    Works on finished runs of every method. Writes audit.json into the run folder.
    """
    from unsee.audit.audit import audit as run_audit
    from unsee.audit.other_names import read_names_file
    from unsee.audit.parts import choose_parts
    from unsee.audit.tables import audit_parts

    console = make_console(as_json)
    left_out = [part.strip() for part in skip.split(",") if part.strip()]
    parts = choose_parts(left_out, also=["relearning"] if relearn else [])
    known = None if names is None else read_names_file(names)
    _, images, loaded = reload_run(run, model, data, console, data_dir, **where)
    more = None if others is None else read_data(others, 0, data_dir)
    found = run_audit(run, loaded, images, parts=parts, other_names=known, other_data=more, say=console.say)
    console.show(found.model_dump(mode="json") | {"run": str(run)}, audit_parts(found, run))


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--acc-mem", type=click.FloatRange(0, 1), help="At least this Acc_mem; then forget as much as possible.")
@click.option("--err-for", type=click.FloatRange(0, 1), help="At least this Err_for; then keep as much as possible.")
@click.option("--entropy", type=click.FloatRange(0, 1), help="At least this entropy of forgotten images' answers.")
@click.option("--out", type=click.Path(path_type=Path), help="The prompt's folder.  [default: RUN/picked/…]")
@shared("json")
def pick(
    run: Path, acc_mem: float | None, err_for: float | None, entropy: float | None, out: Path | None, as_json: bool
) -> None:
    """Write another prompt of the same RUN, without one more query.

    Scores are those on the images to tune and to validate on. `unsee evaluate` of the written folder gives test scores.
    """
    from unsee.runs.picking import pick_prompt

    given = {"acc_mem": acc_mem, "err_for": err_for, "entropy": entropy}
    wanted = {name: value for name, value in given.items() if value is not None}
    if not wanted:
        raise click.UsageError("say what to pick by: --acc-mem, --err-for or --entropy")
    record, folder = pick_prompt(run, out, **wanted)
    found = record.trade_off
    words = (
        f"generation {record.generation}, candidate {record.candidate}; on the images to tune and to validate on "
        f"Err_for {100 * found.err_for:.2f}, Acc_mem {100 * found.acc_mem:.2f}, entropy {found.entropy:.2f}"
    )
    make_console(as_json).show(record.model_dump(mode="json") | {"prompt": str(folder)}, [words, f"prompt: {folder}"])
