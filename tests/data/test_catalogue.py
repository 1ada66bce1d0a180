"""What `unsee data` says of the data sets known by name."""

from __future__ import annotations

import json
import os
import sys

import pytest

import unsee
from unsee import DataError
from unsee.cli import main
from unsee.data import NAMED, list_data_sets
from unsee.data.paper_names import IMAGENET30

NAMES = [
    "cifar10",
    "cifar10-batch5",
    "cifar100",
    "cifar100-tenth",
    "cub200",
    "cub200-half",
    "imagenet30",
    "imagenet",
    "imagenet30-six",
    "imagenet-six",
    "tiny30",
    "tiny200",
]
FOLDERS = {"cifar10-batch5": "cifar10", "cifar100-tenth": "cifar100"} | dict.fromkeys(
    ["tiny30", "tiny200"], "tiny-imagenet"
)
FOLDERS |= {"cub200-half": "cub200"} | dict.fromkeys(["imagenet30-six", "imagenet-six"], "imagenet-six")


def test_every_set_says_where_it_was_looked_for_and_how_to_get_it(tmp_path, capsys):
    assert main(["data", "--data-dir", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["data"]}
    assert list(rows) == ["demo", *NAMES] == ["demo", *NAMED]
    for name in NAMES:
        assert rows[name]["found"] is False
        assert rows[name]["where"] == str(tmp_path / FOLDERS.get(name, name))
        assert rows[name]["page"].startswith("https://")
        assert "--data-dir" in rows[name]["get"]
    for name in set(NAMES) - {"cifar10-batch5", "cifar100-tenth"}:
        for text in (rows[name]["page"], *rows[name]["archives"], *rows[name]["archives"].values()):
            assert text in rows[name]["get"]
    assert main(["data", "--data-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in NAMES)
    assert "unsee data show NAME" in text
    for arguments in (["--data-dir", str(tmp_path), "show", "cub200"], ["show", "cub200", "--data-dir", str(tmp_path)]):
        assert main(["data", *arguments]) == 0
        text = capsys.readouterr().out
        assert f"cub200: not found, {tmp_path / 'cub200'}\n    CUB_200_2011.tgz (md5 97eceeb196236b17" in text
    for arguments in (["--json", "show", "cub200"], ["show", "cub200", "--json"]):
        assert main(["data", *arguments]) == 0
        assert json.loads(capsys.readouterr().out)["name"] == "cub200"
    assert main(["data", "show", "cub20"]) == 1
    assert "did you mean 'cub200'" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_a_set_that_is_missing_is_one_line_with_the_way_to_it(name, tmp_path):
    with pytest.raises(DataError, match=rf"{name} is not in .*get it with: ") as caught:
        unsee.load_data(name, data_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_set_that_is_there_is_found_without_listing_it(tmp_path):
    for name in IMAGENET30:
        for part in ("one_class_train", "one_class_test"):
            (tmp_path / "imagenet30" / part / name).mkdir(parents=True)
    for folder in ("cifar100/train", "cifar100/test", "imagenet/train/n01440764", "imagenet/val/n01440764"):
        (tmp_path / folder).mkdir(parents=True)
    scanned = []
    watching = True
    sys.addaudithook(lambda event, given: watching and event == "os.scandir" and scanned.append(os.fspath(given[0])))
    found = {row["name"]: row.get("form") for row in list_data_sets(tmp_path)}
    watching = False
    there = ["cifar100", "cifar100-tenth", "imagenet30", "imagenet"]
    assert found == dict.fromkeys(["demo", *NAMES]) | dict.fromkeys(there, "folders")
    assert not [folder for folder in scanned if "train" in os.path.relpath(folder, tmp_path)]
