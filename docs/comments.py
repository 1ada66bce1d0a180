"""Describes fields in the API reference by what stands beside them in the code.

That is the comment behind a field, as in `shots: int  # images per class`, or the description of a pydantic field.
"""

from __future__ import annotations

import ast
import io
import tokenize
from typing import Any

from griffe import Attribute, Docstring, Extension


class FieldComments(Extension):
    """Takes descriptions and comments for docstrings where fields have none."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Called for every field and constant."""
        described = description(attr.source)
        if attr.docstring is None and (text := described or comment(attr.source)):
            attr.docstring = Docstring(text, lineno=attr.lineno, parent=attr)
        if described:
            attr.value = None  # `Field(…)` would say the same once more; defaults are in settings.md


def description(source: str) -> str:
    """The description in `name: Type = Field(…, description="…")`; "" if there is none."""
    for node in ast.walk(ast.parse(source.strip())):
        if isinstance(node, ast.keyword) and node.arg == "description" and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return ""


def comment(source: str) -> str:
    """The comment at the end of this statement, without its mark."""
    tokens = tokenize.generate_tokens(io.StringIO(source.strip()).readline)
    return next((token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT), "")
