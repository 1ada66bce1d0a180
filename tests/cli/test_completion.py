"""What a shell completes: data sets, classes, run folders, methods."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from unsee.cli import cli


def completed(*words: str) -> list[str]:
    *before, last = words
    found = ShellComplete(cli, {}, "unsee", "_UNSEE_COMPLETE").get_completions(before, last)
    return [item.value for item in found]


def test_data_sets_and_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dermatology" / "train").mkdir(parents=True)
    assert completed("forget", "de") == ["demo", "dermatology/"]
    assert completed("forget", "dermatology/") == ["dermatology/train/"]
    assert completed("compare", "cifar100") == ["cifar100", "cifar100-tenth"]
    assert completed("data", "show", "cu") == ["cub200", "cub200-half"]


def test_classes_of_the_data(image_folder):
    assert completed("forget", "demo", "--forget", "d") == ["deer", "dog"]
    assert completed("forget", "demo", "--forget", "cat,d") == ["cat,deer", "cat,dog"]
    assert completed("forget", str(image_folder), "--forget", "airplane,tr") == ["airplane,truck"]
    assert completed("forget", "nothing", "--forget", "d") == []
    assert completed("forget", "--forget", "d") == []


def test_names_with_spaces_are_completed_as_one_word(tmp_path, monkeypatch):
    for name in ("polar bear", "panda"):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "zoo" / name / f"{i}.png").write_bytes(b"")
    assert completed("forget", str(tmp_path / "zoo"), "--forget", "po") == ["polar_bear"]


@pytest.mark.parametrize("command", ["resume", "evaluate", "classify", "audit", "pick", "report"])
def test_run_folders(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    for name in ("runs/pets", "runs/deep/cats"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    assert completed(command, "") == ["runs/deep/cats", "runs/pets"]
    assert completed(command, "runs/p") == ["runs/pets"]


def test_methods_models_and_experiments():
    assert completed("forget", "demo", "--method", "bbt") == ["bbt", "bbt-sep", "bbt-vkd"]
    assert completed("compare", "demo", "--methods", "lcs,zi") == ["lcs,zip"]
    assert "mini" in completed("forget", "demo", "--model", "m")
    assert completed("reproduce", "table-ma") == ["table-main"]
    assert "float16" in completed("forget", "demo", "--dtype", "fl")


def test_the_command_answers_a_shell():
    words = {"_UNSEE_COMPLETE": "bash_complete", "COMP_WORDS": "unsee forget demo --forget cat,d", "COMP_CWORD": "4"}
    command = [sys.executable, "-m", "unsee"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | words, check=True)
    assert done.stdout.split() == ["plain,cat,deer", "plain,cat,dog"]
