"""What can be asked of answers to forgotten images: each loss by hand, in torch as in NumPy, and what it leads to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unsee
from unsee.answers.metrics import mask_confidences
from unsee.methods.asked import AskedImages
from unsee.methods.losses import STEEP, Goal, forgetting_loss, forgetting_loss_torch, mask_loss, push_loss
from unsee.methods.pareto import flattest, front_of
from unsee.settings import GOALS

FORGET = np.array([True, False, False])
LABELS = np.array([0, 0, 1, 2])


def logs(rows):
    return np.log(np.array([rows], dtype=np.float32))


def test_push_asks_only_that_the_true_class_is_not_answered():
    labels = np.array([0, 0])
    assert push_loss(logs([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0001]]), labels) == pytest.approx([np.log(2)], abs=1e-6)
    gone = np.array([[[-80.0, -0.01, -5.0], [-80.0, -5.0, -0.01]]], dtype=np.float32)
    assert push_loss(gone, labels) == pytest.approx([0], abs=1e-12)  # surely wrong costs nothing
    assert np.isfinite(push_loss(np.zeros((1, 2, 3), dtype=np.float32), labels)).all()  # surely right costs much


def test_mask_is_least_where_answers_are_those_of_a_label_mask():
    plain = np.array([[0.5, 0.4, 0.1]], dtype=np.float32)
    target = mask_confidences(plain, FORGET)
    assert target == pytest.approx(np.array([[0, 0.8, 0.2]]), abs=1e-6)
    at_target = mask_loss(logs([[1e-9, 0.8, 0.2]]), target)
    assert at_target == pytest.approx([-(0.8 * np.log(0.8) + 0.2 * np.log(0.2))], abs=1e-6)
    for other in ([0.5, 0.4, 0.1], [1e-9, 0.5, 0.5], [1e-9, 0.9, 0.1]):
        assert mask_loss(logs([other]), target) > at_target


def test_constrained_does_not_pay_for_keeping_more_than_is_asked():
    rows = [[1 / 3] * 3, [1 / 3] * 3, [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    kept = -np.log(0.8)
    for allowed, extra in ((1.0, 0.0), (kept - 0.1, STEEP * 0.1)):
        found = forgetting_loss(logs(rows), LABELS, FORGET, goal=Goal("constrained", allowed=allowed))
        assert found == pytest.approx([np.log(3) + extra], abs=1e-5)


@pytest.mark.parametrize("name", GOALS)
def test_torch_agrees(name):
    log_p = np.log(np.random.default_rng(0).dirichlet(np.ones(3), (1, 4))).astype(np.float32)
    target = np.random.default_rng(1).dirichlet(np.ones(3), 4).astype(np.float32) if name == "mask" else None
    goal = Goal(name, target, 0.1)
    ours = forgetting_loss(log_p, LABELS, FORGET, 2.0, 3.0, goal)[0]
    gone = torch.from_numpy(FORGET[LABELS])
    other = forgetting_loss_torch(torch.from_numpy(log_p[0]), torch.from_numpy(LABELS), gone, (2.0, 3.0), (2, 2), goal)
    assert float(other) == pytest.approx(ours, rel=1e-5)


@pytest.mark.parametrize("name", GOALS)
@pytest.mark.parametrize("method", ["lcs", "coop"])
def test_every_goal_tunes_a_prompt(model, data, name, method):
    tuner = unsee.PromptTuner(["cat", "dog"], method, goal=name, iterations=2, shots=2).fit(model, data)
    assert np.isfinite(tuner.history_[0].losses).all()
    assert np.isfinite(tuner.contexts_).all()
    if name == "constrained":
        floor = AskedImages(tuner.task(model, data), unsee.Ledger()).plain.acc_mem(tuner.forget_mask_) - 0.02
        most = max(c.trade_off.acc_mem for g in tuner.history_ for c in g.entered)
        (chosen,) = [c for g in tuner.history_ for c in g.entered if (c.contexts == tuner.contexts_).all()]
        assert chosen.trade_off.acc_mem >= min(floor, most)
        assert bool(tuner.warnings_ and "closest" in tuner.warnings_[-1]) == (most < floor)


def test_slack_trades_h_for_answers_that_tell_less(model, data):
    def fit(slack):
        return unsee.PromptTuner(["cat", "dog"], slack=slack, iterations=5, shots=3).fit(model, data)

    strict, loose = fit(0.0), fit(0.5)
    front = front_of(c for g in loose.history_ for c in g.entered)
    assert [g.losses.tolist() for g in strict.history_] == [g.losses.tolist() for g in loose.history_]
    flat = max(front, key=lambda c: c.trade_off.entropy)
    assert loose.ledger_ == strict.ledger_
    assert loose.valid_ == flat.valid
    assert (loose.contexts_ == flat.contexts).all()  # half of H may go: the flattest of all
    assert flattest(front, 0.0).trade_off.entropy <= flattest(front, 0.1).trade_off.entropy <= flat.trade_off.entropy


def test_losses_of_goals_differ(model, data):
    def first(name):
        return unsee.PromptTuner(["cat"], goal=name, iterations=1, shots=2).fit(model, data).history_[0].losses.tolist()

    assert len({tuple(first(name)) for name in GOALS}) == len(GOALS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"goal": "nothing"}, "goal"),
        ({"goal": "constrained", "validate": "loss"}, "validation scores"),
        ({"method": "finetune", "goal": "push"}, "tunes none"),
        ({"goal": "constrained", "keep_within": -0.1}, "keep_within"),
        ({"slack": -0.1}, "slack"),
        ({"slack": 0.1, "validate": "loss"}, "slack=0.1 chooses by validation"),
        ({"slack": 0.1, "goal": "constrained"}, "its own way"),
        ({"slack": 0.1, "method": "label-mask"}, "tunes none"),
    ],
)
def test_goals_that_cannot_be_are_refused(model, data, given, message):
    with pytest.raises(unsee.InputError, match=message):
        unsee.PromptTuner(["cat"], shots=2, **given).fit(model, data)
