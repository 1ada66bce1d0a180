"""What a run will cost is said before it starts."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from tests.test_tuner import Answering
from unsee import PromptTuner
from unsee.cli import main
from unsee.methods.forecast import duration, forecast
from unsee.methods.learners import TRAINED, CopyLearner
from unsee.methods.training import measure_step
from unsee.models.local import LocalBound

FORGET = ["airplane", "cat"]


def test_the_forecast_counts_what_the_runs_then_spend(model, data):
    methods = ("lcs", "coop", "zero-shot", "finetune")
    tuners = [PromptTuner(FORGET, method, iterations=3, shots=2) for method in methods]
    said = forecast(tuner.task(model, data) for tuner in tuners)
    ledgers = [tuner.fit(model, data).ledger_ for tuner in tuners]
    assert said.runs == 4
    assert said.candidates == sum(ledger.candidates for ledger in ledgers)
    assert said.image_queries == sum(ledger.image_queries for ledger in ledgers)
    assert said.untimed == 0
    assert said.seconds > 0


def watch_learner(monkeypatch):
    """What a learner is asked, and how long it really takes: (images or batches, seconds) of each call."""
    answered, trained = [], []
    answer, train = CopyLearner.confidences, CopyLearner.backward

    def confidences(learner, images):
        started = time.perf_counter()
        found = answer(learner, images)
        answered.append((len(images), time.perf_counter() - started))
        return found

    def backward(learner, batches=None):
        started = time.perf_counter()
        found = train(learner, batches)
        trained.append((batches, time.perf_counter() - started))
        return found

    monkeypatch.setattr(CopyLearner, "confidences", confidences)
    monkeypatch.setattr(CopyLearner, "backward", backward)
    return answered, trained


def test_training_is_timed_by_a_part_of_a_step(model, data, monkeypatch):
    """A step is all images to validate on, and so many batches to train on; a few and one are measured."""
    answered, trained = watch_learner(monkeypatch)
    task = PromptTuner(FORGET, "coop-params", iterations=3, shots=4).task(model, data)
    said = measure_step(task)
    assert [images for images, _ in answered] == [8, 8], "the first time is slower, and not counted"
    assert [batches for batches, _ in trained] == [1]
    (_, _), (_, to_answer) = answered
    (_, to_train), *_ = trained
    batches = -(-40 // TRAINED)
    assert said == pytest.approx(to_answer * 40 / 8 + to_train * batches, rel=0.03)


def test_runs_of_the_same_sizes_are_timed_once(model, data, monkeypatch):
    answered, trained = watch_learner(monkeypatch)
    task = PromptTuner(FORGET, "coop-params", iterations=3, shots=4).task(model, data)
    said = forecast([task, task])
    assert (len(answered), len(trained)) == (2, 1)
    step = answered[1][1] * 40 / 8 + trained[0][1] * -(-40 // TRAINED)
    assert said.seconds == pytest.approx(2 * 3 * step, rel=0.03)
    other = PromptTuner(FORGET, "coop-params", iterations=3, shots=2).task(model, data)
    forecast([task, other])
    assert len(trained) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("method", "iterations"), [("lcs", 60), ("coop-params", 15)])
def test_a_run_takes_about_as_long_as_was_said(model, data, method, iterations):
    tuner = PromptTuner(FORGET, method, iterations=iterations, shots=4)
    said = forecast([tuner.task(model, data)]).seconds
    took = tuner.fit(model, data).history_[-1].seconds
    assert took / 4 < said < 4 * took


def test_a_model_that_is_not_here_is_asked_nothing(model, data):
    asked = []

    def answer(b, n, c):
        asked.append(b)
        return np.full((b, n, c), 1 / c, np.float32)

    said = forecast([PromptTuner(FORGET, "lcs", iterations=3, shots=2).task(Answering(model, answer), data)])
    assert not asked
    assert said.untimed == 1
    assert said.sentence().startswith("planned: 60 candidates, 2,440 image queries; 8 contexts of "), "40 are plain"


def test_a_slow_model_is_measured_on_single_candidates(model, data, monkeypatch):
    task, asked = PromptTuner(FORGET, "cbbt", iterations=1, shots=2).task(model, data), []
    answer = LocalBound.log_confidences

    def slow(bound, contexts):
        asked.append(len(contexts))
        return answer(bound, contexts)

    monkeypatch.setattr(LocalBound, "log_confidences", slow)
    monkeypatch.setattr("unsee.methods.forecast.WAIT", 0.0)
    assert forecast([task]).seconds > 0
    assert asked == [1, 1]


def test_forget_and_compare_say_it_first(model_folder, image_folder, tmp_path, capsys):
    common = [str(image_folder), "--model", str(model_folder), "--forget", "cat", "--no-cache"]
    assert (
        main(
            ["forget", *common, "--method", "lcs", "--iterations", "3", "--shots", "2", "--out", str(tmp_path / "run")]
        )
        == 0
    )
    err = capsys.readouterr().err
    assert re.match(r"planned: 60 candidates, 2,440 image queries, about \d+ s; 8 contexts of .*\n", err)
    pairs = ["--set", "iterations=2", "--set", "shots=2"]
    arguments = ["compare", *common, "--methods", "lcs,bbt", "--seeds", "0,1", *pairs, "--out", str(tmp_path / "runs")]
    assert main(arguments) == 0
    assert "planned: 4 runs, 160 candidates, 6,560 image queries, about" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "planned" not in capsys.readouterr().err, "nothing is missing"


def test_durations_are_in_words():
    assert [duration(s) for s in (0.2, 40, 600, 7200)] == ["1 s", "40 s", "10 min", "2.0 h"]
