"""Every python block of the README runs, and its commands exist."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

import unsee
from unsee.cli import cli

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^unsee (\S+)(.*)$", README, flags=re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_every_python_block_runs(block, tmp_path, monkeypatch, capsys, demo_features):
    cached = partial(unsee.load_model, cache=unsee.FeatureCache(demo_features))
    monkeypatch.setattr(unsee, "load_model", cached)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize(("name", "rest"), COMMANDS)
def test_every_command_and_option_exists(name, rest):
    command = cli.commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    for option in re.findall(r"(?<=\s)--[a-z-]+", rest.split("#")[0]):
        assert option in options, f"unsee {name} has no {option}"
