"""Writes docs/cli.md, the reference of all commands, from the commands themselves: python docs/cli_page.py."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from unsee.cli import COMMANDS, cli

PAGE = Path(__file__).parent / "cli.md"
HEAD = """\
# Commands

Written by `python docs/cli_page.py` from what `unsee COMMAND --help` says.

Exit codes: 0 done, 1 a clear one-line error, 2 bad usage, 130 interrupted (and resumable). Every command that prints a
result takes `--json`: one JSON object on stdout, all else on stderr. `python -m unsee` is the same command.

## Completion

Data sets, classes, run folders, models, methods and settings are completed by the shell. Once, in bash, zsh or fish:

```sh
eval "$(_UNSEE_COMPLETE=bash_source unsee)"     # in ~/.bashrc
eval "$(_UNSEE_COMPLETE=zsh_source unsee)"      # in ~/.zshrc
_UNSEE_COMPLETE=fish_source unsee | source      # in ~/.config/fish/config.fish
```
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"\n{part}" for part in _sections())


def _sections() -> Iterator[str]:
    top = click.Context(cli, info_name="unsee", **cli.context_settings)
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        yield _section("##", command, click.Context(command, info_name=name, parent=top))
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=top)
            for sub, each in command.commands.items():
                yield _section("###", each, click.Context(each, info_name=sub, parent=context))


def _section(level: str, command: click.Command, context: click.Context) -> str:
    """Usage, what the command does, and a list of its options."""
    lines = [f"{level} {context.command_path}", "", "```", _usage(command, context), "```", ""]
    lines += [_words(command), ""] if command.help else []
    options = [each for each in command.params if isinstance(each, click.Option)]
    records = [option.get_help_record(context) for option in options]
    lines += [f"- `{names}`: {' '.join(text.split())}" for names, text in filter(None, records)]
    return "\n".join(lines) + "\n"


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _words(command: click.Command) -> str:
    """The help as Markdown; what click is told not to wrap becomes a block."""
    text, marker, example = inspect.cleandoc(command.help or "").partition("\b\n")
    if not marker:
        return text
    title, *examples = example.splitlines()
    block = "\n".join(line.strip() for line in examples)
    return f"{text}{title}\n\n```sh\n{block}\n```"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
