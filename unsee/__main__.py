"""`python -m unsee` is the `unsee` command."""

from unsee.cli import run

run()
