"""Attacks joined, near and far damage, fragile kept classes: on constructed answers whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from unsee.audit.asking import AskedAgain, Changed, Renamed
from unsee.audit.damage import fragility, kept_damage, near_damage, nearest_kept, nearest_others
from unsee.audit.probes import Prototypes, guess_each, k_shot_probe
from unsee.audit.worst_case import by_answers, by_probe, make_attackers, worst_case

NAMES = ("airplane", "bird", "cat", "deer", "dog", "frog")
LABELS = np.repeat(np.arange(4), 50)  # forgotten images alone
GONE = np.array([True, True, True, True, False, False])
FLAT = np.full((len(LABELS), 6), 1 / 6, dtype=np.float32)
HALF = np.arange(len(LABELS)) % 2 == 0


def rng():
    return np.random.default_rng(0)


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


def answers_with(signal):
    """Answers to the forgotten images whose logs tell the class by this much, among noise of size 1."""
    return softmax(signal * np.eye(6)[LABELS] + rng().standard_normal((len(LABELS), 6)))


def test_an_attack_that_recovers_half_recovers_half():
    found = worst_case({"half": by_answers([np.where(HALF, LABELS, 5)], "one question")}, LABELS, 6, seed=0)
    attack = found.attacks["half"]
    assert attack.share.value == 0.5
    assert attack.share.low < 0.5 < attack.share.high
    assert attack.by_chance == pytest.approx(
        0.125, abs=0.02
    )  # half of the images get an answer, a quarter of these hit
    assert attack.above_chance == pytest.approx((0.5 - attack.by_chance) / (1 - attack.by_chance))
    assert (found.images, attack.questions, attack.labelled) == (200, 1, 0)


def test_two_attacks_on_different_images_recover_what_both_do():
    quarter = np.arange(len(LABELS)) % 4 == 1
    attackers = {
        "one": by_answers([np.where(HALF, LABELS, 5)], ""),
        "other": by_answers([np.where(quarter, LABELS, 5)], ""),
    }
    found = worst_case(attackers, LABELS, 6, seed=0)
    assert [found.attacks[name].share.value for name in attackers] == [0.5, 0.25]
    assert found.any.share.value == 0.75
    assert found.any.questions == 2


def test_guessing_often_is_seen_as_chance():
    guesses = [rng().integers(0, 4, len(LABELS))] + [
        np.random.default_rng(i).integers(0, 4, len(LABELS)) for i in range(1, 6)
    ]
    found = worst_case({"luck": by_answers(guesses, "six guesses")}, LABELS, 6, seed=0)
    assert found.any.by_chance == pytest.approx(1 - 0.75**6, abs=0.02)
    assert found.any.share.low < found.any.by_chance < found.any.share.high
    assert found.any.questions == 6


def test_probes_on_noise_are_at_their_chance_and_on_a_signal_far_above():
    for kind, fit in (("logistic probe", None), ("prototype probe", Prototypes)):
        for signal, leaks in ((0.0, False), (4.0, True)):
            found = worst_case({"probe": by_probe(answers_with(signal), 5, kind, fit)}, LABELS, 6, seed=0).any
            assert found.by_chance == pytest.approx(0.25, abs=0.03)
            assert (found.share.low > found.by_chance + 0.3) == leaks
            assert (found.share.low < found.by_chance < found.share.high) != leaks


def test_chance_hits_of_probes_do_not_hide_what_questions_recover():
    attackers = {
        "half": by_answers([np.where(HALF, LABELS, 5)], ""),
        **{f"probe {i}": by_probe(answers_with(0), 5 + i, "prototype probe", Prototypes) for i in range(4)},
    }
    found = worst_case(attackers, LABELS, 6, seed=0)
    assert found.without_labels.share.value == 0.5
    assert found.without_labels.by_chance == pytest.approx(0.125, abs=0.02)
    assert found.any.by_chance > 0.5


def test_a_probe_never_judges_an_image_that_it_was_shown():
    shown = []

    class Remembers(Prototypes):
        def __init__(self, features, labels):
            shown.append({row.tobytes() for row in features})
            super().__init__(features, labels)

        def __call__(self, features):
            assert not shown[-1] & {row.tobytes() for row in features}
            return super().__call__(features)

    assert guess_each(answers_with(1.0), LABELS, 5, rng(), Remembers).shape == LABELS.shape
    assert len(shown) == 2
    assert guess_each(answers_with(1.0), LABELS, 26, rng()) is None  # not twice as many images
    assert guess_each(answers_with(1.0), np.zeros_like(LABELS), 1, rng()) is None  # one class


def test_an_image_counts_as_recovered_by_another_name_only_if_that_was_asked_for():
    top = np.where(LABELS < 2, LABELS, 4)  # airplanes and birds are answered right
    asked = Renamed({"bird": "hen", "cat": "kitty"}, None, top)
    attackers = make_attackers(AskedAgain(LABELS, None, FLAT, renamed=[asked]), GONE, NAMES)
    found = worst_case(attackers, LABELS, 6, seed=0, shuffles=2)
    assert found.attacks["other names"].share.value == 0.25  # "airplane" is no other name


def test_all_attacks_have_their_budget():
    changed = Changed("changed", None, LABELS)
    asked = AskedAgain(LABELS, None, answers_with(0), pictures=[changed] * 5, templates=[changed] * 4)
    attackers = make_attackers(asked, GONE, NAMES)
    found = worst_case(attackers, LABELS, 6, seed=0, shuffles=1)
    assert list(found.attacks) == [
        "asked as usual",
        "views",
        "templates",
        "1-shot logistic probe",
        "4-shot logistic probe",
        "16-shot logistic probe",
        "1-shot prototype probe",
        "5-shot prototype probe",
    ]
    assert (found.any.questions, found.any.labelled) == (10, 16)
    assert found.any.budget == "10 questions per image, 5 probes with at most 16 labelled per class"
    assert (found.without_labels.questions, found.without_labels.labelled) == (10, 0)
    assert found.without_labels.budget == "10 questions per image"
    assert found.attacks["views"].share.value == found.without_labels.share.value == found.any.share.value == 1


def test_kept_images_are_not_attacked():
    labels = np.arange(60) % 6
    asked = AskedAgain(labels, None, np.eye(6, dtype=np.float32)[labels], pictures=[Changed("", None, labels)])
    attackers = make_attackers(asked, GONE, NAMES)
    found = worst_case(attackers, labels[GONE[labels]], 6, seed=0, shuffles=1)
    assert found.images == 40


def test_one_forgotten_class_has_no_shuffled_labels_and_no_probes():
    alone = np.full(20, 2)
    attackers = make_attackers(AskedAgain(alone, None, FLAT[:20]), GONE, NAMES)
    found = worst_case(attackers, alone, 6, seed=0)
    assert list(found.attacks) == ["asked as usual"]
    assert found.any.by_chance == pytest.approx(1 / 6)
    assert found.shuffles == 0
    assert worst_case(attackers, alone[:0], 6, seed=0) is None


def test_a_prototype_probe_finds_classes_that_differ_by_little_behind_a_large_offset():
    offset = 8 * np.eye(6)[np.full(len(LABELS), 5)]  # the same on top of all answers
    p = softmax(offset + 0.5 * np.eye(6)[LABELS] + 0.05 * rng().standard_normal((len(LABELS), 6)))
    assert k_shot_probe(p, LABELS, 1, rng(), fit=Prototypes).accuracy > 0.95
    assert k_shot_probe(answers_with(0), LABELS, 5, rng(), fit=Prototypes).accuracy == pytest.approx(0.25, abs=0.06)


def test_a_prototype_is_the_mean_of_the_logs_of_its_class():
    logs = np.log(softmax(rng().standard_normal((6, 3)))).astype(np.float64)
    labels = np.array([0, 0, 0, 1, 1, 1])
    centred = logs - logs.mean(axis=1, keepdims=True)
    means = np.stack([centred[:3].mean(axis=0), centred[3:].mean(axis=0)])
    distances = ((centred[:, None] - means) ** 2).sum(axis=2)
    np.testing.assert_array_equal(Prototypes(logs, labels)(logs).argmax(axis=1), distances.argmin(axis=1))


def test_answers_that_are_all_the_same_give_a_prototype_probe_chance():
    same = np.tile(softmax(rng().standard_normal((1, 6))), (len(LABELS), 1))
    assert k_shot_probe(same, LABELS, 5, rng(), fit=Prototypes).accuracy == pytest.approx(0.25)


FORGET = np.array([True, True, False, False, False, False])
ALL = np.repeat(np.arange(6), 40)


def test_the_nearest_kept_class_is_the_surest_one_and_never_a_forgotten_one():
    p = softmax(5.0 * np.eye(6)[ALL])
    p[ALL == 0] = softmax(np.array([[5, 4, 0, 0, 2, 0.0]]))  # airplanes look like birds, then like dogs
    p[ALL == 1] = softmax(np.array([[0, 5, 0, 1, 0, 0.0]]))
    assert nearest_kept(p, ALL, FORGET) == {0: 4, 1: 3}
    assert nearest_kept(p[ALL != 1], ALL[ALL != 1], FORGET) == {0: 4}  # no image, no neighbour


def test_the_nearest_other_class_has_most_confidence_in_the_forgotten_name():
    labels = np.repeat([0, 2], 10)
    p = np.where(labels[:, None] == 2, [[0.1, 0.2, 0.3, 0.4]], [[0.6, 0.2, 0.1, 0.1]])
    assert nearest_others(p, labels, [3, 1, 0]) == [2, 0, 0]


def test_damage_near_minus_damage_far_is_what_was_planted():
    before, after = ALL.copy(), ALL.copy()
    after[(ALL == 4) & (np.arange(len(ALL)) % 2 == 0)] = 2  # half of the dogs are lost
    after[(ALL == 5) & (np.arange(len(ALL)) % 4 == 0)] = 2  # a quarter of the frogs
    stay = ~FORGET[ALL]
    near, far, difference = near_damage(before[stay], after[stay], ALL[stay], [4])
    assert (near.classes, near.images, far.classes, far.images) == (1, 40, 3, 120)
    assert (near.before.value, near.after.value, far.before.value) == (1, 0.5, 1)
    assert far.after.value == pytest.approx(1 - 10 / 120)
    assert difference.value == pytest.approx(0.5 - 10 / 120)
    assert 0.2 < difference.low < difference.value < difference.high < 0.65
    assert near_damage(before, after, ALL, [0, 1, 2, 3, 4, 5])[2] is None  # nothing is far


def test_the_interval_of_the_difference_holds_the_truth_about_95_times_of_100():
    held, draw = 0, rng()
    near = np.arange(240) < 80
    for _ in range(300):
        lost = draw.random(240) < np.where(near, 0.3, 0.1)
        gained = draw.random(240) < 0.05
        right = draw.random(240) < 0.9
        labels = np.where(near, 1, 0)
        before = np.where(right, labels, 2)
        after = np.where(right, np.where(lost, 2, labels), np.where(gained, labels, 2))
        found = near_damage(before, after, labels, [1])[2]
        held += found.low <= 0.9 * 0.2 <= found.high
    assert 0.92 <= held / 300 <= 0.99


def test_kept_damage_names_the_neighbours():
    p = softmax(5.0 * np.eye(6)[ALL] + 2.0 * np.eye(6)[np.where(FORGET[ALL], 4, ALL)])
    found = kept_damage(p, np.eye(6)[ALL], ALL, FORGET, NAMES)
    assert found.nearest == {"airplane": "dog", "bird": "dog"}
    assert (found.near.classes, found.far.classes) == (1, 3)
    assert found.difference.value == 0


def test_fragility_counts_kept_images_that_some_view_turns_wrong():
    wrong = np.full_like(ALL, 0)
    tenth, other = np.arange(len(ALL)) % 10 == 0, np.arange(len(ALL)) % 10 == 5
    views = [Changed("a", ALL, np.where(tenth, wrong, ALL)), Changed("b", ALL, np.where(other, wrong, ALL))]
    known = np.where(ALL == 5, 0, ALL)  # frogs are not recognised without change
    found = fragility(AskedAgain(ALL, None, np.eye(6)[known], pictures=views), FORGET)
    assert (found.views, found.images_before, found.images_after) == (2, 0, 120)
    assert found.before is None
    assert found.after.value == pytest.approx(0.2)
    both = fragility(AskedAgain(ALL, ALL, np.eye(6)[known], pictures=views), FORGET)
    assert both.before.value == 0
    assert both.difference.value == pytest.approx(0.2)
    assert 0.1 < both.difference.low < both.difference.high < 0.3
