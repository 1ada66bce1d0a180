"""Measurements of the guided search: each part that is left out is really out, and watching it changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ablation import WITHOUT, changed, table
from benchmarks.prediction_errors import COLUMNS, Watch, lines
from unsee import PromptTuner
from unsee.methods import guided
from unsee.methods.guided import GuidedSearch

FORGET = ["airplane", "automobile", "bird", "cat"]
SHORT = {"shots": 4, "image_queries": 4000}


def run_of(model, data):
    return PromptTuner(FORGET, "guided", **SHORT).fit(model, data)


def losses_of(tuner):
    return [generation.losses.tolist() for generation in tuner.run_.recorder.history]


@pytest.fixture(scope="module")
def whole(model, data):
    return losses_of(run_of(model, data))


LATE = {"more images where answers disappoint", "a region that changes", "a wide region again"}  # a short run has none


@pytest.mark.parametrize("without", sorted({*WITHOUT} - LATE - {""}))
def test_a_search_without_a_part_is_another_search(model, data, whole, without):
    with changed(WITHOUT[without]):
        assert losses_of(run_of(model, data)) != whole


def test_what_was_changed_is_as_before_even_after_an_error():
    before = guided.MORE
    seen = []

    def fail():
        with changed([(guided, "MORE", 7.0)]):
            seen.append(guided.MORE)
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert seen == [7.0]
    assert before == guided.MORE


def test_differences_are_those_of_the_same_list_and_seed():
    def row(without, letter, h, loss):
        names = ("model", "list", "seed", "without", "h", "loss")
        return dict(zip(names, ("mini", letter, "0", without, h, loss), strict=True))

    rows = [
        row("", "A", "90", "2.8"),
        row("", "B", "80", "2.9"),
        row("x", "A", "88", "2.9"),
        row("x", "B", "76", "3.1"),
    ]
    *_, whole, without = table([*rows, row("x", "C", "10", "9.0")])  # the whole search has no C
    assert whole == "| mini | (the whole search) | 2 | 85.00 | | |"
    assert without == "| mini | x | 2 | 82.00 | -3.00 ± 1.96 | +0.150 ± 0.098 |"


def test_a_watched_search_is_the_same_and_its_predictions_are_noted(model, data, whole):
    watch = Watch()
    with changed([(GuidedSearch, "tell", lambda *told: watch.tell(*told))]):
        tuner = run_of(model, data)
    assert losses_of(tuner) == whole
    history = tuner.run_.recorder.history
    first = history[0].losses.size * 80  # before these nothing can be predicted
    assert watch.asked == tuner.ledger_.image_queries - first - 80  # the plain prompt's are not its own
    images = 80
    table = lines(watch, tuner, [(4000, 0.5)], images)
    cells = dict(zip(COLUMNS, table[-1].strip("| ").split(" | ")[3:], strict=True))
    assert 0 < float(cells["error of others"]) < 1
    assert float(cells["planned"]) < np.max(history[0].losses)
