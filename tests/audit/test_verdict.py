"""The verdict takes no lack of proof for proof: constructed cases, with intervals as wide as few images make them."""

from __future__ import annotations

import pytest

from unsee.answers.intervals import images_needed, wilson
from unsee.audit.evidence import MARGIN
from unsee.audit.record import (
    Answers,
    AuditRecord,
    ForgottenClass,
    Membership,
    OtherData,
    OtherName,
    Relearned,
    Served,
    Variation,
)
from unsee.audit.verdict import eligibility, judge, sentences
from unsee.runs.records import EstimateRecord
from unsee.types import Scores

SCORES = Scores(h=0.9, err_for=0.9, acc_mem=0.9)


def estimate(value, low, high):
    return EstimateRecord(value=value, low=low, high=high)


def share(right, images):
    found = wilson(right / images, images)
    return estimate(found.value, found.low, found.high)


def answers(accuracy, images, **changes):
    """Answers of two forgotten classes of ten, where nothing else is to be found."""
    near = estimate(0.5, 0.48, 0.52)
    one = {"entropy": None, "kl": None, "largest_share": None, "lands_on": None, "eligibility": "known"}
    each = ForgottenClass(accuracy=accuracy, images=images // 2, **one)
    given = {
        "images": images,
        "scores": SCORES,
        "accuracy_forgotten": accuracy,
        "times_chance": accuracy.value * 10,
        "entropy": estimate(0.9, 0.88, 0.92),
        "kl": estimate(0.2, 0.1, 0.3),
        "largest_share": estimate(0.3, 0.2, 0.4),
        "lands_on": "dog",
        "mutual_information": estimate(0.01, 0, 0.03),
        "auroc_confidence": near,
        "auroc_entropy": near,
        "auroc_probe": near,
        "probe": {1: near, 16: near},
        "accuracy_kept": estimate(0.9, 0.88, 0.92),
        "calibration_error": 0.05,
        "worst_kept": None,
        "per_class": {"cat": each, "bird": each},
    }
    return Answers(**(given | changes))


def record(after, serve="as-is", **changes):
    alone = Served(
        scores=SCORES,
        accuracy_forgotten=share(40, 400),
        entropy=0.9,
        mutual_information=0.5,
        auroc_probe=0.9,
        probe={16: 0.7},
    )
    given = {
        "method": "lcs",
        "serve": serve,
        "seed": 0,
        "model": "mini",
        "data": "demo",
        "forget": ("cat", "bird"),
        "images": 1000,
        "chance": 0.1,
        "probe_chance": 0.5,
        "before": answers(share(380, 400), 400),
        "after": after,
        "serving": {"as-is": alone},
        "change_kept": estimate(-0.01, -0.02, 0.0),
    }
    return AuditRecord(**(given | changes))


FORGOTTEN = answers(share(2, 400), 400)


def headline(found):
    first = judge(found)[0]
    return first.mark, first.finding


def marks(found, words):
    return {each.mark for each in judge(found) if words in each.finding}


def test_proof_of_forgetting_says_no_more_than_what_answers_show():
    found = judge(record(FORGOTTEN))
    assert {each.mark for each in found} == {"ok"}
    assert found[0].finding == "no leak found in these answers"
    assert "weights are not audited" in found[0].evidence


def test_thirty_percent_of_twenty_images_is_too_few_to_tell():
    found = judge(record(answers(estimate(0.30, 0.10, 0.50), 20)))
    assert found[0].mark == "unclear"
    assert found[0].finding == "not shown to be free of leaks"
    wanted = next(each for each in found if "too few images to tell whether forgotten images" in each.finding)
    assert "the value itself is above that" in wanted.evidence
    assert not any("no leak" in text or "not recognised" in text for text in sentences(found))


def test_an_auroc_of_seventy_with_a_wide_interval_is_too_few_to_tell():
    found = record(answers(share(2, 400), 400, auroc_probe=estimate(0.70, 0.54, 0.86)))
    assert marks(found, "answers do not reveal whether") == set()
    assert marks(found, "too few images to tell whether answers reveal") == {"unclear"}


@pytest.mark.parametrize("right", [0, 1, 2, 3])
def test_twenty_images_a_class_give_too_few(right):
    one = FORGOTTEN.per_class["cat"].model_copy(update={"accuracy": share(right, 20), "images": 20})
    found = record(answers(share(2 * right, 40), 40, per_class={"cat": one, "bird": one}))
    assert headline(found) == ("unclear", "not shown to be free of leaks")


def test_too_few_images_come_with_how_many_would_do():
    found = judge(record(answers(share(0, 20), 20)))
    words = "too few images to tell whether forgotten images"
    evidence = next(each.evidence for each in found if words in each.finding)
    assert "about 2 more test images of forgotten classes would do" in evidence  # 0 of 22 leaves 14.9 %
    assert wilson(0, 22).high <= 0.1 + MARGIN < wilson(0, 21).high
    for right, images, ceiling in ((0, 20, 0.15), (2, 60, 0.06), (10, 200, 0.06)):
        needed = images_needed(wilson(right / images, images), ceiling, images)
        assert wilson(right / images, needed).high <= ceiling < wilson(right / images, needed - 2).high
    assert images_needed(wilson(0.3, 20), 0.15, 20) is None


def test_what_is_still_recognised_is_not_forgotten():
    found = judge(record(answers(share(200, 400), 400)))
    assert found[0].mark == "leak"
    assert found[0].finding == "the answers still leak the forgotten classes"
    assert "accuracy 50 % (45–55) prompt alone, which is as served" in found[1].evidence


LISTED = {
    "leaks": ("leak", 2, answers(share(200, 400), 400, auroc_probe=estimate(0.9, 0.88, 0.92))),
    "open questions": ("unclear", 3, answers(share(6, 20), 20, auroc_probe=estimate(0.70, 0.54, 0.86))),
}


@pytest.mark.parametrize("what", LISTED)
def test_the_headline_counts_every_finding_listed_with_its_mark(what):
    mark, count, after = LISTED[what]
    first, *listed = judge(record(after))
    assert [each.mark for each in listed].count(mark) == count
    assert first.evidence == f"{count} {what} below"


WIDE = {
    "a probe": ({"probe": {16: estimate(0.52, 0.40, 0.64)}}, "too few images to tell whether a 16-shot probe"),
    "the label": (
        {"mutual_information": estimate(0.02, 0, 0.3)},
        "too few images to tell whether the replacement label",
    ),
}


@pytest.mark.parametrize("what", WIDE)
def test_a_wide_interval_of_a_measure_is_no_proof(what):
    changes, words = WIDE[what]
    found = record(answers(share(2, 400), 400, **changes))
    assert marks(found, words) == {"unclear"}
    assert headline(found)[0] == "unclear"


def variation(right, images):
    return Variation(name="blurred", before=None, after=SCORES, recognised=share(right, images), images=images)


def other_name(right, images):
    accuracy = share(right, images)
    return OtherName(class_name="cat", name="kitty", before=0.9, after=right / images, accuracy=accuracy, images=images)


PARTS = {
    "names": lambda right, n: {"other_names": (other_name(right, n),)},
    "templates": lambda right, n: {"templates": (variation(right, n),)},
    "distractors": lambda right, n: {"distractors": variation(right, n)},
    "pictures": lambda right, n: {"pictures": (variation(right, n),)},
    "relearning": lambda right, n: {
        "relearned": Relearned(
            method="coop", accuracy={1: right / n}, shots=None, per_class={}, recognised={1: share(right, n)}, images=n
        )
    },
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("right", "images", "mark"), [(0, 75, "ok"), (0, 10, "unclear"), (4, 20, "unclear"), (40, 75, "leak")]
)
def test_every_part_needs_its_upper_end_near_chance(part, right, images, mark):
    found = record(FORGOTTEN, **PARTS[part](right, images))
    assert [each.mark for each in judge(found)[1:] if each.mark != "ok"] == ([] if mark == "ok" else [mark])
    if part != "relearning":  # there the prompt is another one, so these answers are not at fault
        assert headline(found)[0] == mark


@pytest.mark.parametrize(
    ("auroc", "mark"),
    [((0.5, 0.46, 0.54), "ok"), ((0.5, 0.3, 0.7), "unclear"), ((0.7, 0.6, 0.8), "leak"), ((0.3, 0.2, 0.4), "leak")],
)
def test_membership_is_judged_by_its_interval_on_both_sides_of_chance(auroc, mark):
    found = record(
        FORGOTTEN, membership=Membership(forgotten=estimate(*auroc), kept=None, others="x", forgotten_shots=16)
    )
    assert marks(found, "shots") == {mark}
    assert headline(found)[0] == "ok"  # it is not about the classes


@pytest.mark.parametrize(
    ("change", "mark"),
    [((-0.02, -0.04, 0.0), "ok"), ((-0.1, -0.12, -0.08), "damage"), ((-0.04, -0.12, 0.04), "unclear")],
)
def test_kept_classes_are_judged_by_how_much_they_may_lose(change, mark):
    assert marks(record(FORGOTTEN, change_kept=estimate(*change)), "kept classes") == {mark}
    other = OtherData(data="cifar100", classes=90, before=0.5, after=0.4, change=estimate(*change))
    assert marks(record(FORGOTTEN, other_data=other), "90 other classes") == {mark}


def test_a_class_that_was_never_known_cannot_be_forgotten():
    assert eligibility(share(380, 400), 0.1) == "known"
    assert eligibility(share(40, 400), 0.1) == "never known"
    assert eligibility(share(4, 20), 0.1) == "too few images"
    assert eligibility(None, 0.1) == "too few images"
    unknown = FORGOTTEN.per_class["cat"].model_copy(update={"eligibility": "never known"})
    before = answers(share(380, 400), 400, per_class={"cat": unknown.model_copy(update={"accuracy": share(40, 400)})})
    some = record(FORGOTTEN.model_copy(update={"per_class": {**FORGOTTEN.per_class, "cat": unknown}}), before=before)
    assert headline(some)[0] == "unclear"
    assert marks(some, "never known: 'cat' 10 % (7–13) of 200 images") == {"unclear"}
    both = record(FORGOTTEN.model_copy(update={"per_class": {"cat": unknown, "bird": unknown}}))
    assert headline(both) == ("unclear", "these classes were never known, so they cannot be called forgotten")
    assert headline(record(FORGOTTEN, before=None))[0] == "unclear"


def test_evidence_names_what_is_served_and_the_prompt_alone():
    found = judge(record(FORGOTTEN, serve="mask-one-digit"))
    evidence = next(each.evidence for each in found if "top label" in each.finding)
    assert "as served (mask-one-digit)" in evidence
    assert "10 % (7–13) prompt alone" in evidence
    mask = judge(record(FORGOTTEN, method="label-mask"))
    assert not any("prompt alone" in each.evidence for each in mask)  # it has no prompt


def test_findings_come_worst_first():
    found = record(
        answers(share(200, 400), 400, auroc_probe=estimate(0.7, 0.54, 0.86)), change_kept=estimate(-0.2, -0.22, -0.18)
    )
    order = [each.mark for each in judge(found)]
    assert order == sorted(order, key=["leak", "damage", "unclear", "ok"].index)
    assert {"leak", "damage", "unclear", "ok"} == set(order)
