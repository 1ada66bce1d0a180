"""A model that answers no plain-text prompt has no "before": in no record, file, picture or page."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from tests.test_tuner import FORGET
from unsee import PromptTuner, load_prompt
from unsee.cli.classify import show_answers
from unsee.cli.console import Console
from unsee.models.black_box import bind
from unsee.report.html import write_report
from unsee.runs.stored import read_run


class Mute:
    """A model that answers contexts alone."""

    def __init__(self, model):
        self.card, self._model = model.card, model

    def bind(self, images, class_names):
        return Deaf(self._model.bind(images, class_names))


class Deaf:
    def __init__(self, bound):
        self.confidences = bound.confidences


@pytest.fixture(scope="module")
def run(model, data, tmp_path_factory):
    out, mute = tmp_path_factory.mktemp("mute") / "run", Mute(model)
    tuner = PromptTuner(FORGET, iterations=2, shots=2).fit(mute, data, out=out)
    tuner.finish(out, bind(mute, data.test))
    return out


def test_the_files_of_a_run_hold_no_answers_before(run):
    result, answers = json.loads((run / "result.json").read_text()), load_file(run / "answers.safetensors")
    assert sorted(answers) == ["answers_after", "answers_served", "labels", "sure_after", "sure_served"]
    assert {record["before"] for record in result["per_class"].values()} == {None}
    assert result["entropy_forgotten"]["before"] is None
    assert (result["zero_shot"], result["label_mask"]) == (None, None)


def test_the_picture_has_no_grey_line_and_does_not_promise_one(run, model, data, tmp_path):
    out = tmp_path / "run"
    tuner = PromptTuner(FORGET, iterations=2, shots=2).fit(model, data, out=out)
    tuner.finish(out, bind(model, data.test))
    mute, plain = (np.asarray(Image.open(folder / "picture.png").convert("RGB")) for folder in (run, out))
    assert mute.shape == plain.shape
    grey = np.array([0x6B, 0x6B, 0x6B])
    assert (mute == grey).all(axis=2).sum() < (plain == grey).all(axis=2).sum() / 2


def test_the_report_shows_what_is_answered_after_alone(run, tmp_path):
    found = read_run(run).confusion()
    assert sorted(found) == ["after", "served"]
    assert found["after"].sum() == found["served"].sum() == 60
    (page, *_) = write_report([run], tmp_path / "report.html")
    text = page.read_text()
    assert "Entropy of the answers to images of the classes to forget: <strong>0." in " ".join(text.split())
    assert "plain prompt (grey)" not in text
    assert "nan" not in text.split("</style>")[1].split("data:image")[0]


def test_a_run_of_an_earlier_version_has_no_answers_before_either(run, tmp_path):
    """They were written as class 0 with a confidence of NaN."""
    old = shutil.copytree(run, tmp_path / "run")
    answers = load_file(old / "answers.safetensors")
    none = {"answers_before": np.zeros(60, np.int64), "sure_before": np.full(60, np.nan, np.float32)}
    save_file(answers | none, old / "answers.safetensors")
    assert "before" not in read_run(old).confusion()


def test_classify_shows_no_answers_before(run, model, data, capsys):
    found = load_prompt(run).classify(Mute(model), data.test.subset([0, 1]))
    assert [answer.before for answer in found] == [None, None]
    show_answers(Console(as_json=True), found)
    assert [each["before"] for each in json.loads(capsys.readouterr().out)["images"]] == [None, None]
    show_answers(Console(), found)
    assert "–" in capsys.readouterr().out
