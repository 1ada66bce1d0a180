"""Descents along measured and true slopes, and losses on class embeddings."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.methods.parts import objective_of, search_of, slope_of
from tests.test_tuner import FORGET, SHORT, Answering
from unsee import InputError, PromptTuner
from unsee.methods.contexts import LowRankContexts, make_origin
from unsee.methods.descent import Adam, ForwardDifferences, GradientDescent, Sgd, TwoSided, UnitDifferences, orthonormal
from unsee.methods.losses import embedding_loss
from unsee.methods.task import make_task
from unsee.seeds import stream


def bowl(z):
    return ((z - 1) ** 2).sum(axis=1)


SEARCHES = {
    "gradient": lambda: GradientDescent(lambda point, step: 2 * (point - 1), Adam(np.zeros(6), 0.1, np.inf, 150)),
    "sgd": lambda: GradientDescent(lambda point, step: 2 * (point - 1), Sgd(np.zeros(6), 0.02, 150, 5)),
    "differences": lambda: ForwardDifferences(6, stream(0, "search"), population=5, rate=0.1, steps=150),
    "cbbt": lambda: UnitDifferences(np.zeros(6), stream(0, "search"), population=5, rate=0.1, steps=150, per_epoch=5),
    "two-sided": lambda: TwoSided(6, stream(0, "search"), population=8, rate=0.1, steps=150),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_descent_keeps_the_search_contract(name):
    def run():
        search, seen = SEARCHES[name](), []
        for _ in range(150):
            z = search.ask()
            seen.append(z)
            search.tell(z, bowl(z))
        return np.array(seen)

    zs = run()
    assert bowl(zs[-1]).min() < 0.1 < bowl(zs[0]).min()
    assert np.array_equal(zs, run())


@pytest.mark.parametrize("name", ["gradient", "sgd"])
def test_a_restored_descent_continues_as_if_never_stopped(name):
    whole, first = SEARCHES[name](), SEARCHES[name]()
    for _ in range(20):
        whole.tell(whole.ask(), np.zeros(1))
    for _ in range(8):
        first.tell(first.ask(), np.zeros(1))
    second = SEARCHES[name]()
    second.restore(first.state())
    for _ in range(12):
        second.tell(second.ask(), np.zeros(1))
    assert np.array_equal(second.ask(), whole.ask())
    with pytest.raises(InputError, match="does not fit"):
        second.restore({"point": np.zeros(3)})


def test_adam_clips_the_slope_by_its_norm():
    clipped, plain = Adam(np.zeros(2), 0.1, 1.0, 10), Adam(np.zeros(2), 0.1, np.inf, 10)
    clipped.step(np.array([30.0, 40.0]))
    plain.step(np.array([0.6, 0.8]))
    assert np.allclose(clipped.state()["mean"], plain.state()["mean"])


def test_cbbts_own_steps_are_those_of_its_repository():
    """Written out with torch: unit directions, the mean times 1 / epsilon, clip 5, L2 decay, one epoch at 1e-5."""
    start, per_epoch, steps = np.linspace(-1, 1, 8), 2, 8
    search = UnitDifferences(start, stream(0, "s"), population=4, rate=0.002, steps=steps, per_epoch=per_epoch)
    contexts = torch.tensor(start, requires_grad=True)
    adam = torch.optim.Adam([contexts], lr=0.002, weight_decay=5e-4)
    for step in range(steps):
        z = search.ask()
        losses = bowl(z + start)
        directions = (z[1:] - z[0]) * 8
        assert np.allclose(np.linalg.norm(directions, axis=1), 1)
        slope = torch.tensor((((losses[1:] - losses[0]) * 8)[:, None] * directions).mean(axis=0) * 8)
        contexts.grad = slope * min(1.0, 5 / float(slope.norm()))
        epoch = step // per_epoch
        rate = 0.001 * (1 + np.cos(np.pi * (epoch - 1) / 4)) if epoch else 1e-5
        adam.param_groups[0]["lr"] = float(rate)
        adam.step()
        search.tell(z, losses)
        assert np.allclose(search.ask()[0] + start, contexts.detach().numpy(), atol=1e-9)


def test_directions_are_orthonormal_and_random():
    directions = orthonormal(np.random.default_rng(0), 4, 9)
    assert np.allclose(directions @ directions.T, np.eye(4))
    assert not np.allclose(directions, orthonormal(np.random.default_rng(1), 4, 9))


@pytest.fixture(scope="module")
def slopes(model, data):
    """The true gradient of a task's loss at a point, and its loss as the black-box border gives it."""
    task = make_task(model, data, FORGET, "coop", "tuned", 0, {"shots": 2, "contexts": 2, "origin": "mean"})
    origin = make_origin(task.settings, model)
    objective, slope = objective_of(task), slope_of(task, origin.shape)

    def losses(z):
        contexts = (z.reshape(-1, *origin.shape) + origin).astype(np.float32)
        return objective.evaluate(contexts).losses

    return slope, losses, origin


def test_the_true_slope_is_that_of_the_black_box_loss(slopes):
    slope, losses, origin = slopes
    gradient = slope(origin.ravel(), 0)
    along = gradient / np.linalg.norm(gradient)
    step = 1e-3
    rise = (losses(step * along[None])[0] - losses(-step * along[None])[0]) / (2 * step)
    assert rise == pytest.approx(np.linalg.norm(gradient), rel=0.02)


def test_cbbts_estimate_converges_to_the_true_slope_with_more_directions(slopes):
    slope, losses, origin = slopes
    gradient, dim = slope(origin.ravel(), 0), origin.size

    def cosine(directions):
        search = ForwardDifferences(dim, stream(0, "search"), population=directions + 1, rate=0.1, steps=1)
        estimate = search.estimate(losses(search.ask()))
        return float(estimate @ gradient / np.linalg.norm(estimate) / np.linalg.norm(gradient))

    found = [cosine(directions) for directions in (8, dim // 2, dim)]
    assert found == sorted(found)
    assert found[-1] >= 0.9


def steps_of_zip(model, data, **given):
    """How far the first step moves the point of a two-sided search."""
    task = make_task(model, data, FORGET, "zip", "tuned", 0, {"shots": 2, "rate": 0.1, **given})
    search = search_of(task)
    z = search.ask()
    search.tell(z, np.arange(len(z), dtype=np.float64))
    after = search.ask()
    return float(np.abs((after[0] + after[len(after) // 2]) / 2 - (z[0] + z[len(z) // 2]) / 2).max())


def test_the_unit_of_a_rate_counts_for_zip_too(model, data):
    assert steps_of_zip(model, data) == pytest.approx(0.1), "latents are in the projection's unit"
    entries = {"parametrization": "vanilla"}
    assert steps_of_zip(model, data, **entries) == pytest.approx(0.1 * model.card.token_std)
    assert steps_of_zip(model, data, **entries, rate_unit="absolute") == pytest.approx(0.1)
    with pytest.raises(InputError, match="rate_unit=absolute is for the contexts' own entries"):
        steps_of_zip(model, data, rate_unit="absolute")


def test_nt_xent_equals_the_formula_written_out_slowly():
    rng = np.random.default_rng(0)
    after, before = rng.normal(size=(3, 5, 4)), rng.normal(size=(5, 4))
    gone, kept = np.array([1, 1, 0, 0, 0], dtype=bool), np.array([0, 0, 0, 1, 1], dtype=bool)
    for tau in (0.5, 0.01):
        got = embedding_loss(after.astype(np.float32), before.astype(np.float32), gone, kept, tau)
        for b in range(3):
            terms = []
            for c in (0, 1):
                own = sum(after[b, c] * before[c]) / tau
                others = [sum(after[b, c] * before[i]) / tau for i in (3, 4)]
                high = max(others)
                terms.append(own - high - math.log(sum(math.exp(other - high) for other in others)))
            assert got[b] == pytest.approx(sum(terms) / 2, rel=1e-4)


def test_classes_without_images_are_the_last_of_the_forgotten(model, data):
    def unseen(share):
        given = {"shots": 2, "with_images": share}
        task = make_task(model, data, ["airplane", "automobile", "cat", "deer"], "lcs+c-emb", "tuned", 0, given)
        return np.flatnonzero(task.unseen).tolist()

    assert unseen(0.5) == [3, 4]
    assert unseen(0.0) == [0, 1, 3, 4]
    assert unseen(1.0) == []


def test_c_emb_asks_for_no_images_while_tuning(model, data):
    tuner = PromptTuner(FORGET, "c-emb", **SHORT).fit(model, data)
    losses = [generation.losses.min() for generation in tuner.history_]
    assert min(losses) < losses[0]
    valid = len(data.train) // 2
    assert tuner.ledger_.image_queries == 2 * valid, "under the plain prompt before it, and under the chosen one after"


def test_half_of_the_classes_have_images_in_the_combination(model, data):
    tuner = PromptTuner(FORGET, "lcs+c-emb", **SHORT).fit(model, data)
    assert tuner.ledger_.image_queries == (1 + 48) * 8 * 8, "8 of 10 classes, 4 + 4 images each"


@pytest.mark.parametrize("method", ["coop", "coop-memorize", "c-emb", "lcs+c-emb"])
def test_white_box_methods_refuse_a_black_box(model, data, method):
    box = Answering(model, lambda b, n, c: np.full((b, n, c), 1 / c, np.float32))
    settings = SHORT | ({"population": 1, "origin": "mean"} if "coop" in method else {})
    with pytest.raises(InputError, match="is a black box"):
        PromptTuner(FORGET, method, **settings).fit(box, data)


def test_low_rank_contexts_move_with_every_part_of_z():
    rng = np.random.default_rng(0)
    made = LowRankContexts(
        np.zeros((3, 8), np.float32),
        rng.normal(size=(4, 8)).astype(np.float32),
        rng.normal(size=(3, 2)),
        rng.normal(size=(2, 4)),
    )
    (dim,) = made.blocks
    assert dim == 4 + 2 + 6 + 8
    z = rng.normal(size=(2, dim))
    assert made.contexts(z).shape == (2, 3, 8)
    for i in range(dim):
        moved = z.copy()
        moved[0, i] += 1
        assert not np.allclose(made.contexts(moved)[0], made.contexts(z)[0])
