"""The audit's 95 % intervals hold the truth in 95 % of trials, where it is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.polynomial import Polynomial
from scipy.stats import binom

from benchmarks.interval_coverage import CASES, SIZES, cover
from unsee.answers.intervals import (
    accuracy_of_trials,
    auroc_of,
    largest_share,
    mean_of,
    paired_difference,
    share_of,
    wilson,
)
from unsee.audit.information import mutual_information
from unsee.audit.leakage import measure_answers

NAMES = tuple("abcdefghij")
FORGET = np.arange(10) < 4


def answers(seed, n, top=None):
    """Answers to n images of four forgotten classes, and to some kept ones, that have nothing to do with the class."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(n) % 4, 4 + np.arange(n) % 6])
    p = rng.dirichlet(np.ones(10), 2 * n).astype(np.float32)
    if top is not None:
        p[np.arange(2 * n), top] += 1
    return p / p.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("n", [20, 80])
def test_where_nothing_leaks_the_bits_lie_in_their_interval_and_it_starts_at_zero(n, monkeypatch):
    monkeypatch.setattr("unsee.audit.leakage.SHOTS", ())  # probes take longer than all else
    found = []
    for seed in range(20):
        p, labels = answers(seed, n)
        found.append(measure_answers(p, labels, FORGET, NAMES, seed).mutual_information)
    assert all(bits.low <= bits.value <= bits.high for bits in found)
    assert sum(bits.low == 0 for bits in found) >= binom.ppf(0.001, 20, 0.95)


def test_none_of_twenty_leaves_room_for_some():
    p, labels = answers(0, 20, top=9)
    found = measure_answers(p, labels, FORGET, NAMES, 0)
    for share in (found.accuracy_forgotten, found.largest_share, found.per_class["a"].accuracy):
        assert share.value in (0, 1)
        assert share.high - share.low > 0.1
    assert found.accuracy_forgotten.high == pytest.approx(0.161, abs=0.001)
    assert mean_of(np.ones(20), 0, 1).low == pytest.approx(1 - 0.161, abs=0.001)
    assert auroc_of(np.arange(40.0), np.arange(40) >= 20).low < 0.95  # all pairs in order
    assert accuracy_of_trials(np.ones((5, 20)), 0.1, 2).low < 0.9
    same = np.ones(20, dtype=bool)
    assert paired_difference(same, same).low < -0.05


def test_no_images_give_nothing():
    none = np.zeros(0)
    for found in (
        share_of(none.astype(bool)),
        mean_of(none, 0, 1),
        auroc_of(none, none.astype(bool)),
        largest_share(none.astype(int), 3),
        paired_difference(none.astype(bool), none.astype(bool)),
        accuracy_of_trials(np.zeros((5, 0)), 0.0, 2),
    ):
        assert np.isnan([found.value, found.low, found.high]).all()
    assert wilson(1.0, 1).high == 1
    assert mean_of(np.array([0.5]), 0, 1).low < 0.2  # one image


QUICK = {case: 100 for case in CASES if "probe" not in case[0] and "bits" not in case[0]}
QUICK |= {("bits of the label", "0"): 30, ("bits of the label", "0.3"): 30}
QUICK |= {("1-shot probe", "chance"): 15, ("AUROC of a probe", "0.50"): 40}


@pytest.mark.parametrize(("measure", "truth"), QUICK)
def test_intervals_hold_the_truth_as_often_as_chance_allows(measure, truth):
    trials = QUICK[measure, truth]
    row = cover(measure, truth, 20, trials)
    assert row.inside
    assert row.coverage * trials >= binom.ppf(0.001, trials, 0.95)


def test_the_largest_of_few_equal_shares_is_held_in_89_or_98_percent_and_nothing_between():
    """Ten labels alike, 20 images: 0.1 is held up to a largest count. The counts' exact distribution, by generating
    functions, says how often one more or fewer would hold it."""

    def at_most(most: int, n: int = 20, labels: int = 10) -> float:
        one = Polynomial([1 / math.factorial(k) for k in range(most + 1)])
        return float((one**labels).coef[n] * math.factorial(n) / labels**n)

    def holds(most: int) -> bool:
        counts = [most, *[2] * ((20 - most) // 2), *[1] * (most % 2)]
        return largest_share(np.repeat(np.arange(len(counts)), counts), 10).low <= 0.1

    assert [holds(most) for most in (5, 6, 7)] == [True, True, False]
    assert [at_most(most) for most in (5, 6)] == pytest.approx([0.889, 0.976], abs=0.001)


def test_near_chance_the_upper_end_of_a_probe_is_the_longer_one():
    rng = np.random.default_rng(0)
    for chance in (0.25, 0.5):
        found = accuracy_of_trials((rng.random((20, 80)) < chance).astype(float), 0.05, round(1 / chance))
        assert found.high - found.value > 1.2 * (found.value - found.low)
    found = accuracy_of_trials((rng.random((20, 80)) < 0.7).astype(float), 0.05, 2)
    assert found.high - found.value < 1.05 * (found.value - found.low)  # far above chance


@pytest.mark.parametrize(("n", "shift", "ratio"), [(20, 0.0, 1.8), (400, 0.0, 2), (20, 2.0, 1.8), (400, 2.0, 1.25)])
def test_two_halves_that_learned_something_are_worth_more_than_one(n, shift, ratio):
    positive, halves = np.arange(2 * n) < n, np.arange(2 * n) % 2
    values = np.random.default_rng(1).standard_normal(2 * n) + shift * positive
    crossed, apart = (auroc_of(values, positive, halves, crossed=c) for c in (True, False))
    assert ((crossed.high - crossed.low) / (apart.high - apart.low)) ** 2 == pytest.approx(ratio, rel=0.1)


def test_one_image_unlike_the_others_does_not_make_a_mean_unknown():
    values = np.append(np.linspace(0.88, 0.94, 19), 0.33)
    found = mean_of(values, 0, 1)
    assert 0.03 < found.value - found.low < 0.15


def test_an_auroc_beyond_the_reach_of_one_end_is_tested_by_the_other_at_five_percent():
    """Wilson's end e is z standard errors of itself from the value: their ratio says which z each end has."""

    def ratio(moved: int) -> float:
        values, positive = np.arange(50.0), np.arange(50) >= 30
        values[30 : 30 + moved] -= 30  # positives that are now lowest
        found, mirrored = auroc_of(values, positive), auroc_of(-values, positive)
        assert (mirrored.low, mirrored.high) == pytest.approx((1 - found.high, 1 - found.low))
        z = [abs(end - found.value) / math.sqrt(end * (1 - end)) for end in (found.low, found.high)]
        return z[1] / z[0]

    assert ratio(8) == pytest.approx(1)  # 0.6
    assert ratio(1) == pytest.approx(1.645 / 1.96, abs=0.001)  # 0.95; in order, the lower end is 0.92
    row = cover("AUROC", "0.97", 20, 3000)
    assert row.coverage <= 0.962  # both ends at 2.5 %: 0.97


def test_with_few_images_the_lower_end_of_clear_bits_is_the_one_of_a_one_sided_test():
    """20 images, each on its class's label. If a share q does so, such a sample comes with chance q^20, half of
    which counts: 5 % at 0.891."""
    labels = np.arange(20) % 4
    right, wrong = 0.1 ** (1 / 20), (1 - 0.1 ** (1 / 20)) / 3
    bits = 2 + right * math.log2(right) + 3 * wrong * math.log2(wrong)
    found = [mutual_information(labels, labels, np.random.default_rng(seed)).low for seed in range(10)]
    assert np.mean(found) == pytest.approx(bits, abs=0.05)


# Where they hold it more often than in 97 %: no interval of the largest of equal shares can do otherwise (above).
MORE: set[tuple[str, str, int]] = {("largest share", "0.10, all alike", 20)}


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("measure", "truth"), CASES)
def test_every_interval_holds_the_truth_in_93_to_97_percent(measure, truth, n):
    row = cover(measure, truth, n, seed=2)
    if row is None:
        assert measure in ("4-shot probe", "16-shot probe")
        pytest.skip("too few images for this probe")
    assert row.inside
    chance = math.sqrt(0.05 * 0.95 / row.trials)  # one standard error: with 400 trials a point
    assert 0.93 - chance <= row.coverage <= (0.985 if (measure, truth, n) in MORE else 0.97) + chance
