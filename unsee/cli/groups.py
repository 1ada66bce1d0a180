"""Groups of commands: their help is never cut, and the modules of the commands are imported late."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from unsee.errors import unknown


class WholeHelpGroup(click.Group):
    """A group whose help has the whole first sentence of each command, wrapped: click cuts it to one line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(1000)) for name, each in found.items() if each])


class LazyGroup(WholeHelpGroup):
    """A group of commands by the modules that hold them, in their order."""

    def __init__(self, *arguments: Any, modules: Mapping[str, str], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        found: click.Command = getattr(import_module(self.modules[cmd_name]), cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or an error that names the nearest one."""
        if args[0] not in self.modules and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(unknown("command", args[0], self.modules))
        return super().resolve_command(ctx, args)
