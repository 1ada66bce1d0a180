"""`unsee settings`: what `--set` takes."""

from __future__ import annotations

import dataclasses

import click

from unsee.cli.completion import complete_setting_names
from unsee.cli.inputs import OWN_OPTIONS
from unsee.cli.options import make_console, shared
from unsee.errors import InputError, unknown


@click.command()
@click.argument("name", required=False, shell_complete=complete_setting_names)
@shared("json")
def settings(name: str | None, as_json: bool) -> None:
    """List what --set takes, with values, defaults and meaning.

    With NAME, shows that setting alone.
    """
    from rich.table import Table

    from unsee.settings import list_settings

    known = {each.name: each for each in list_settings() if each.name not in OWN_OPTIONS}
    if name is not None and name not in known:
        raise InputError(unknown("setting", name, sorted(known)))
    chosen = list(known.values()) if name is None else [known[name]]
    table = Table("setting", "takes", "default", "what it is")
    for each in chosen:
        table.add_row(each.name, each.kind, each.default, each.about)
    make_console(as_json).show({"settings": [dataclasses.asdict(each) for each in chosen]}, [table])
