"""What a command that is called once more, at the wrong folder or with the wrong settings, must leave as it is."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from tests.test_tuner import Answering
from unsee import InputError, ModelError, PromptTuner, RunError
from unsee.audit.audit import audit
from unsee.cli import main
from unsee.errors import RunInUse
from unsee.methods.cost import planned_cost
from unsee.models.black_box import bind
from unsee.runs.folder import RunFolder, read_config
from unsee.runs.identity import describe_run
from unsee.runs.lock import FolderLock
from unsee.runs.picking import pick_prompt

FORGET = ["airplane", "cat"]
SHORT = {"iterations": 4, "shots": 2, "population": 5}
NUMBERS = ("memorize_weight", "forget_weight", "keep_within", "slack", "rate", "difference", "embedding_weight", "tau")


class Counted:
    """A model that answers from elsewhere, and counts what it is asked."""

    def __init__(self, model):
        self.model, self.card, self.asked = model, model.card, 0

    def bind(self, images, class_names):
        return CountedBound(self, self.model.bind(images, class_names), len(images))


class CountedBound:
    def __init__(self, counted, bound, images):
        self.counted, self.bound, self.images = counted, bound, images

    def confidences(self, contexts):
        self.counted.asked += len(contexts) * self.images
        return self.bound.confidences(contexts)

    def zero_shot(self, template):
        self.counted.asked += self.images
        return self.bound.zero_shot(template)


def finish(tuner, data, out):
    return tuner.finish(out, bind(tuner.model_, data.test))


def resume(model, data, out, **longer):
    return PromptTuner.from_config(read_config(out)).resume(model, data, out, **longer)


def files(run):
    return {path.name: path.read_bytes() for path in run.iterdir()}


@pytest.fixture
def finished(model, data, tmp_path):
    finish(PromptTuner(FORGET, **SHORT).fit(model, data, out=tmp_path / "run"), data, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("goal", ["entropy", "mask", "constrained"])
@pytest.mark.parametrize(("method", "validate"), [("lcs", "every"), ("lcs", "generation"), ("zip", "loss")])
def test_everything_asked_is_counted_and_planned(model, data, goal, method, validate):
    if (goal, validate) == ("constrained", "loss"):
        return
    counted = Counted(model)
    tuner = PromptTuner(FORGET, method, goal=goal, validate=validate, **(SHORT | {"population": 4}))
    planned = tuner.task(counted, data)
    tuner.fit(counted, data)
    assert tuner.ledger_.image_queries == counted.asked
    assert planned_cost(planned).image_queries == counted.asked


@pytest.mark.parametrize("method", ["zero-shot", "label-mask", "uniform-gate"])
def test_what_a_rule_asks_is_counted(model, data, method):
    counted = Counted(model)
    assert PromptTuner(FORGET, method, shots=2).fit(counted, data).ledger_.image_queries == counted.asked == 20


@pytest.mark.parametrize("settings", [{}, {"goal": "mask"}, {"goal": "constrained"}, {"validate": "loss"}])
def test_a_finished_run_is_resumed_without_one_question(model, data, tmp_path, settings):
    counted = Counted(model)
    tuner = PromptTuner(FORGET, **(SHORT | settings)).fit(counted, data, out=tmp_path / "run")
    result = finish(tuner, data, tmp_path / "run")
    counted.asked = 0
    again = resume(counted, data, tmp_path / "run")
    assert finish(again, data, tmp_path / "run") == result
    assert counted.asked == 0
    assert (again.ledger_, again.valid_, again.warnings_) == (tuner.ledger_, tuner.valid_, tuner.warnings_)
    assert np.array_equal(again.contexts_, tuner.contexts_)


def test_a_run_that_used_up_its_budget_is_resumed_without_one_question(model, data, tmp_path):
    counted = Counted(model)
    tuner = PromptTuner(FORGET, "lcs", budget=13, **SHORT).fit(counted, data, out=tmp_path / "run")
    counted.asked = 0
    again = resume(counted, data, tmp_path / "run")
    assert counted.asked == 0
    assert again.ledger_ == tuner.ledger_
    assert again.warnings_ == tuner.warnings_


def test_a_warning_is_kept_for_the_run_that_is_resumed(data, model, tmp_path):
    def uniform(b, n, c):
        return np.full((b, n, c), 1 / c, np.float32)

    class Unknowing(Answering):
        def bind(self, images, class_names):
            bound = super().bind(images, class_names)
            type(bound).zero_shot = lambda _, template: uniform(1, len(images), len(class_names))[0]
            return bound

    unknowing = Unknowing(model, uniform)
    tuner = PromptTuner(FORGET, "lcs", budget=13, **SHORT).fit(unknowing, data, out=tmp_path / "run")
    assert "hardly knows these classes" in tuner.warnings_[0]
    assert resume(unknowing, data, tmp_path / "run", budget=20).warnings_ == tuner.warnings_


@pytest.mark.parametrize("versions", [{}, {"torch": "2.1.0"}])
def test_a_finished_and_audited_run_is_resumed_as_it_is(model, data, finished, versions):
    audit(finished, model, data, parts=())
    config = json.loads((finished / "config.json").read_text())
    config["versions"] |= versions
    (finished / "config.json").write_text(json.dumps(config))
    before = files(finished)
    finish(resume(model, data, finished), data, finished)
    assert files(finished) == before
    longer = resume(model, data, finished, iterations=5)
    assert not (finished / "audit.json").exists(), "it is of a shorter run"
    assert finish(longer, data, finished).audit is None


def test_an_audit_waits_for_whoever_writes_to_the_run(model, data, finished):
    lock = FolderLock(finished)
    threading.Timer(0.5, lock.release).start()
    started = time.monotonic()
    seen = []
    threading.Timer(0.3, lambda: seen.append((finished / "audit.json").exists())).start()
    audit(finished, model, data, parts=())
    assert time.monotonic() - started > 0.4
    assert seen == [False]
    assert (finished / "audit.json").exists()


def test_a_picked_prompt_is_not_resumed(model, data, finished, model_folder, capsys):
    _, picked = pick_prompt(finished, acc_mem=0.0)
    before = files(picked)
    with pytest.raises(RunError, match=f"was picked from {finished}; continue that run: unsee resume {finished}"):
        resume(model, data, picked)
    assert main(["resume", str(picked), "--model", str(model_folder)]) == 1
    assert capsys.readouterr().err.startswith(f"error: {picked} holds a prompt that was picked from")
    assert files(picked) == before
    PromptTuner(FORGET, **SHORT).fit(model, data, out=picked, overwrite=True)
    assert not (picked / "pick.json").exists()


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_settings_are_finite_numbers(model, data, finished, name, value):
    before = files(finished)
    with pytest.raises(InputError, match=f"setting {name} must be a finite number, not {value}"):
        PromptTuner(FORGET, **(SHORT | {name: value})).fit(model, data, out=finished, overwrite=True)
    assert files(finished) == before


def test_a_run_that_fails_in_its_first_evaluation_leaves_the_one_before_it(model, data, finished):
    before = files(finished)
    nonsense = Answering(model, lambda b, n, c: np.full((b, n, c), np.nan, np.float32))
    with pytest.raises(ModelError, match="NaN"):
        PromptTuner(FORGET, **SHORT).fit(nonsense, data, out=finished, overwrite=True)
    assert {name: kept for name, kept in files(finished).items() if name != ".lock"} == {
        name: kept for name, kept in before.items() if name != ".lock"
    }


def test_two_never_hold_one_folder_however_often_others_withdraw(model, data, tmp_path):
    """Each takes the folder, finds itself alone, and leaves without having written anything."""
    config = describe_run(PromptTuner(FORGET, **SHORT).task(model, data))
    inside, together, end = [], [], time.monotonic() + 1.0

    def work(me):
        while time.monotonic() < end:
            try:
                run = RunFolder.create(tmp_path / "run", config)
            except RunInUse:
                continue
            inside.append(me)
            time.sleep(0)
            if inside != [me]:
                together.append(list(inside))
            inside.remove(me)
            run.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not together
    assert list(tmp_path.iterdir()) == []
