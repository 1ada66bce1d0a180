"""`unsee pick`: another prompt of the same run."""

from __future__ import annotations

from pathlib import Path

import click

from unsee.cli.options import RUN, make_console, shared

_SHARE = click.FloatRange(0, 1)


@click.command()
@RUN
@click.option("--acc-mem", type=_SHARE, show_default="any", help="Least Acc_mem; then forget as much as possible.")
@click.option("--err-for", type=_SHARE, show_default="any", help="Least Err_for; then keep as much as possible.")
@click.option("--entropy", type=_SHARE, show_default="any", help="Least entropy of answers to forgotten images.")
@click.option("--out", type=click.Path(path_type=Path), show_default="RUN/picked/NAME", help="Folder for the prompt.")
@shared("json")
def pick(
    run: Path, acc_mem: float | None, err_for: float | None, entropy: float | None, out: Path | None, as_json: bool
) -> None:
    """Choose another trade-off of a run, without one more query.

    Scores are those on the images to tune and to validate on; `unsee evaluate` of the written folder gives test scores.
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
