"""What a run will cost is said before it starts."""

from __future__ import annotations

import re

import numpy as np

from tests.test_tuner import Answering
from unsee import PromptTuner
from unsee.cli import main
from unsee.methods.forecast import duration, forecast
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


def test_training_is_timed_by_a_part_of_a_step(model, data, tmp_path, monkeypatch):
    """A step is so many batches to train on, and all images to validate on."""
    from unsee.methods import training

    class Clock:
        """A learner whose work takes a second per image it answers, and ten per batch it trains on."""

        now, batches, answered, trained = 0.0, 7, 0, 0

        def confidences(self, images):
            Clock.now += len(images)
            Clock.answered += len(images)

        def backward(self, batches=None):
            Clock.now += 10 * batches
            Clock.trained += batches

    monkeypatch.setattr(training, "make_learner", lambda task: Clock())
    monkeypatch.setattr(training.time, "perf_counter", lambda: Clock.now)
    task = PromptTuner(FORGET, "scratch-resnet18", iterations=3, shots=2).task(model, data)
    assert training.measure_step(task) == len(task.split.valid) + 10 * Clock.batches
    assert (Clock.answered, Clock.trained) == (16, 1)
    assert forecast([task, task]).seconds == 2 * 3 * (len(task.split.valid) + 70)
    assert Clock.trained == 2, "the same sizes are measured once"


def test_a_model_that_is_not_here_is_asked_nothing(model, data):
    asked = []

    def answer(b, n, c):
        asked.append(b)
        return np.full((b, n, c), 1 / c, np.float32)

    said = forecast([PromptTuner(FORGET, iterations=3, shots=2).task(Answering(model, answer), data)])
    assert not asked
    assert said.untimed == 1
    assert said.sentence().startswith("planned: 60 candidates, 2,400 image queries; 8 contexts of ")


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
    assert main(["forget", *common, "--iterations", "3", "--shots", "2", "--out", str(tmp_path / "run")]) == 0
    err = capsys.readouterr().err
    assert re.match(r"planned: 60 candidates, 2,400 image queries, about \d+ s; 8 contexts of .*\n", err)
    pairs = ["--set", "iterations=2", "--set", "shots=2"]
    arguments = ["compare", *common, "--methods", "lcs,bbt", "--seeds", "0,1", *pairs, "--out", str(tmp_path / "runs")]
    assert main(arguments) == 0
    assert "planned: 4 runs, 160 candidates, 6,400 image queries, about" in capsys.readouterr().err
    assert main(arguments) == 0
    assert "planned" not in capsys.readouterr().err, "nothing is missing"


def test_durations_are_in_words():
    assert [duration(s) for s in (0.2, 40, 600, 7200)] == ["1 s", "40 s", "10 min", "2.0 h"]
