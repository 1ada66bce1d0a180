from __future__ import annotations

from typing import get_args

import pytest

from unsee import InputError
from unsee.methods.build import PARAMETRIZATIONS, SEARCHES
from unsee.methods.cma import KINDS, STEP_SIZES
from unsee.methods.contexts import SCALES
from unsee.methods.presets import resolve
from unsee.methods.registry import METHODS
from unsee.settings import (
    CMA_KINDS,
    ParametrizationName,
    Projection,
    SearchName,
    StepSize,
    list_settings,
    parse_settings,
)


def settings(given=None, method="lcs", data="cifar10", classes=10, preset="paper"):
    return resolve(given or {}, method=method, preset=preset, seed=0, data=data, width=512, classes=classes, shots=7)


def test_the_papers_sizes_are_the_preset_for_its_data_sets():
    small = settings()
    assert (small.contexts, small.shared, small.own, small.dim) == (4, 20, 5, 10)
    assert (small.iterations, small.shots, small.population) == (400, 16, 20)
    large = settings(data="cifar100")
    assert (large.contexts, large.shared, large.own, large.dim) == (16, 400, 100, 125)
    assert (large.iterations, large.shots) == (800, 4)
    assert [settings(data=name).shots for name in ("cub200", "imagenet30", "imagenet")] == [1, 16, 1]
    assert settings(data="imagenet30").iterations == 400


def test_step_sizes_of_the_paper_are_by_csa_but_for_separable_search():
    assert {settings(method=name).step_size for name in ("lcs", "bbt", "independent", "vanilla")} == {"csa"}
    assert settings(method="bbt-sep").step_size == "tpa"
    assert settings({"search": "separable"}).step_size == "tpa"
    assert settings({"step_size": "library"}).step_size == "library"
    assert settings(preset="tuned").step_size == settings(preset="tuned", method="bbt-sep").step_size == "library"


def test_other_data_takes_sizes_by_its_number_of_classes_and_the_shots_it_has():
    assert (settings(data="mine").contexts, settings(data="mine").shots) == (4, 7)
    assert settings(data="mine", classes=50).contexts == 16


def test_given_settings_win_and_none_means_default():
    assert settings({"shots": 3, "iterations": None}).shots == 3
    assert settings({"iterations": None}).iterations == 400


@pytest.mark.parametrize("method", METHODS)
def test_every_method_resolves(method):
    assert settings(method=method).method == method


def test_the_limit_is_the_smaller_of_plan_and_budget():
    assert settings().limit == 8000
    assert settings({"budget": 1234}).limit == 1220, "whole generations of 20"
    assert settings({"budget": 9999}).limit == 8000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shotz": 1}, "unknown setting 'shotz'; did you mean 'shots'"),
        ({"shots": 0}, "shots must be at least 1"),
        ({"budget": 0}, "budget must be at least 1"),
        ({"population": 3}, "population must be at least 4"),
        ({"sigma0": -1.0}, "sigma0 must be above 0"),
        ({"search": "cma"}, "unknown search 'cma'"),
        ({"step_size": "cas"}, "unknown step_size 'cas'; did you mean 'csa'"),
        ({"projection": "token"}, "unknown projection"),
        ({"validate": "never"}, "validate is"),
        ({"validate": "²"}, "validate is"),
        ({"validate": "0"}, "validate is"),
        ({"budget": 19}, "budget must be at least one generation, which is 20 candidates"),
        ({"memorize_weight": -1.0}, "memorize_weight must be at least 0, not -1.0"),
        ({"shared": -1}, "shared must be at least 0"),
        ({"with_images": 1.5}, "with_images must be at most 1, not 1.5"),
        ({"sigma0": float("nan")}, "sigma0 must be a finite number, not nan"),
        ({"slack": float("inf")}, "slack must be a finite number"),
        ({"shots": True}, "shots must be a whole number, not True"),
        ({"shots": "3"}, "shots must be a whole number, not '3'"),
        ({"save_weights": 1}, "save_weights must be true or false, not 1"),
    ],
)
def test_bad_settings_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        settings(given)


def test_a_search_in_pairs_has_an_even_population():
    with pytest.raises(InputError, match="population must be even, not 5"):
        settings({"population": 5}, "zip")


def test_text_settings_get_their_types():
    got = parse_settings(
        {"sigma0": "0.5", "shots": "3", "budget": "none", "stop_when_stalled": "true", "origin": "a photo"}
    )
    assert got == {"sigma0": 0.5, "shots": 3, "budget": None, "stop_when_stalled": True, "origin": "a photo"}
    for bad in ({"shots": "many"}, {"stop_when_stalled": "perhaps"}, {"sigma": "1"}):
        with pytest.raises(InputError):
            parse_settings(bad)


def test_the_names_of_choices_are_those_of_the_code():
    assert set(CMA_KINDS) == set(KINDS)
    assert set(get_args(Projection)) == set(SCALES)
    assert set(get_args(StepSize)) == set(STEP_SIZES)
    assert set(get_args(SearchName)) == set(SEARCHES)
    assert set(get_args(ParametrizationName)) == {*PARAMETRIZATIONS, "none"}


def test_every_setting_says_what_it_takes_and_what_it_is_for():
    facts = {one.name: one for one in list_settings()}
    assert all(one.about and one.kind for one in facts.values())
    assert (facts["sigma0"].kind, facts["sigma0"].default) == ("a number above 0", "1.0")
    assert (facts["shots"].kind, facts["shots"].default) == ("a whole number at least 1", "by preset")
    assert (facts["goal"].kind, facts["goal"].default) == ("entropy, mask, push, constrained", "entropy")
    assert facts["stop_when_stalled"].default == "false"


def test_unknown_methods_and_presets_are_refused():
    with pytest.raises(InputError, match="unknown method 'lsc'; did you mean 'lcs'"):
        settings(method="lsc")
    with pytest.raises(InputError, match="unknown preset"):
        settings(preset="fast")


@pytest.mark.parametrize(("method", "least"), [("lcs", 4), ("cbbt", 2), ("zip", 2), ("random-search", 1)])
def test_a_search_says_how_many_candidates_a_generation_needs(method, least):
    assert settings({"population": least}, method).population == least
    with pytest.raises(InputError, match=f"population must be at least {least}, not {least - 1}"):
        settings({"population": least - 1}, method)
