"""What `--help` says: commands in the order of work, no line cut, every default shown, at once."""

from __future__ import annotations

import re
import sys

import click
import pytest

from unsee.cli import COMMANDS, cli, main

ORDER = [
    "forget",
    "resume",
    "evaluate",
    "classify",
    "audit",
    "pick",
    "compare",
    "report",
    "reproduce",
    "serve",
    "bench",
]


def every_command() -> dict[str, click.Command]:
    """Commands and their subcommands, by the words that call them."""
    context, found = click.Context(cli), {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {sub}": each for sub, each in command.commands.items()}
    return found


EVERY = every_command()


def test_commands_are_listed_in_the_order_of_work(capsys):
    assert main(["--help"]) == 0
    listed = re.findall(r"^  ([a-z]+) ", capsys.readouterr().out.partition("Commands:")[2], flags=re.MULTILINE)
    assert listed == list(COMMANDS)
    assert [name for name in listed if name in ORDER] == ORDER


@pytest.mark.parametrize("columns", [80, 60])
def test_no_line_of_help_is_cut(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in ("", *EVERY):
        assert main([*words.split(), "--help"]) == 0
        text = capsys.readouterr().out
        assert "..." not in text.partition("\n\n")[2], words  # behind the usage, where it means "several"
        assert text.isascii(), words  # click writes UTF-8 to terminals that are not
        assert all(len(line) <= columns or line.startswith("    unsee ") for line in text.splitlines()), words


@pytest.mark.parametrize("words", EVERY)
def test_every_option_says_what_it_does_and_its_default(words):
    for option in EVERY[words].params:
        if isinstance(option, click.Option):
            assert option.help, option.name
            assert option.help.endswith((".", "?")), option.help
            given = option.default not in (None, "", ()) or isinstance(option.show_default, str)
            assert option.is_flag or option.required or given or option.name in ("pairs", "names"), option.name


def test_forget_shows_an_example(capsys):
    assert main(["forget", "--help"]) == 0
    assert "\n    unsee forget demo --forget cat,dog\n" in capsys.readouterr().out


def test_a_wrong_command_or_method_is_answered_with_the_nearest(capsys):
    assert main(["forgett"]) == 2
    assert "did you mean 'forget'?" in capsys.readouterr().err
    assert main(["forget", "demo", "--forget", "cat", "--method", "lsc"]) == 2
    assert "unknown method 'lsc'; did you mean 'lcs'" in capsys.readouterr().err


def test_a_command_is_one_file_and_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "hello.py").write_text(
        'import click\n\n@click.command()\ndef hello():\n    """Say hello."""\n    click.echo("hello")\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(COMMANDS, "hello", "hello")
    assert main(["hello"]) == 0
    assert capsys.readouterr().out == "hello\n"
    assert main(["--help"]) == 0
    assert "  hello      Say hello.\n" in capsys.readouterr().out
    sys.modules.pop("hello")
