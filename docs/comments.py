"""Shows the comment behind a field, as in `shots: int  # images per class`, as its description in the API reference."""

from __future__ import annotations

import io
import tokenize
from typing import Any

from griffe import Attribute, Docstring, Extension


class FieldComments(Extension):
    """Takes comments for docstrings where fields have none."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Called for every field and constant."""
        if attr.docstring is None and (text := comment(attr.source)):
            attr.docstring = Docstring(text, lineno=attr.lineno, parent=attr)


def comment(source: str) -> str:
    """The comment at the end of this statement, without its mark."""
    tokens = tokenize.generate_tokens(io.StringIO(source.strip()).readline)
    return next((token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT), "")
