"""Every method runs on a dual encoder of `transformers`, black-box or white-box, and is resumed as on CLIP."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch

from tests import test_tuner
from tests.models.dual_files import modern, write
from unsee.cli import main
from unsee.methods.learners import trainable_copy
from unsee.models import load_model

pytestmark = modern

CHEAP = [("siglip", "lcs"), ("altclip", "coop")]
PAIRS = [(family, method) for family in ("siglip", "altclip") for method in test_tuner.RUNS]


@pytest.fixture(scope="module", autouse=True)
def silent():
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    made = {}

    def get(family: str):
        if family not in made:
            made[family] = load_model(write(tmp_path_factory.mktemp(family), family))
        return made[family]

    return get


@pytest.mark.parametrize(
    ("family", "method"), [pair if pair in CHEAP else pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS]
)
def test_any_method_interrupted_and_resumed_ends_with_the_same_answers(models, data, tmp_path, family, method):
    model = models(family)
    fingerprint = model.card.fingerprint
    test_tuner.test_any_method_interrupted_and_resumed_ends_with_the_same_answers(model, data, tmp_path, method)
    assert not any(weight.requires_grad for weight in model.tower.tensors())
    assert model.card.fingerprint == fingerprint


@pytest.mark.parametrize("family", ["siglip", pytest.param("altclip", marks=pytest.mark.slow)])
def test_a_trainable_copy_answers_as_the_model_does_and_is_apart_from_it(models, data, family):
    model = models(family)
    copy = trainable_copy(model)
    contexts = np.zeros((1, 2, model.card.width), dtype=np.float32)
    some = data.test.subset(range(4))
    mine, theirs = (m.bind(some, data.class_names).confidences(contexts) for m in (model, copy))
    assert np.allclose(mine, theirs, atol=1e-6)
    with torch.no_grad():
        for weight in (copy.tower.tokens, *copy.tower.tensors()[-2:], next(copy.encoder.model.parameters())):
            weight.add_(1)
    assert np.array_equal(model.bind(some, data.class_names).confidences(contexts), mine)
    assert not np.allclose(copy.bind(some, data.class_names).confidences(contexts), mine, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["siglip", "altclip"])
def test_unsee_compare_runs_every_method(tmp_path, image_folder, capsys, family):
    folder = write(tmp_path / "model", family)
    methods = [name for name in test_tuner.RUNS if name != "scratch-resnet18"]  # it asks the model nothing
    command = ["compare", str(image_folder), "--model", str(folder), "--methods", ",".join(methods), "--seeds", "0"]
    command += ["--out", str(tmp_path / "runs"), "--no-cache", "--set", "iterations=4", "--set", "shots=2", "--json"]
    assert main(command) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(command) == 0, "a second time, nothing is run again"
    assert json.loads(capsys.readouterr().out) == first
    assert {row["method"] for row in first["rows"]} >= set(methods)
