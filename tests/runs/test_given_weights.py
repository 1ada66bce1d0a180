"""Weights that a run starts from belong to what it is: by their content, not by where they are."""

from __future__ import annotations

import json
import shutil

import pytest

from tests import tiny
from tests.test_tuner import FORGET
from unsee import ModelError, PromptTuner, RunError
from unsee.runs.folder import read_config
from unsee.runs.identity import describe_run, folder_key, identify

SHORT = {"shots": 2, "iterations": 2, "image_size": 32}


@pytest.fixture
def weights(tmp_path):
    return tiny.write_resnet(tmp_path / "weights")


def tuner(weights, **more):
    return PromptTuner(FORGET, "scratch-resnet18", weights=str(weights), **(SHORT | more))


def key(model, data, weights):
    return folder_key(describe_run(tuner(weights).task(model, data)))


def test_another_file_under_the_same_path_is_another_run(model, data, weights, tmp_path):
    tuner(weights).fit(model, data, out=tmp_path / "run")
    before = key(model, data, weights)
    shutil.rmtree(weights)
    tiny.write_resnet(weights, seed=1)
    assert key(model, data, weights) != before
    with pytest.raises(RunError, match=r"weights was 'sha256:[0-9a-f]{12}…', now it is 'sha256:"):
        tuner(weights, iterations=3).resume(model, data, tmp_path / "run")


def test_the_same_files_elsewhere_are_the_same_run(model, data, weights, tmp_path):
    tuner(weights).fit(model, data, out=tmp_path / "run")
    moved = weights.rename(tmp_path / "moved")
    (moved / "README.md").write_text("not read by anyone")
    assert key(model, data, moved) == folder_key(read_config(tmp_path / "run"))
    again = tuner(moved, iterations=3).resume(model, data, tmp_path / "run")
    assert again.ledger_.generations == 3
    assert read_config(tmp_path / "run").settings.weights == str(moved)


def test_how_images_are_prepared_for_the_weights_counts_too(model, data, weights):
    before = key(model, data, weights)
    (weights / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.1, 0.2, 0.3]}))
    assert key(model, data, weights) != before


def test_a_config_of_an_earlier_version_is_compared_by_path(model, data, weights, tmp_path):
    run, path = tmp_path / "run", tmp_path / "run" / "config.json"
    tuner(weights).fit(model, data, out=run)
    old = json.loads(path.read_text())
    assert len(old.pop("weights")) == 64
    path.write_text(json.dumps(old))
    assert identify(read_config(run)).settings["weights"] == str(weights)
    other = shutil.copytree(weights, tmp_path / "other")
    with pytest.raises(RunError, match="cannot be resumed as another run: weights was"):
        tuner(other, iterations=3).resume(model, data, run)
    tuner(weights, iterations=3).resume(model, data, run)
    assert len(json.loads(path.read_text())["weights"]) == 64


def test_configs_without_weights_are_what_they_were(model, data, tmp_path):
    PromptTuner(FORGET, iterations=2, shots=2).fit(model, data, out=tmp_path / "run")
    assert "weights" not in json.loads((tmp_path / "run" / "config.json").read_text())
    assert identify(read_config(tmp_path / "run")).settings["weights"] == ""


def test_weights_that_are_not_there_are_one_line(model, data, tmp_path):
    with pytest.raises(ModelError, match="wanted a folder with config"):
        tuner(tmp_path / "nothing").fit(model, data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
