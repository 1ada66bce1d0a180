from __future__ import annotations

from types import SimpleNamespace

import cma
import numpy as np
import pytest
import torch
from cma.sigma_adaptation import CMAAdaptSigmaCSA, CMAAdaptSigmaTPA
from cma.utilities.math import MathHelperFunctions

from tests.methods.parts import contexts_of, search_of
from unsee import InputError
from unsee.data.splits import Split
from unsee.methods.build import make_parametrization
from unsee.methods.cma import KINDS, STEP_SIZES, BlockSearch
from unsee.methods.contexts import SharedContexts
from unsee.methods.presets import resolve
from unsee.methods.search import RandomSearch
from unsee.methods.task import Task
from unsee.seeds import stream
from unsee.types import Card


def make(kind, blocks, seed=0, **options):
    return BlockSearch(blocks, [stream(seed, "search", i) for i in range(len(blocks))], kind=kind, **options)


def bowl(z):
    return ((z - 1) ** 2).sum(axis=1)


def run(search, generations, loss=bowl):
    seen = []
    for _ in range(generations):
        z = search.ask()
        search.tell(z, loss(z))
        seen.append(z)
    return np.array(seen)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [(6,), (8, 3, 3), (2, 2)])
def test_every_search_keeps_the_contract(kind, blocks):
    search = make(kind, blocks)
    zs = run(search, 60)
    assert zs.shape == (60, 20, sum(blocks))
    assert zs.dtype == np.float64
    assert bowl(zs[-1]).min() < 0.1 * bowl(zs[0]).min(), "it learns"
    assert np.array_equal(zs, run(make(kind, blocks), 60)), "the same seed, the same candidates"
    assert not np.array_equal(zs[0], run(make(kind, blocks, seed=1), 1)[0]), "another seed, others"


@pytest.mark.parametrize("step_size", STEP_SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [(6, 3), (310,)])
def test_global_random_state_is_left_alone(kind, blocks, step_size):
    numpy_before, torch_before = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    run(make(kind, blocks, step_size=step_size), 6)
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(numpy_before[1], after[1])
    assert numpy_before[2] == after[2]
    assert torch.equal(torch_before, torch.get_rng_state())


@pytest.mark.parametrize("step_size", STEP_SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [(6, 3), (310,)])
def test_a_search_told_the_recorded_losses_again_continues_where_it_was(kind, blocks, step_size):
    search, recorded = make(kind, blocks, step_size=step_size), []
    for _ in range(9):
        z = search.ask()
        recorded.append(bowl(z))
        search.tell(z, recorded[-1])
    again = make(kind, blocks, step_size=step_size)
    for losses in recorded:
        again.tell(again.ask(), losses)
    assert np.array_equal(run(search, 5), run(again, 5))


def test_lcs_equals_a_hand_written_loop_of_m_plus_one_searches():
    m, shared, own, width = 4, 20, 5, 16
    rng = np.random.default_rng(0)
    origin, projection = rng.normal(size=(m, width)), rng.normal(size=(shared + own, width))
    contexts = SharedContexts(origin.astype(np.float32), projection.astype(np.float32), shared)

    def loss(prompts):
        return np.abs(prompts.astype(np.float64)).sum(axis=(1, 2))

    search, ours = make("full", contexts.blocks), []
    for _ in range(12):
        z = search.ask()
        ours.append(loss(contexts.contexts(z)))
        search.tell(z, ours[-1])

    def alone(size, index):
        generator = stream(0, "search", index)
        options = {"popsize": 20, "randn": lambda *shape: generator.standard_normal(shape)}
        return cma.CMAEvolutionStrategy(np.zeros(size), 1.0, options | {"seed": np.nan, "verbose": -10})

    joint, unique = alone(shared, 0), [alone(own, i + 1) for i in range(m)]
    for generation in range(12):
        common, separate = joint.ask(), [part.ask() for part in unique]
        losses = []
        for j in range(20):
            prompt = np.array(
                [np.concatenate([common[j], separate[i][j]]) @ projection.astype(np.float32) for i in range(m)]
            )
            losses.append(float(loss((prompt + origin.astype(np.float32)).astype(np.float32)[None])[0]))
        assert losses == ours[generation].tolist(), f"generation {generation}"
        joint.tell(common, losses)
        for part, asked in zip(unique, separate, strict=True):
            part.tell(asked, losses)


def pycma_3_3(size, generator, kind="full"):
    """A search of pycma whose step-size rule is put back to that of its release 3.3."""
    separable = kind == "separable"
    rule = CMAAdaptSigmaTPA if separable and size > 299 else CMAAdaptSigmaCSA
    options = {"popsize": 20, "randn": lambda *shape: generator.standard_normal(shape), "seed": np.nan, "verbose": -10}
    search = cma.CMAEvolutionStrategy(np.zeros(size), 1.0, options | {"CMA_diagonal": separable, "AdaptSigma": rule})
    if rule is CMAAdaptSigmaTPA:
        search.adapt_sigma.sp.damp = 0.7 + np.log(size)
        return search
    mueff = search.sp.weights.mueff
    search.adapt_sigma.cs = (mueff + 2) / (size + mueff + 3)
    search.adapt_sigma.damps = 1 + 2 * max(0, ((mueff - 1) / (size + 1)) ** 0.5 - 1) + search.adapt_sigma.cs
    return search


@pytest.fixture
def lengths_of_3_3(monkeypatch):
    """The expected length of a normal vector in pycma 3.3, which approximates it from 7 dimensions on."""
    for n in (10, 20, 40, 100, 125, 400, 2000):
        length = n**0.5 * (1 - 1 / (4 * n) + 1 / (26 * n**2))
        monkeypatch.setitem(MathHelperFunctions._chiN_dict, n, length)


CARD = Card("none", "none", width=8, token_mean=np.zeros(8, np.float32), token_std=0.1, token_limit=77)
PAPER_BLOCKS = [
    ("cifar10", "lcs", (20, 5, 5, 5, 5)),
    ("cifar10", "independent", (10,) * 4),
    ("cifar10", "bbt", (40,)),
    ("cifar100", "lcs", (400, *(100,) * 16)),
    ("cifar100", "independent", (125,) * 16),
    ("cifar100", "bbt", (2000,)),
    ("cifar100", "bbt-sep", (2000,)),
]


@pytest.mark.usefixtures("lengths_of_3_3")
@pytest.mark.parametrize(("data", "method", "blocks"), PAPER_BLOCKS)
def test_the_papers_preset_searches_as_pycma_3_3_does(data, method, blocks):
    settings = resolve({}, method=method, preset="paper", seed=3, data=data, width=512, classes=100, shots=1)
    task = Task(
        settings, SimpleNamespace(card=CARD), None, np.zeros(1, bool), Split(np.zeros(0, int), np.zeros(0, int))
    )
    assert tuple(make_parametrization(settings, task.model).blocks) == blocks
    search, cuts = search_of(task), np.cumsum(blocks)[:-1]
    alone = [pycma_3_3(size, stream(3, "search", i), settings.search) for i, size in enumerate(blocks)]
    for generation in range(8):
        z, asked = search.ask(), [part.ask() for part in alone]
        assert np.array_equal(z, np.concatenate(asked, axis=1)), f"generation {generation}"
        losses = np.abs(contexts_of(task, z).astype(float)).sum(axis=(1, 2))
        search.tell(z, losses)
        for part, block in zip(alone, np.split(z, cuts, axis=1), strict=True):
            part.tell(list(block), losses.tolist())


def test_the_rules_of_step_sizes_differ_where_the_releases_of_pycma_do():
    def sigmas(kind, size, step_size):
        return run(make(kind, (size,), step_size=step_size), 8)[-1].std()

    def differ(kind, size, *rules):
        return len({sigmas(kind, size, rule) for rule in rules}) == len(rules)

    assert differ("full", 5, "csa", "library")
    assert differ("full", 20, "csa", "library")
    assert differ("full", 310, "csa", "tpa", "library")
    assert sigmas("full", 299, "csa") == sigmas("full", 299, "tpa")
    assert not differ("vkd", 310, "csa", "tpa"), "VkD-CMA-ES has a rule of its own"


def test_a_signals_file_in_the_working_directory_changes_nothing(tmp_path, monkeypatch):
    plain = run(make("full", (5,)), 4)
    (tmp_path / "cma_signals.in").write_text("{'timeout': 0, 'tolx': 1e9}")
    monkeypatch.chdir(tmp_path)
    search = make("full", (5,))
    assert np.array_equal(run(search, 4), plain)
    assert not search.stalled()
    assert [p.name for p in tmp_path.iterdir()] == ["cma_signals.in"], "and nothing is written there"


def test_flat_losses_do_not_stop_a_search_but_show_as_stalled():
    search = make("full", (5,))
    zs = run(search, 30, loss=lambda z: np.zeros(len(z)))
    assert np.isfinite(zs).all()
    assert search.stalled()


def test_telling_does_not_change_the_callers_arrays():
    search = make("full", (5,))
    z = search.ask()
    losses = bowl(z)[::-1].copy()
    kept = z.copy(), losses.copy()
    search.tell(z, losses)
    assert np.array_equal(z, kept[0])
    assert np.array_equal(losses, kept[1])


def test_random_search_draws_without_learning():
    search = RandomSearch(7, stream(0, "search"), population=5, sigma0=2.0)
    zs = run(search, 200)
    assert zs.shape == (200, 5, 7)
    assert zs.std() == pytest.approx(2.0, rel=0.05)


def test_impossible_searches_are_refused():
    with pytest.raises(InputError, match="unknown search 'ful'; did you mean 'full'"):
        make("ful", (3,))
    with pytest.raises(InputError, match="unknown step_size 'cas'; did you mean 'csa'"):
        make("full", (3,), step_size="cas")
    with pytest.raises(InputError, match="population must be at least 4"):
        make("full", (3,), population=2)
    with pytest.raises(InputError, match="sigma0 must be above 0"):
        make("full", (3,), sigma0=0)
    with pytest.raises(InputError, match="as many random streams"):
        BlockSearch((3, 3), [stream(0, "search")])
