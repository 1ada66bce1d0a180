"""What a command prints on: tables or one JSON object on stdout, everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import rich.console
from rich.table import Table

from unsee.cli.encoding import is_utf8
from unsee.cli.fitting import fit
from unsee.runs.progress import Pace, plain_console, show_progress
from unsee.text_table import TextTable, harmless, harmless_json

if TYPE_CHECKING:
    from unsee.methods.recorder import Watch

Part = str | Table | TextTable
WIDE = 140  # columns of a table where there is no terminal to fit


class Console:
    """Prints for a person, or one JSON object for a program."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDE
        # A class may be called "[red]" or ":cat:": names are printed as they are.
        self._out = rich.console.Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
        self._err = plain_console()
        self._pace = Pace()

    def say(self, text: str) -> None:
        """A line beside the result."""
        self._err.print(harmless(text), soft_wrap=True)

    def show(self, content: Mapping[str, Any], parts: Sequence[Part]) -> None:
        """Sentences and tables for a person, or the whole content for a program."""
        if self.as_json:
            text = json.dumps(dict(content), ensure_ascii=not is_utf8(sys.stdout), allow_nan=False)
            sys.stdout.write(f"{harmless_json(text)}\n")
            return
        for part in parts:
            shown = harmless(part) if isinstance(part, str) else fit(part, self._out.width, self._out.encoding)
            self._out.print(shown, soft_wrap=isinstance(shown, str))

    def encoding(self, done: int, total: int) -> None:
        """Progress of image encoding."""
        if total > 1000 and (self._pace.due() or done == total):
            self.say(f"encoding images: {done} of {total}")

    @contextmanager
    def tuning(self) -> Iterator[Watch]:
        """Progress of a search: a bar on a terminal, a line now and then elsewhere."""
        with show_progress(self._err) as watch:
            yield watch
