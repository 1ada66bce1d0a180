"""The `unsee` command: parses, calls, prints. One file per command, imported when it is asked for."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Sequence

import click

from unsee.cli.encoding import never_fail
from unsee.cli.groups import LazyGroup
from unsee.errors import UnseeError
from unsee.text_table import harmless
from unsee.versions import version

# Every command and the module that holds it, as a function of the same name. The order is that of `unsee --help`.
COMMANDS = {
    "forget": "unsee.cli.forget",
    "resume": "unsee.cli.resume",
    "extend": "unsee.cli.extend",
    "evaluate": "unsee.cli.evaluate",
    "classify": "unsee.cli.classify",
    "audit": "unsee.cli.audit",
    "pick": "unsee.cli.pick",
    "compare": "unsee.cli.compare",
    "report": "unsee.cli.report",
    "runs": "unsee.cli.runs",
    "reproduce": "unsee.cli.reproduce",
    "studio": "unsee.cli.studio",
    "serve": "unsee.cli.serve",
    "bench": "unsee.cli.bench",
    "data": "unsee.cli.data",
    "models": "unsee.cli.models",
    "settings": "unsee.cli.settings",
    "doctor": "unsee.cli.doctor",
}


@click.group(
    cls=LazyGroup,
    modules=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True},
)
@click.version_option(version(), prog_name="unsee")
def cli() -> None:
    """Make a black-box vision-language model unsee the classes you name.

    Try it: unsee forget demo --forget cat,dog
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Exit codes: 0 done, 1 a clear error, 2 bad usage, 130 interrupted."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        cli.main(arguments, prog_name="unsee", standalone_mode=False)
    except click.Abort as abort:
        _complain("; ".join(["interrupted", *map(str, abort.args)]))
        return 130
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)  # not on stderr as click finds it: to a terminal that is not UTF-8 it writes UTF-8
        _complain(shown.getvalue().rstrip("\n"))
        return error.exit_code
    except UnseeError as error:
        _complain(f"error: {' '.join(str(error).split())}")
        return 1
    except OSError as error:  # what is not explained where it happens
        if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has seen enough
            sys.stderr.close()
            return 0
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"error: {where}{error.strerror or error}")
        return 1
    return 0


def _complain(text: str) -> None:
    print(harmless(text), file=sys.stderr)


def run() -> None:
    """The `unsee` command's entry point."""
    never_fail(sys.stdout)
    never_fail(sys.stderr)
    sys.exit(main())
