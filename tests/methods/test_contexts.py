from __future__ import annotations

import numpy as np
import pytest

from unsee import Card, InputError
from unsee.methods.contexts import (
    BbtContexts,
    IndependentContexts,
    SharedContexts,
    VanillaContexts,
    draw_projection,
    mean_origin,
    phrase_origin,
)

WIDTH, M = 12, 3
CARD = Card("card", "f", WIDTH, np.arange(WIDTH, dtype=np.float32), 0.5, 77)


def project(dim, kind="token-std", seed=0):
    return draw_projection(np.random.default_rng(seed), dim, CARD, kind)


ORIGIN = mean_origin(CARD, M)
ALL = {
    "vanilla": VanillaContexts(ORIGIN),
    "bbt": BbtContexts(ORIGIN, project(4)),
    "independent": IndependentContexts(ORIGIN, project(4)),
    "shared": SharedContexts(ORIGIN, project(7), shared=5),
    "nothing shared": SharedContexts(ORIGIN, project(4), shared=0),
}


@pytest.mark.parametrize("name", ALL)
def test_every_parametrization_keeps_the_contract(name):
    made = ALL[name]
    z = np.random.default_rng(1).normal(size=(5, sum(made.blocks)))
    contexts = made.contexts(z)
    assert contexts.shape == (5, M, WIDTH)
    assert contexts.dtype == np.float32
    assert np.array_equal(made.contexts(0 * z)[0], ORIGIN), "z = 0 is the origin"
    assert np.array_equal(made.contexts(z[2:3])[0], contexts[2]), "a candidate does not depend on its batch"
    halfway = made.contexts(z / 2) - ORIGIN
    assert np.allclose(2 * halfway, contexts - ORIGIN, atol=1e-4), "contexts are linear in z"
    with pytest.raises(InputError, match="z must be"):
        made.contexts(z[:, :-1])


def test_blocks_are_those_of_the_paper():
    assert ALL["vanilla"].blocks == (M * WIDTH,)
    assert ALL["bbt"].blocks == (M * 4,)
    assert ALL["independent"].blocks == (4, 4, 4)
    assert ALL["shared"].blocks == (5, 2, 2, 2)
    assert ALL["nothing shared"].blocks == (4, 4, 4)


def test_shared_contexts_are_shared_and_own_latents_through_one_projection():
    made = ALL["shared"]
    z = np.random.default_rng(2).normal(size=(2, 11))
    for b in range(2):
        for i in range(M):
            latent = np.concatenate([z[b, :5], z[b, 5 + 2 * i : 7 + 2 * i]])
            want = latent @ made.projection.astype(float) + ORIGIN[i]
            assert np.allclose(made.contexts(z)[b, i], want, atol=1e-5)


def test_independent_without_a_shared_part_equals_shared_with_none():
    z = np.random.default_rng(3).normal(size=(2, 12))
    assert np.array_equal(ALL["nothing shared"].contexts(z), ALL["independent"].contexts(z))


def test_projections_have_the_scale_they_promise():
    assert project(4000).std() == pytest.approx(0.5, rel=0.02)
    assert project(4000, "unit").std() == pytest.approx(1.0, rel=0.02)
    z = np.random.default_rng(0).normal(size=4000)
    assert (z @ project(4000, "normalized")).std() == pytest.approx(0.5, rel=0.5)
    with pytest.raises(InputError, match="unknown projection 'units'; did you mean 'unit'"):
        project(4, "units")


def test_a_phrase_stands_next_to_the_class_name_with_means_before_it():
    tokens = np.ones((2, WIDTH), dtype=np.float32)
    origin = phrase_origin(CARD, 3, tokens, "a photo")
    assert np.array_equal(origin[0], CARD.token_mean)
    assert np.array_equal(origin[1:], tokens)
    with pytest.raises(InputError, match="2 tokens long, more than the 1 contexts"):
        phrase_origin(CARD, 1, tokens, "a photo")


def test_a_phrase_with_dots_is_repeated_over_all_contexts():
    tokens = np.arange(4 * WIDTH, dtype=np.float32).reshape(4, WIDTH)
    for m in (1, 2, 4, 16):
        assert np.array_equal(phrase_origin(CARD, m, tokens, "a photo of a..."), np.tile(tokens, (4, 1))[:m])
