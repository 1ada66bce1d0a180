"""A run saved afterwards continues like the run it was saved from, wherever that was tuned."""

from __future__ import annotations

import json
import shutil
import signal
import threading

import numpy as np
import pytest

from unsee import PromptTuner, RunError
from unsee.methods import saving, training
from unsee.runs.checkpoint import state_generation
from unsee.runs.folder import read_config

FORGET = ["airplane", "cat"]
SHORT = {"iterations": 6, "shots": 2, "population": 1}


class Killed(Exception):
    pass


def raise_at(number, error):
    def watch(generation, settings):
        if generation.number == number:
            raise error

    return watch


def resume(model, data, out, **longer):
    return PromptTuner.from_config(read_config(out)).resume(model, data, out, **longer)


def losses(tuner):
    return [float(generation.losses[0]) for generation in tuner.history_]


@pytest.mark.parametrize("method", ["coop", "finetune"])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_tuned_in_a_folder_and_saved_in_another_continues_from_there(model, data, tmp_path, method, resumed):
    whole = PromptTuner(FORGET, method, **SHORT).fit(model, data)
    tuner = PromptTuner(FORGET, method, budget=2 if resumed else 4, **SHORT).fit(model, data, out=tmp_path / "run")
    if resumed:
        tuner = resume(model, data, tmp_path / "run", budget=4)
    tuner.save(tmp_path / "saved")
    shutil.rmtree(tmp_path / "run")
    again = resume(model, data, tmp_path / "saved", budget=6)
    assert losses(again) == losses(whole)
    assert again.ledger_.image_queries == whole.ledger_.image_queries
    assert again.predict(data.test) == whole.predict(data.test)


def test_a_run_whose_folder_has_gone_on_is_not_saved_half(model, data, tmp_path):
    tuner = PromptTuner(FORGET, "coop", budget=3, **SHORT).fit(model, data, out=tmp_path / "run")
    resume(model, data, tmp_path / "run", budget=5)
    with pytest.raises(RunError, match="has changed since"):
        tuner.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.fixture
def slow_disk(monkeypatch):
    """Saving takes so long that it is not worth it for the rest of the run."""
    monkeypatch.setattr(saving, "SHARE", 1e-9)


def test_a_kill_loses_what_was_not_worth_saving_and_ctrl_c_loses_nothing(model, data, tmp_path, slow_disk):
    whole = PromptTuner(FORGET, "finetune", **SHORT).fit(model, data)
    for out, error, kept in ((tmp_path / "killed", Killed, 1), (tmp_path / "stopped", KeyboardInterrupt, 4)):
        with pytest.raises(error):
            PromptTuner(FORGET, "finetune", **SHORT).fit(model, data, out=out, watch=raise_at(4, error))
        assert state_generation(out) == kept
        assert losses(resume(model, data, out)) == losses(whole)


@pytest.mark.parametrize("phase", ["confidences", "backward"])
@pytest.mark.parametrize("method", ["finetune", "scratch-resnet18"])
def test_ctrl_c_within_a_step_keeps_all_steps_before_it(model, data, tmp_path, monkeypatch, slow_disk, phase, method):
    from tests import tiny

    settings = dict(SHORT)
    if method == "scratch-resnet18":
        settings |= {"weights": str(tiny.write_resnet(tmp_path / "weights")), "image_size": 32}
    whole = PromptTuner(FORGET, method, **settings).fit(model, data)
    make = training.make_learner

    def impatient(task):
        learner, calls = make(task), []
        work = getattr(learner, phase)

        def third_time(*given, **more):
            calls.append(1)
            found = work(*given, **more)  # the step has changed running means by now
            if len(calls) == 3:
                raise KeyboardInterrupt
            return found

        setattr(learner, phase, third_time)
        return learner

    with monkeypatch.context() as patches:
        patches.setattr(training, "make_learner", impatient)
        with pytest.raises(KeyboardInterrupt):
            PromptTuner(FORGET, method, **settings).fit(model, data, out=tmp_path / "run")
    assert state_generation(tmp_path / "run") == 2
    again = resume(model, data, tmp_path / "run")
    assert losses(again) == losses(whole)
    assert again.predict(data.test) == whole.predict(data.test)


@pytest.fixture
def ctrl_c():
    """Ctrl-C as a terminal has it: a process in the background may have been told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_end_of_what_must_not_be_cut(ctrl_c):
    done = []

    def work():
        with saving.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all of it"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_where_ctrl_c_is_ignored_it_stays_so(ctrl_c):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with saving.uninterrupted():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_threads_may_train_too():
    done = []

    def work():
        with saving.uninterrupted():
            done.append("all of it")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == ["all of it"]


def test_saving_takes_a_tenth_of_the_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    clock, saved = saving.SavingClock(), []
    for step in range(100):
        now[0] += 1.0  # seconds that a step takes
        if clock.due:
            saved.append(step)
            with clock.saving():
                now[0] += 0.5  # and saving
    assert saved[0] == 0
    assert set(np.diff(saved)) == {5}, "0.5 s of every 5.5"


def test_the_journal_of_a_saved_run_is_that_of_its_folder(model, data, tmp_path):
    tuner = PromptTuner(FORGET, "coop", **SHORT).fit(model, data, out=tmp_path / "run")
    tuner.save(tmp_path / "saved")
    for name in ("checkpoint.jsonl", "journal.jsonl", "checkpoint.safetensors", "front.jsonl"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["forget"] == FORGET
