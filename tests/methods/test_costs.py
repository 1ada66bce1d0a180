"""Budgets are fair: a comparison gives every black-box method the same number of image queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from unsee import PromptTuner
from unsee.methods.cost import planned_cost
from unsee.methods.presets import resolve
from unsee.methods.registry import METHODS
from unsee.report.comparison import compare
from unsee.runs.sweep import RunRequest, Workspace

BLACK_BOX = [name for name, method in METHODS.items() if not method.own_schedule]
FORGET = ("airplane", "automobile", "bird", "cat")


def settings(method, data, preset="paper", **given):
    return resolve(given, method=method, preset=preset, seed=0, data=data, width=128, classes=10, shots=4)


@pytest.mark.parametrize("method", BLACK_BOX)
@pytest.mark.parametrize(("data", "candidates"), [("cifar10", 8000), ("cifar100", 16000), ("imagenet30", 8000)])
def test_every_black_box_method_has_as_many_questions(method, data, candidates):
    """Of these candidates LCS asks twice: for the loss and to validate. CBBT and ZIP validate one a step."""
    found = settings(method, data)
    a_step = found.population + (1 if found.validate in ("first", "generation") else found.population)
    assert 2 * candidates - a_step < found.generations * a_step <= 2 * candidates, "whole generations alone"


def test_given_iterations_are_kept():
    assert settings("cbbt", "cifar100", iterations=3).limit == 3 * 10
    assert settings("lcs", "cifar100", population=10).limit == 8000


@pytest.mark.parametrize("method", ["lcs", "cbbt", "zip", "lcs+c-emb", "random-search"])
@pytest.mark.parametrize("validate", ["every", "generation"])
def test_the_cost_that_is_planned_is_the_cost_that_is_paid(model, data, method, validate):
    request = RunRequest(method, 0, FORGET, "paper", {"iterations": 2, "shots": 2, "validate": validate, "budget": 297})
    workspace = Workspace(model, data, Path("runs"))
    planned = planned_cost(workspace.task(request))
    tuner = PromptTuner(FORGET, request.method, preset=request.preset, **request.settings).fit(model, data)
    assert tuner.ledger_.candidates == planned.candidates
    assert tuner.ledger_.image_queries == planned.image_queries


def test_a_comparison_gives_every_black_box_method_the_same_image_queries(model, data, tmp_path):
    methods = ["lcs", "cbbt", "zip", "random-search", "lcs+c-emb", "zero-shot"]
    found = compare(
        Workspace(model, data, tmp_path), FORGET, methods, [0], preset="paper", settings={"iterations": 13, "shots": 2}
    )
    assert found.image_queries == (1 + 13 * 20) * 40, "once under the plain prompt"
    spent = {row.method: row.image_queries for row in found.methods}
    for method in methods[:4]:
        generation = 10 if method in ("cbbt", "zip") else 20
        assert found.image_queries - 40 * generation < spent[method] <= found.image_queries, "whole generations alone"
    images = 2 * 2 * 8  # two of the four forgotten classes have no images
    assert found.image_queries - 20 * images < spent["lcs+c-emb"] <= found.image_queries
