"""Schedules of a training loader: batches of the shots, random views of them, CoOp's own optimiser, half precision."""

from __future__ import annotations

from dataclasses import astuple, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import unsee
from benchmarks.difference_length import in_half_precision
from tests.methods.parts import contexts_of, objective_of, search_of, slope_of
from tests.test_tuner import Answering
from unsee import InputError, PromptTuner
from unsee.answers.metrics import entropy, scores, top_classes
from unsee.data.views import random_box, random_view
from unsee.methods import objective as objectives
from unsee.methods.asked import AskedImages, bind_images
from unsee.methods.build import make_learner
from unsee.methods.contexts import make_origin
from unsee.methods.cost import planned_cost
from unsee.methods.descent import DECAY, ForwardDifferences, Sgd
from unsee.methods.losses import forgetting_loss
from unsee.methods.presets import resolve
from unsee.methods.shot_batches import ShotBatches, steps_per_epoch
from unsee.methods.task import make_task
from unsee.methods.training import Optimizers, _restore, _state
from unsee.models.black_box import bind
from unsee.seeds import stream
from unsee.types import Ledger

FORGET = ["airplane", "automobile", "bird", "cat"]


@pytest.fixture
def batches(model, data):
    return ShotBatches(data.train.subset(range(22)), lambda images: bind(model, images), seed=0, batch=5, views=3)


def test_an_epoch_uses_each_shot_once_in_an_order_of_its_own_and_drops_the_rest(batches):
    assert batches.steps == steps_per_epoch(22, 5) == 4
    first, second = ([batches.rows(step).tolist() for step in steps] for steps in (range(4), range(4, 8)))
    for epoch in (first, second):
        rows = [row for batch in epoch for row in batch]
        assert len(rows) == len(set(rows)) == 20
    assert first != second
    assert (steps_per_epoch(7, 32), steps_per_epoch(7, 0)) == (1, 1)


def test_the_images_of_a_step_are_those_views_encoded_by_themselves(model, data, batches):
    for step in (0, 5, 13):  # the last one is in epoch 3, which sees view 0 again
        found = batches.at(step)
        view = random_view(data.train.subset(range(22)), 0, step // 4 % 3).subset(batches.rows(step))
        alone = model.bind(view, data.class_names)
        assert np.array_equal(found.labels, view.labels)
        assert torch.allclose(found.bound.features, alone.features, atol=1e-6)
    assert batches.images_encoded == 2 * 22, "views 0 and 1"


def test_a_service_is_given_the_images_of_each_step(model, data):
    given = []

    def answer(b, n, c):
        given.append(n)
        return np.full((b, n, c), 1 / c, np.float32)

    settings = {"shots": 2, "batch": 6, "views": 2, "iterations": 4, "validate": "first"}
    tuner = PromptTuner(FORGET, **settings).fit(Answering(model, answer), data)
    assert given == [6, 20] * 4
    assert tuner.ledger_.image_queries == 4 * (20 * 6 + 20)


def test_views_are_crops_of_the_image_and_half_of_them_mirrored(data):
    rng = np.random.default_rng(0)
    boxes = np.array([random_box((40, 30), rng) for _ in range(2000)])
    left, top, width, height = boxes.T
    assert min(left.min(), top.min()) == 0
    assert (left + width).max() == 40
    assert (top + height).max() == 30
    share, ratio = width * height / 1200, width / height
    assert 0.07 < share.min() < 0.1
    assert share.max() > 0.9
    assert ratio.min() > 0.68
    assert ratio.max() < 1.45
    assert random_box((1000, 1), rng)[2:] == (1, 1), "no crop fits: the middle, as wide as the ratio allows"
    ramp = replace(data.train, source=Ramp(), index=np.zeros_like(data.train.index))
    falls = [np.asarray(random_view(ramp, 0, i).read(0))[0, [0, -1], 0] for i in range(200)]
    assert 60 < sum(int(a) > int(b) for a, b in falls) < 140


class Ramp:
    """One image that grows brighter to the right."""

    def __len__(self):
        return 1

    def name(self, i):
        return "ramp"

    key = name

    def digest(self, i):
        return b"ramp"

    def read(self, i):
        from PIL import Image

        return Image.fromarray(np.tile(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], (48, 1, 3)))


def test_a_view_is_a_function_of_seed_number_and_image(data):
    images = data.train.subset([3, 4])

    def pixels(seed, number, row=0):
        view = random_view(images, seed, number)
        return np.asarray(view.read(row)).tobytes(), view.digest(row)

    assert pixels(0, 0) == pixels(0, 0)
    assert len({pixels(*which) for which in [(0, 0), (0, 1), (1, 0), (0, 0, 1)]}) == 4


def test_sgd_is_torchs_with_coops_schedule():
    rng, epochs, per_epoch = np.random.default_rng(0), 6, 4
    start, slopes = rng.normal(size=5), rng.normal(size=(epochs * per_epoch, 5))
    ours = Sgd(start, 0.002, epochs * per_epoch, per_epoch)
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    theirs = torch.optim.SGD([weight], lr=0.002, momentum=0.9, weight_decay=5e-4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(theirs, epochs)
    for step, slope in enumerate(slopes):
        epoch = step // per_epoch
        if step % per_epoch == 0 and epoch > 1:  # CoOp's framework starts the cosine after the warm-up
            cosine.step()
        theirs.param_groups[0]["lr"] = cosine.get_last_lr()[0] if epoch else 1e-5
        weight.grad = torch.from_numpy(slope)
        theirs.step()
        ours.step(slope + DECAY * ours.point)
    assert np.allclose(ours.point, weight.detach().numpy(), atol=1e-12)


def settings(method, preset="paper", data="cifar10", forgotten=4, classes=10, **given):
    return resolve(
        given, method=method, preset=preset, seed=0, data=data, width=512, classes=classes, shots=4, forgotten=forgotten
    )


def test_schedules_are_those_of_their_authors():
    own = settings("cbbt-own")
    assert (own.iterations, own.population, own.batch, own.rate, own.rate_unit) == (150 * 5, 257, 32, 0.002, "absolute")
    assert (own.search, own.smallest_crop, own.validate) == ("cbbt", 0.5, "first")
    coop = settings("coop")
    assert (coop.iterations, coop.optimizer, coop.rate, coop.batch) == (200 * 5, "sgd", 0.002, 32)
    assert settings("coop", data="cifar100", classes=100, forgotten=40).iterations == 100 * 12
    assert settings("coop", data="cub200", classes=200, forgotten=80).iterations == 50 * 6
    assert settings("coop-memorize", data="cub200", classes=200, forgotten=80).iterations == 50 * 3, "the kept alone"
    assert (settings("coop", "tuned").optimizer, settings("coop", "tuned").batch) == ("adam", 0)
    assert settings("coop", iterations=7).iterations == 7
    params = settings("coop-params")
    for name in ("iterations", "optimizer", "rate", "rate_unit", "batch", "views"):
        assert getattr(params, name) == getattr(coop, name), "CoOp with weights differs in the weights alone"


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(InputError, match="search=gradient"):
        settings("lcs", optimizer="sgd")
    with pytest.raises(InputError, match="tune a prompt"):
        settings("finetune", batch=4)


@pytest.mark.parametrize("method", ["cbbt-own", "coop", "coop-memorize"])
def test_the_cost_of_a_schedule_is_planned_right(model, data, method):
    given = {"iterations": 3, "shots": 2, "batch": 6} | ({"population": 4} if method == "cbbt-own" else {})
    tuner = PromptTuner(FORGET, method, preset="paper", **given)
    planned = planned_cost(tuner.task(model, data))
    ledger = tuner.fit(model, data).ledger_
    shots = 12 if method == "coop-memorize" else 20
    assert (ledger.candidates, ledger.image_queries) == (planned.candidates, planned.image_queries)
    assert planned.image_queries == shots + 20 + planned.candidates * 6 + 3 * 20, "once under the plain prompt"
    assert planned.views == shots * (1 if shots // 6 == 3 else 2), "one view per epoch; three steps are one or two"
    assert ledger.images_encoded == planned.views + shots + 20


def test_only_memorise_never_sees_a_forgotten_image(model, data):
    task = make_task(model, data, FORGET, "coop-memorize", "paper", 0, {"shots": 2, "batch": 5})
    shots = AskedImages(task, Ledger()).batches.shots
    assert not task.forget[shots.labels].any()
    assert len(shots.labels) == 12


@pytest.mark.parametrize("goal", ["entropy", "push"])
def test_the_slope_of_a_batch_is_that_of_its_black_box_loss(model, data, goal):
    given = {"shots": 2, "batch": 8, "origin": "mean", "goal": goal}
    task = make_task(model, data, FORGET, "coop", "paper", 0, given)
    origin, objective = make_origin(task.settings, model), objective_of(task)
    slope = slope_of(task, origin.shape)(origin.ravel(), 0)
    along = (slope / np.linalg.norm(slope)).reshape(origin.shape)

    def loss(step):
        contexts = (origin + step * along)[None].astype(np.float32)
        return objective.evaluate(contexts).losses[0]

    assert (loss(1e-3) - loss(-1e-3)) / 2e-3 == pytest.approx(np.linalg.norm(slope), rel=0.02)


def test_differences_are_long_enough_for_half_precision(demo_features):
    model, data = unsee.load_model("mini", cache=unsee.FeatureCache(demo_features)), unsee.load_data("demo")
    task = make_task(model, data, FORGET, "cbbt", "paper", 0, {"shots": 2})
    origin, images = make_origin(task.settings, model), data.train.subset(task.split.train)
    true = slope_of(task, origin.shape)(origin.ravel(), 0)
    bound = in_half_precision(model).bind(images, data.class_names)

    def agreement(share):
        entry = share * model.card.token_std
        search = ForwardDifferences(true.size, stream(0, "x"), population=33, rate=0.1, steps=1, entry=entry)
        contexts = (search.ask().reshape(-1, *origin.shape) + origin).astype(np.float32)
        rises = search.estimate(forgetting_loss(bound.log_confidences(contexts), images.labels, task.forget))
        return float(rises @ true / np.linalg.norm(rises) / np.linalg.norm(true))

    best = (32 / true.size) ** 0.5  # 32 random directions hold this part of a slope
    assert (ours := agreement(task.settings.difference)) > 0.6 * best
    assert agreement(0.0) < 0.8 * ours, "much of CBBT's own length is lost in rounding"
    spacing = np.spacing(np.float16(model.card.token_std))
    assert task.settings.difference * model.card.token_std >= 100 * spacing


@pytest.mark.parametrize("validate", ["every", "generation", "3"])
def test_a_population_asked_in_parts_has_the_same_losses_and_trade_offs(model, data, monkeypatch, validate):
    task = make_task(model, data, FORGET, "lcs", "paper", 0, {"shots": 2, "validate": validate})
    contexts = contexts_of(task, search_of(task).ask())
    whole = objective_of(task).evaluate(contexts)
    assert whole.answers.shape == (20, len(task.asked_rows[0]), 10)
    ledger = Ledger()
    parts = objective_of(task, ledger)
    asked = len(task.asked_rows[0])
    monkeypatch.setattr(objectives, "ANSWER_BYTES", 4 * asked * 10 * 3)  # three candidates
    found = parts.evaluate(contexts)
    assert found.answers is None, "too large to keep"
    assert np.allclose(found.losses, whole.losses, rtol=1e-6)
    assert found.valid == whole.valid
    assert set(found.trade_offs) == set(whole.trade_offs) == set(found.valid)
    for i, mine in found.trade_offs.items():
        assert astuple(mine) == pytest.approx(astuple(whole.trade_offs[i]), rel=1e-5)
    assert ledger.image_queries == 20 * asked + (0 if validate == "every" else 20 * len(found.valid))


def test_trade_offs_of_a_method_with_batches_are_those_on_validation_images(model, data):
    task = make_task(model, data, FORGET, "coop", "paper", 0, {"shots": 2, "batch": 6, "origin": "mean"})
    contexts = make_origin(task.settings, model)[None]
    found = objective_of(task).evaluate(contexts).trade_offs[0]
    images = bind_images(task, task.data.train.subset(task.split.valid))
    p, gone = images.confidences(contexts)[0], task.forget[images.labels]
    right = scores(top_classes(p), images.labels, task.forget)
    assert astuple(found) == pytest.approx((right.err_for, right.acc_mem, entropy(p[gone]).mean()), abs=1e-5)


@pytest.mark.parametrize("method", ["coop", "cbbt-own"])
def test_goals_go_with_batches_unless_they_need_all_shots(model, data, method):
    given = {"shots": 2, "batch": 6, "views": 2, "iterations": 2} | ({"population": 5} if method == "cbbt-own" else {})
    fitted = PromptTuner(FORGET, method, preset="paper", goal="push", **given).fit(model, data)
    plain = PromptTuner(FORGET, method, preset="paper", **given).fit(model, data)
    assert fitted.history_[0].losses[0] != plain.history_[0].losses[0]
    for goal in ("mask", "constrained"):
        with pytest.raises(InputError, match=f"goal={goal} .* batch=0 and views=0"):
            make_task(model, data, FORGET, method, "paper", 0, given | {"goal": goal})


def test_contexts_beside_trained_weights_step_as_coops_do(model, data):
    """With weights that hardly move, CoOp + parameter update follows CoOp's own contexts."""
    given = {"shots": 2, "batch": 6, "views": 2, "iterations": 7, "origin": "mean", "contexts": 2}
    coop = make_task(model, data, FORGET, "coop", "paper", 0, given)
    found = slope_of(coop, (2, model.card.width))
    start = make_origin(coop.settings, model).ravel().astype(np.float64)
    sgd = Sgd(np.zeros(start.size), 0.002, 7, AskedImages(coop, Ledger()).batches.steps)
    for step in range(5):
        at = sgd.point + start
        sgd.step(found(at, step) + DECAY * at)
    task = make_task(model, data, FORGET, "coop-params", "paper", 0, {**given, "weight_rate": 1e-12})
    learner = make_learner(task)
    optimizers = Optimizers(learner)
    for step in range(5):
        optimizers.zero_grad()
        learner.backward(step=step)
        optimizers.step(step)
    moved = learner.contexts.detach().double().numpy().ravel() - start
    assert np.abs(sgd.point).max() > 1e-5
    assert np.allclose(moved, sgd.point, rtol=0.02, atol=1e-6)
    kept = SimpleNamespace(best=SimpleNamespace(kept=learner.tensors()))
    twin = make_learner(task)
    others = Optimizers(twin)
    _restore(twin, others, _state(learner, optimizers, kept))
    for one, optimizer in ((learner, optimizers), (twin, others)):
        optimizer.zero_grad()
        one.backward(step=5)
        optimizer.step(5)
    assert torch.equal(learner.contexts, twin.contexts), "resumed, momentum included"
