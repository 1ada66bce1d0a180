"""Tables that fit a terminal: wrapped between words, never inside an id, a path or a number."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table

from unsee.cli.encoding import spelled
from unsee.text_table import TextTable, harmless

BORDER = 3  # columns that a column of a table takes beside its text; and one at the end


def fit(given: Table | TextTable, width: int, encoding: str = "utf-8") -> Table | str:
    """The table in this many columns; or, where not even its longest words fit, its rows as lists.

    Cells are spelled as the encoding can show them, so that columns stay aligned.
    """
    table = _rich(given) if isinstance(given, TextTable) else given
    texts = [[_shown(text, encoding) for text in (column.header, *column.cells)] for column in table.columns]
    least = [max(map(cell_len, " ".join(column).split()), default=0) for column in texts]
    most = [max(cell_len(line) for text in column for line in (text or " ").splitlines()) for column in texts]
    room = width - BORDER * len(texts) - 1
    if sum(least) > room:
        return "\n".join(_wrapped(harmless(line), width) for line in _lists(texts, table))
    title, caption = (text and _shown(text, encoding) for text in (table.title, table.caption))
    fitted = Table(title=title, caption=caption)
    for column, (header, *_), size in zip(table.columns, texts, _share(least, most, room), strict=True):
        fitted.add_column(header, justify=column.justify, width=size)
    for cells in list(zip(*texts, strict=True))[1:]:
        fitted.add_row(*cells)
    return fitted


def _shown(text: object, encoding: str) -> str:
    return spelled(harmless(str(text)), encoding)


def _share(least: Sequence[int], most: Sequence[int], room: int) -> list[int]:
    """Widths between these: what is left goes to the columns that are narrowest so far."""
    widths = list(least)
    for _ in range(room - sum(least)):
        wanting = [i for i, width in enumerate(widths) if width < most[i]]
        if not wanting:
            break
        widths[min(wanting, key=lambda i: widths[i])] += 1
    return widths


def _lists(texts: Sequence[Sequence[str]], table: Table) -> list[str]:
    """A block for each row: its first cell, and below it the others under their headers' names."""
    headers, *rows = zip(*texts, strict=True)
    lines = [str(table.title)] if table.title else []
    for first, *cells in rows:
        lines.append(f"{headers[0]}: {first}" if headers[0] else first)
        lines += [f"  {name}: {text}" if name else f"  {text}" for name, text in zip(headers[1:], cells, strict=True)]
    return lines + ([str(table.caption)] if table.caption else [])


def _wrapped(line: str, width: int) -> str:
    return textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _rich(given: TextTable) -> Table:
    table = Table()
    for i, name in enumerate(given.header):
        table.add_column(name, justify="right" if given.numeric(i) else "left")
    for row in given.rows:
        table.add_row(*row)
    return table
