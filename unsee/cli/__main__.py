"""`python -m unsee.cli` is the `unsee` command."""

from unsee.cli import run

run()
