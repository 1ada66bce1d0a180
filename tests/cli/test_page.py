"""The page of commands in the docs is that of the commands."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from pathlib import Path

import pytest

from unsee.cli import COMMANDS

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_of_commands_is_up_to_date():
    if tuple(map(int, version("click").split(".")[:2])) < (8, 2):
        pytest.skip("click before 8.2 words some defaults otherwise")
    spec = importlib.util.spec_from_file_location("docs_cli_page", DOCS / "cli_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    published = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert published == module.page(), "run: python docs/cli_page.py"
    assert all(f"\n## unsee {name}\n" in published for name in COMMANDS)
