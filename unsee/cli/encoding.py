"""Output where the terminal is not UTF-8: signs as ASCII, other characters as escapes, never an error."""

from __future__ import annotations

import codecs
import io
from typing import TextIO

SIGNS = {
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "±": "+-",
    "×": "x",
    "²": "^2",
    "·": "-",
    "→": "->",
    "≥": ">=",
    "≤": "<=",
}
HANDLER = "unsee-signs"


def never_fail(stream: TextIO) -> None:
    """From now on, what this stream's encoding does not have is written in ASCII."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=HANDLER)


def spelled(text: str, encoding: str) -> str:
    """The text as this encoding can show it."""
    return text.encode(encoding, HANDLER).decode(encoding, "surrogateescape")


def is_utf8(stream: TextIO) -> bool:
    """Whether this stream takes every character."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"


def _replace(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)  # streams are only written to
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":  # a byte of a file name that is no text
        return bytes([ord(character) - 0xDC00]), error.start + 1
    return SIGNS.get(character) or character.encode("ascii", "backslashreplace").decode(), error.start + 1


codecs.register_error(HANDLER, _replace)
