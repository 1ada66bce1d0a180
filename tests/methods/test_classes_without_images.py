"""Forgotten classes that there are no images of: what is learned from, what is chosen by, and what is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.test_tuner import FORGET
from unsee import InputError, PromptTuner
from unsee.data.images import ArraySource
from unsee.methods.forecast import forecast
from unsee.methods.task import make_task

SHORT = {"iterations": 6, "shots": 4, "population": 8}


def unseen(model, data, count, share, method="lcs+c-emb"):
    task = make_task(model, data, data.class_names[:count], method, "tuned", 0, {"shots": 2, "with_images": share})
    return np.flatnonzero(task.unseen).tolist()


def test_of_several_forgotten_classes_one_at_least_has_images(model, data):
    assert [unseen(model, data, count, 0.5) for count in (1, 2, 3, 4)] == [[0], [1], [2], [2, 3]]
    assert [unseen(model, data, count, 0.1) for count in (1, 2, 3, 4)] == [[0], [1], [1, 2], [1, 2, 3]]
    assert [unseen(model, data, count, 0.0) for count in (1, 2)] == [[0], [0, 1]]
    assert [unseen(model, data, count, 0.9) for count in (1, 2, 3)] == [[], [], []]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_combination_returns_a_candidate_that_was_searched_for(model, data, count):
    said = []
    tuner = PromptTuner(data.class_names[:count], "lcs+c-emb", **SHORT).fit(model, data, say=said.append)
    best = min((loss, g.number, i) for g in tuner.history_ for i, loss in enumerate(g.losses))
    if count == 1:
        assert tuner.settings_.validate == "loss"
        assert tuner.run_.recorder.best.merit == -best[0], "chosen by loss: the lowest of all candidates"
        assert best[1:] != (1, 0), "else the first candidate would pass for the best"
        assert len([text for text in tuner.warnings_ if "no image of a forgotten class" in text]) == 1
        assert said[0] == f"warning: {tuner.warnings_[0]}"
        assert np.bincount(data.train.labels[tuner.task(model, data).split_rows[1]]).tolist() == [4] * 10
    else:
        assert tuner.settings_.validate == "every"
        assert not [text for text in said if "no image of a forgotten class" in text]
        assert tuner.valid_.h > 0
        assert tuner.run_.recorder.best.merit == tuner.valid_.h


def test_a_run_chosen_by_loss_is_resumed_to_the_same_prompt(model, data, tmp_path):
    given = SHORT | {"with_images": 0.0}
    whole = PromptTuner(["cat", "dog"], "lcs+c-emb", **given).fit(model, data)
    PromptTuner(["cat", "dog"], "lcs+c-emb", **given, budget=21).fit(model, data, out=tmp_path / "run")
    again = PromptTuner(["cat", "dog"], "lcs+c-emb", **given).resume(model, data, tmp_path / "run", budget=48)
    assert np.allclose(again.contexts_, whole.contexts_, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "given"), [("lcs", {}), ("bbt", {}), ("coop", {"population": 1}), ("coop-params", {"population": 1})]
)
def test_nothing_to_forget_by_is_one_line(model, data, method, given):
    with pytest.raises(
        InputError, match=r"no image of a forgotten class to learn from, and .* no loss on class embeddings"
    ):
        PromptTuner(["cat"], method, **(SHORT | given), with_images=0.0).fit(model, data)


def test_a_choice_by_scores_needs_images_to_score(model, data):
    with pytest.raises(InputError, match=r"slack=0\.1 chooses by validation scores"):
        PromptTuner(["cat"], "lcs+c-emb", **SHORT, slack=0.1).fit(model, data)


@pytest.mark.parametrize("method", ["coop", "coop-params", "finetune", "lcs"])
def test_no_method_learns_from_images_it_is_said_not_to_have(model, data, method):
    """Other pixels in the images of the unseen classes change nothing."""
    given = {"shots": 4, "iterations": 3, "with_images": 0.5} | ({"population": 4} if method == "lcs" else {})
    pixels = np.stack([np.asarray(data.train.read(i)) for i in range(len(data.train))])
    changed = np.where(np.isin(data.train.labels, [2, 3])[:, None, None, None], 255 - pixels, pixels)
    first, second = (replace(data, train=replace(data.train, source=ArraySource(p))) for p in (pixels, changed))
    tuners = [PromptTuner(FORGET, method, **given).fit(model, each) for each in (first, second)]
    assert [g.losses.tolist() for g in tuners[0].history_] == [g.losses.tolist() for g in tuners[1].history_]
    assert tuners[0].valid_ == tuners[1].valid_
    found, other = (tuner.fitted_.confidences(tuner.run_.bind(data.test)) for tuner in tuners)
    assert np.array_equal(found, other)
    said = forecast([tuners[0].task(model, first)])
    assert said.image_queries == tuners[0].ledger_.image_queries
