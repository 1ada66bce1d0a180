"""`unsee runs`: every run below a folder, its state, scores and cost."""

from __future__ import annotations

import json
import shutil

import pytest

from unsee.cli import main
from unsee.runs.lock import FolderLock


@pytest.fixture(scope="module")
def made(tmp_path_factory, model_folder, image_folder):
    """A folder with a finished, an interrupted and a damaged run, and a prompt picked from the first."""
    root = tmp_path_factory.mktemp("made") / "runs"
    options = ["--forget", "cat,dog", "--iterations", 3, "--shots", 2, "--model", model_folder, "--no-cache"]
    finished = root / "deep" / "finished"
    assert main([str(a) for a in ("forget", image_folder, *options, "--out", finished)]) == 0
    assert main(["pick", str(finished), "--acc-mem", "0"]) == 0
    assert main(["pick", str(finished), "--acc-mem", "0", "--out", str(root / "picked-elsewhere")]) == 0
    interrupted = shutil.copytree(finished, root / "interrupted")
    (interrupted / "result.json").unlink()
    lines = (interrupted / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (interrupted / "journal.jsonl").write_bytes(b"".join(lines[:2]) + b'{"generation": 3, "cand')
    damaged = shutil.copytree(finished, root / "damaged")
    (damaged / "config.json").write_text("{")
    return root


@pytest.fixture
def listing(capsys, made):
    def call(*options):
        assert main(["runs", str(made), "--json", *options]) == 0
        return {row["folder"].removeprefix(f"{made}/"): row for row in json.loads(capsys.readouterr().out)["runs"]}

    return call


def test_every_run_is_listed_with_its_state_scores_and_cost(listing, made):
    found = listing()
    assert list(found) == ["damaged", "deep/finished", "interrupted"]
    result = json.loads((made / "deep" / "finished" / "result.json").read_text())
    row = found["deep/finished"]
    assert row["state"] == "finished"
    assert (row["method"], row["seed"], row["forget"]) == ("guided", 0, ["cat", "dog"])
    assert row["h_prompt_alone"] == result["test"]["h"]
    assert row["h_as_served"] == result["served"]["scores"]["h"]
    assert row["image_queries"] == result["ledger"]["image_queries"]
    row = found["interrupted"]
    assert (row["state"], row["generation"], row["generations"]) == ("interrupted", 2, 3)
    assert row["h_prompt_alone"] is None
    planned = result["ledger"]["image_queries"]
    assert 0 < row["image_queries"] < planned
    assert row["image_queries_left"] > 0
    assert found["damaged"]["state"] == "damaged"
    assert "config.json" in found["damaged"]["problem"]


def test_a_run_that_another_process_writes_to_is_running(listing, made):
    with FolderLock(made / "interrupted"):
        assert listing()["interrupted"]["state"] == "running"
    assert listing()["interrupted"]["state"] == "interrupted"


@pytest.mark.parametrize(("key", "first"), [("h", "deep/finished"), ("state", "damaged"), ("queries", "interrupted")])
def test_runs_can_be_sorted(listing, key, first):
    assert next(iter(listing("--sort", key))) == first


def test_the_table_says_it_in_words(made, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["runs", str(made)]) == 0
    text = capsys.readouterr().out
    for words in (str(made / "deep" / "finished"), "generation 2 of 3", "cat, dog", "prompt alone", "as served"):
        assert words in text
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["runs", str(made)]) == 0
    assert str(made / "deep" / "finished") in capsys.readouterr().out


def test_a_run_folder_lists_itself(made, capsys):
    assert main(["runs", str(made / "interrupted"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 1


def test_where_there_are_no_runs_it_says_how_to_make_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["runs"]) == 0
    assert "unsee forget" in capsys.readouterr().err
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"runs": []}
    assert main(["runs", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
