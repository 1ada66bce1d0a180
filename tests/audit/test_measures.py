"""Every measure against values computed by hand or by scikit-learn, and the right way round on constructed answers."""

from __future__ import annotations

import time
from functools import cache

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score, roc_auc_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from unsee.answers.intervals import auroc_of, largest_share
from unsee.answers.rules import RULES
from unsee.audit.information import mutual_information
from unsee.audit.leakage import measure_answers, measure_served
from unsee.audit.measures import calibration_error, kl_to_uniform
from unsee.audit.membership import measure_membership
from unsee.audit.probes import forgotten_probe, k_shot_probe

NAMES = ("airplane", "bird", "cat", "deer", "dog", "frog")
FORGET = np.array([True, True, True, False, False, False])
LABELS = np.repeat(np.arange(6), 40)


def rng():
    return np.random.default_rng(0)


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


def knows(noise=0.5):
    """A model that knows every class."""
    return softmax(6.0 * np.eye(6)[LABELS] + noise * rng().standard_normal((len(LABELS), 6)))


def forgets(how):
    """Answers to forgotten images made over in a stated way; those to kept ones stay."""
    p, gone = knows(), FORGET[LABELS]
    if how == "uniform":
        p[gone] = 1 / 6
    elif how == "mask":
        p = RULES["mask"](p, FORGET, rng())
    elif how == "one class":
        p[gone] = softmax(9.0 * np.eye(6)[np.full(gone.sum(), 4)])
    elif how == "partial":
        half = gone & (np.arange(len(LABELS)) % 2 == 0)
        p[half] = 1 / 6
    elif how == "planted leak":  # "dog" on top of every forgotten image, the true class in the third digit
        logits = 3.0 * np.eye(6)[np.full(gone.sum(), 4)] + 0.1 * np.roll(np.eye(6)[LABELS[gone]], 3, axis=1)
        p[gone] = softmax(logits + 0.003 * rng().standard_normal(logits.shape))
    return p


@cache
def measured(how):
    return measure_answers(forgets(how), LABELS, FORGET, NAMES, seed=0)


def test_kl_to_uniform_by_hand():
    p = np.array([[0.25] * 4, [1.0, 0, 0, 0], [0.5, 0.5, 0, 0]], dtype=np.float32)
    assert kl_to_uniform(p) == pytest.approx([0, np.log(4), np.log(2)], abs=1e-12)


def test_largest_share_by_hand():
    found = largest_share(np.repeat([0, 1, 2], [60, 30, 10]), 3)
    assert found.value == pytest.approx(0.6, abs=0.01)
    assert found.low < 0.51
    assert found.high > 0.69
    assert np.isnan(largest_share(np.zeros(0, np.int64), 3).value)
    alike = largest_share(np.array([0, 0, 0, 1, 1, 2, 3, 4, 5, 6]), 10)  # three of ten, but what else?
    assert alike.low == 0.1
    assert alike.value < 0.3


def test_mutual_information_is_what_is_counted_minus_what_shuffling_gives():
    draws = rng().integers(0, 5, (2, 300))
    draws[1, :150] = draws[0, :150]
    counted = mutual_info_score(draws[0], draws[1])
    by_chance = expected_mutual_information(contingency_matrix(draws[0], draws[1], sparse=True), 300)
    assert mutual_information(*draws, rng()).value == pytest.approx((counted - by_chance) / np.log(2), abs=1e-9)


def test_labels_that_follow_the_class_leak_all_bits_and_others_none():
    labels = np.repeat(np.arange(4), 100)
    found = mutual_information(labels, labels, rng())
    assert (found.value, found.high) == pytest.approx((2, 2), abs=0.05)
    none = mutual_information(labels, np.zeros(400, np.int64), rng())
    assert (none.low, none.value) == (0, 0)
    assert 0 < none.high < 0.1  # a label for a few images of a class could have been missed


def test_auroc_by_hand_and_as_in_scikit_learn():
    values, positive = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    assert auroc_of(values, positive).value == 0.75
    assert auroc_of(np.zeros(4), positive).value == 0.5
    assert np.isnan(auroc_of(values, np.ones(4, dtype=bool)).value)
    many, sign = rng().integers(0, 20, 500) / 20, rng().random(500) < 0.3
    assert auroc_of(many, sign).value == pytest.approx(roc_auc_score(sign, many), abs=1e-12)


def test_calibration_error_by_hand():
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]], dtype=np.float32)
    # Two bins: sure 0.9, right 1 of 2, gap 0.4; sure 0.6, right 2 of 2, gap 0.4. Their mean is 0.4.
    assert calibration_error(p, np.array([0, 1, 0, 1])) == pytest.approx(0.4, abs=1e-6)
    assert calibration_error(np.eye(2, dtype=np.float32), np.array([0, 1])) == 0


def test_uniform_answers_leak_nothing_about_the_class():
    found = measured("uniform")
    assert found.entropy.value == pytest.approx(1, abs=1e-6)
    assert found.kl.value == pytest.approx(0, abs=1e-6)
    assert found.mutual_information.value == 0
    assert found.probe[16].value == pytest.approx(1 / 3, abs=0.05)
    assert found.auroc_probe.value > 0.99  # but that they are forgotten is plain to see
    assert found.scores.acc_mem == 1


def test_a_label_mask_forgets_the_names_and_leaks():
    found, before = measured("mask"), measured("knows")
    assert found.scores.err_for == 1
    assert found.accuracy_forgotten.value == 0
    assert found.times_chance == 0
    assert before.times_chance == pytest.approx(6, abs=0.1)
    assert found.entropy.value < 0.9
    assert before.mutual_information.value > 1.4 > found.mutual_information.value


def test_all_on_one_class_is_seen_as_that():
    found = measured("one class")
    assert found.largest_share.value == 1
    assert found.lands_on == "dog"
    assert found.mutual_information.value == 0
    assert found.per_class["bird"].lands_on == "dog"


def test_partial_forgetting_is_between():
    found = measured("partial")
    assert measured("knows").entropy.value < found.entropy.value < measured("uniform").entropy.value
    assert found.accuracy_forgotten.low < found.accuracy_forgotten.value < found.accuracy_forgotten.high


def test_a_planted_leak_is_found_by_the_probe_though_the_top_label_tells_nothing():
    found = measured("planted leak")
    assert found.scores.err_for == 1
    assert found.mutual_information.value == 0
    assert found.probe[1].value > 0.95
    assert found.probe[16].low > 0.95


def test_the_table_of_rules_has_the_same_values_as_the_table_of_answers():
    p = RULES["mask-one-digit"](knows(2.0), FORGET, rng())
    found, served = (
        measure_answers(p, LABELS, FORGET, NAMES, seed=0),
        measure_served(p, LABELS, FORGET, seed=0)["as-is"],
    )
    assert served.mutual_information == found.mutual_information.value
    assert served.probe[16] == found.probe[16].value
    assert served.auroc_probe == found.auroc_probe.value
    assert served.accuracy_forgotten == found.accuracy_forgotten


def test_serving_rules_close_a_planted_leak_that_digits_carry():
    served = measure_served(forgets("planted leak"), LABELS, FORGET, seed=0)
    assert served["as-is"].probe[16] > 0.95
    assert served["top-label"].probe[16] == pytest.approx(1 / 3, abs=0.05)
    assert served["one-digit"].probe[16] < 0.5
    for rule in served.values():
        assert rule.scores.acc_mem == 1


@pytest.mark.parametrize("name", RULES)
def test_what_a_rule_serves_is_still_an_answer(name):
    p = knows()
    found = RULES[name](p, FORGET, rng())
    assert found.shape == p.shape
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-4)
    kept = ~FORGET[LABELS]
    assert (found.argmax(axis=1) == p.argmax(axis=1))[kept].all()


def test_gate_and_temperature_touch_suspect_answers_only():
    p, gone = knows(), FORGET[LABELS]
    for name in ("gate", "temperature"):
        found = RULES[name](p, FORGET, rng())
        assert (found[~gone] == p[~gone]).all()
        assert found[gone].max() < p[gone].max()


@pytest.mark.parametrize("side", ["forgotten", "kept"])
def test_membership_is_found_where_shots_are_answered_more_surely(side):
    """Of one side only; shots of the other are answered as other images of their classes are."""
    draw = np.random.default_rng(5)
    others, shots = (np.full((len(LABELS), 6), 0.1, dtype=np.float32) for _ in range(2))
    for p in (others, shots):
        p[np.arange(len(LABELS)), LABELS] = draw.random(len(LABELS)) * 0.1 + 0.4
    shots[FORGET[LABELS] == (side == "forgotten")] += 0.05
    found = measure_membership(shots, LABELS, others, LABELS, FORGET, "others")
    surer, same = (found.forgotten, found.kept) if side == "forgotten" else (found.kept, found.forgotten)
    assert surer.low > 0.7
    assert same.low < 0.5 < same.high
    assert same.value != 0.5, "another draw: alike, but not the same"
    assert (found.forgotten_shots, found.kept_shots) == (120, 120)


def test_a_probe_needs_images_to_learn_from_and_images_to_be_tested_on():
    assert k_shot_probe(knows()[:3], np.array([0, 1, 2]), 1, rng()) is None
    assert k_shot_probe(knows()[:40], LABELS[:40], 1, rng()) is None  # one class: nothing to tell
    assert forgotten_probe(knows()[:40], FORGET[LABELS[:40]], rng()) is None
    found = k_shot_probe(knows(), LABELS, 4, rng())
    assert found.accuracy > 0.95
    assert np.isnan(found.right).sum() == len(found.right) * 4 * 6  # what it was trained on is not counted
    assert k_shot_probe(knows(), LABELS, 21, rng()) is None  # 19 of each class would be left to test on


@pytest.mark.slow
def test_an_audit_of_ten_thousand_images_and_a_hundred_classes_takes_seconds():
    labels, forget = np.repeat(np.arange(100), 100), np.arange(100) < 40
    names = [str(i) for i in range(100)]
    p = softmax(3 * np.eye(100)[labels] + rng().standard_normal((10_000, 100)))
    started = time.process_time()
    for _ in ("before", "after"):
        measure_answers(p, labels, forget, names, seed=0)
    measure_served(p, labels, forget, seed=0)
    assert time.process_time() - started <= 60


def test_a_probe_reads_small_shares_beside_zeros():
    """The class is in which of two names has 0.2 and which 0.1; a zero falls on some other name at random."""
    draw, labels = np.random.default_rng(0), np.repeat([0, 1], 100)
    p = np.full((200, 6), 0.1, dtype=np.float32)
    p[np.arange(200), labels] = 0.2
    p[np.arange(200), draw.integers(2, 6, 200)] = 0
    p /= p.sum(axis=1, keepdims=True)
    assert k_shot_probe(p, labels, 16, draw).accuracy > 0.95
