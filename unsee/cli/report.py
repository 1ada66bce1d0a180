"""`unsee report`: one page about runs."""

from __future__ import annotations

from pathlib import Path

import click

from unsee.cli.options import make_console, shared, split_list


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "out", type=click.Path(path_type=Path), default="report.html", help="Page to write.")
@click.option(
    "--also",
    default="",
    metavar="KIND[,KIND]",
    show_default="nothing",
    help="Write beside it: png or svg (charts), csv or tex (tables).",
)
@shared("json")
def report(runs: tuple[Path, ...], out: Path, also: str, as_json: bool) -> None:
    """Write one HTML page about finished runs, with charts and tables.

    It opens without a network. Several RUNS are grouped by method and settings.
    """
    from unsee.report.html import write_report

    console = make_console(as_json)
    page, *beside = map(str, write_report(runs, out, split_list(also), console.say))
    console.show({"report": page, "also": beside}, [f"report: {page}", *(f"also: {path}" for path in beside)])
