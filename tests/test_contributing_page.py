"""CONTRIBUTING.md holds: its ranks are those of the layer test, and the files and calls it names are there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.test_layers import RANKS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_its_table_of_ranks_is_that_of_the_layer_test():
    rows = re.findall(r"^\| (\d) \| (.+?) \|", PAGE, flags=re.MULTILINE)
    found = {
        int(rank): {name.removesuffix(".py").strip("/") for name in re.findall(r"`(.+?)`", names)}
        for rank, names in rows
    }
    assert found == RANKS


def test_every_file_it_names_is_there():
    files = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|md))`", PAGE))
    assert len(files) > 20
    assert not {file for file in files if not (ROOT / file).is_file() and not (ROOT / "unsee" / file).is_file()}


def test_every_call_it_draws_is_there():
    drawings = re.findall(r"^```\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    calls = {
        call for drawing in drawings for call in re.findall(r"^[│├└ ]*(?:\w+[/.\w]*: )?([\w.]+)", drawing, re.MULTILINE)
    }
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "unsee").rglob("*.py"))
    assert len(calls) > 15
    assert not {call for call in calls if f"def {call.rpartition('.')[2]}(" not in code}
