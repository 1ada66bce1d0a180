"""The audit speaks the words of the field: leaks, removed, rounded, label, accuracy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import unsee

PACKAGE = Path(unsee.__file__).parent
CODE = [path for folder in ("audit", "answers") for path in sorted((PACKAGE / folder).glob("*.py"))]
FILES = [*(path for path in CODE if path.stem != "probes"), PACKAGE.parent / "docs" / "audit.md"]
OLD = re.compile(r"\b(tells|told|struck|striking)\b|served as\b|named right", re.IGNORECASE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_sentence_has_to_be_decoded(path):
    text = path.read_text(encoding="utf-8")
    lines = re.sub(r"### Intervals.*?\n### ", "", text, flags=re.DOTALL).splitlines()
    assert not [line.strip() for line in lines if OLD.search(line)]
