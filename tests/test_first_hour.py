"""docs/first-hour.md works as it is written: every block is run, in its order, in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from unsee.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "first-hour.md"
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
SETUP = BLOCKS[0][1]


def follow(monkeypatch, folder, without=()):
    """Runs every block but the set-up, whose commands make the environment that this test runs in."""
    monkeypatch.chdir(folder)
    ran = []
    for kind, text in BLOCKS[1:]:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), {})
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "unsee", line
            if arguments[0] not in without:
                assert main(arguments) == 0, line
                ran.append(arguments[0])
    return ran


def test_its_set_up_is_that_of_the_makefile():
    makefile = (PAGE.parent.parent / "Makefile").read_text(encoding="utf-8")
    assert SETUP.splitlines()[0] == "make demo"
    assert "\ndemo:" in makefile
    assert ".venv/bin" in SETUP


def test_every_block_works_but_the_audit(monkeypatch, tmp_path, capsys):
    ran = follow(monkeypatch, tmp_path, without=["audit"])
    assert ran == ["compare", "forget", "classify", "evaluate", "report", "resume", "pick"]
    assert (tmp_path / "pets.html").stat().st_size > 10_000
    assert (tmp_path / "runs" / "careful" / "prompt.safetensors").is_file()
    assert "photos/cat/b-013.png" in capsys.readouterr().out


@pytest.mark.slow
def test_every_block_works(monkeypatch, tmp_path):
    assert "audit" in follow(monkeypatch, tmp_path)
    assert (tmp_path / "runs" / "pets" / "result.json").is_file()
