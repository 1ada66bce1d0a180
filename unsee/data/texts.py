"""Index files of data sets: plain text, or refused in one line."""

from __future__ import annotations

from pathlib import Path

from unsee.errors import DataError


def read_text(path: Path) -> str:
    """The whole file; one that is missing or no text is refused by its name."""
    try:
        return path.read_text(encoding="utf-8-sig")  # a spreadsheet puts a mark before the text
    except UnicodeDecodeError:
        raise DataError(f"{path}: damaged, it is no text") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
