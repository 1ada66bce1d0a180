"""`unsee data`: the data sets known by name."""

from __future__ import annotations

from pathlib import Path

import click

from unsee.cli.groups import WholeHelpGroup
from unsee.cli.options import data_folder, make_console, shared
from unsee.errors import InputError, unknown


@click.group(cls=WholeHelpGroup, invoke_without_command=True)
@shared("data_dir", "json")
@click.pass_context
def data(context: click.Context, data_dir: Path | None, as_json: bool) -> None:
    """List data sets: which are there, and how to get the others."""
    from rich.table import Table

    from unsee.data import list_data_sets

    context.obj = data_dir, as_json
    if context.invoked_subcommand is not None:
        return
    rows = list_data_sets(data_folder(data_dir))
    table = Table("name", "there", "where", "how to get it")
    for row in rows:
        table.add_row(row["name"], "yes" if row["found"] else "no", row["place"], row["short"])
    make_console(as_json).show({"data": list(rows)}, [table, "Details of one: unsee data show NAME"])


@data.command("show")
@click.argument("name")
@shared("data_dir", "json")
@click.pass_context
def data_show(context: click.Context, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Show one data set: the files that are looked for, where, and how to get them."""
    from unsee.data import list_data_sets

    group_dir, group_json = context.obj
    known = {row["name"]: row for row in list_data_sets(data_folder(data_dir or group_dir))}
    if name not in known:
        raise InputError(unknown("data set", name, known))
    row = known[name]
    state = "found" if row["found"] else "not found"
    make_console(as_json or group_json).show(row, [f"{name}: {state}, {row['where']}\n    {row['get']}"])


@data.command("get")
@click.argument("name", metavar="NAME", type=click.Choice(["cifar10"]))
@shared("data_dir")
@click.pass_context
def data_get(context: click.Context, name: str, data_dir: Path | None) -> None:
    """Download a data set (cifar10), and check its checksum."""
    from unsee.data.fetch import get_cifar10

    get_cifar10(data_folder(data_dir or context.obj[0]) / name, make_console().say)
