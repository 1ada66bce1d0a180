"""Attacks, damage and undoing as parts of an audit: on the embedded model, whose label mask hides nothing but names."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import unsee
from unsee.audit.attack_findings import attack_findings, damage_findings
from unsee.audit.attack_tables import attack_parts
from unsee.audit.audit import audit_subject
from unsee.audit.record import AuditRecord
from unsee.audit.robustness import DISTURBANCES, sample
from unsee.audit.subject import open_subject
from unsee.runs.records import EstimateRecord

FORGET = ("airplane", "automobile", "cat")


@pytest.fixture(scope="module")
def few():
    """Six training and four test photos of each class of the demo."""
    data = unsee.load_data("demo")
    train, test = sample(data.train, seed=0, per_class=6), sample(data.test, seed=0, per_class=4)
    return dataclasses.replace(data, train=train, test=test)


@pytest.fixture(scope="module")
def subject(few, demo_features, tmp_path_factory):
    model = unsee.load_model("mini", cache=unsee.FeatureCache(demo_features))
    out = tmp_path_factory.mktemp("mini") / "run"
    tuner = unsee.PromptTuner(FORGET, "label-mask", shots=2).fit(model, few, out=out)
    tuner.finish(out, tuner.run_.bind(few.test))
    return open_subject(out, model, few)


@pytest.fixture(scope="module")
def found(subject, few):
    other = dataclasses.replace(few, name="other", test=few.test.subset(np.arange(20)))
    return audit_subject(subject, parts=("names", "pictures", "attacks", "rebuild"), other_data=other)


def test_a_label_mask_is_undone_by_other_names_and_other_lists(found):
    worst = found.worst_case
    assert worst.images == 4 * len(FORGET)
    assert worst.attacks["asked as usual"].share.value == worst.attacks["views"].share.value == 0
    assert worst.attacks["other names"].share.value > 0.5
    assert worst.any.share.value >= worst.without_labels.share.value == worst.attacks["other names"].share.value
    assert worst.any.questions == 1 + len(DISTURBANCES) + worst.attacks["other names"].questions
    rules = found.rebuilt.rules
    assert rules["as-is"].explained[16] > rules["as-is"].explained[1]
    assert rules["as-is"].from_answers.lists is not None  # answers under other lists are the plain prompt's
    assert rules["as-is"].from_answers.accuracy[16][20] > rules["top-label"].from_answers.accuracy[1][20]
    assert set(rules["as-is"].from_answers.accuracy[16]) == {20}  # 60 training images are fewer than 80


def test_near_classes_and_fragile_ones_are_counted(found, few):
    assert found.near_kept.nearest["cat"] == "dog"
    assert found.near_kept.near.images + found.near_kept.far.images == 4 * (10 - len(FORGET))
    assert set(found.near_others.nearest) == set(FORGET)
    assert not set(found.near_others.nearest.values()) & set(FORGET)
    assert found.fragility.views == len(DISTURBANCES)
    assert 0 < found.fragility.images_before <= 4 * (10 - len(FORGET))


def test_an_audit_with_attacks_is_read_back_the_same_and_printed(found):
    assert AuditRecord.model_validate_json(found.model_dump_json()) == found
    tables = attack_parts(found)
    assert len(tables) == 3
    assert tables[0].columns[0]._cells[-2:] == ["any without labelled images", "any of all"]
    assert tables[2].row_count == len(found.rebuilt.rules)


def marks_of(findings):
    return {each.finding: each.mark for each in findings}


def estimate(value, around):
    return EstimateRecord(value=value, low=value - around, high=value + around)


def test_attacks_leak_only_with_proof_and_are_harmless_only_with_proof(found):
    def with_shares(share, around):
        same = {"share": estimate(share, around), "by_chance": 0.3, "above_chance": (share - 0.3) / 0.7}
        attack = found.worst_case.any.model_copy(update=same)
        worst = found.worst_case.model_copy(update={"any": attack, "without_labels": attack, "attacks": {"a": attack}})
        return next(
            each for each in attack_findings(found.model_copy(update={"worst_case": worst})) if "attack" in each.finding
        )

    assert with_shares(0.5, 0.1).mark == "leak"
    assert with_shares(0.3, 0.04).mark == "ok"
    unsure = with_shares(0.3, 0.2)
    assert unsure.mark == "unclear"
    assert "more test images" in unsure.evidence
    assert "by chance 30 %" in unsure.evidence


def test_undoing_is_whole_in_part_or_not_shown(found):
    def undone(accuracy, lists):
        rule = found.rebuilt.rules["as-is"]
        known = rule.from_answers.model_copy(
            update={"accuracy": {16: {320: accuracy}}, "lists": lists, "images": lists}
        )
        rules = {"as-is": rule.model_copy(update={"from_answers": known})}
        rebuilt = found.rebuilt.model_copy(update={"rules": rules, "images": 300})
        return marks_of(attack_findings(found.model_copy(update={"rebuilt": rebuilt})))

    assert undone(0.9, 8)["a caller who chooses label lists undoes the forgetting"] == "leak"
    assert undone(0.5, None)["a caller who chooses label lists undoes the forgetting in part"] == "leak"
    assert undone(0.05, None)["a caller who chooses label lists does not undo the forgetting"] == "ok"
    assert "unclear" in undone(0.14, None).values()


@pytest.mark.parametrize(
    ("value", "around", "mark"), [(0.2, 0.1, "damage"), (0.0, 0.04, "ok"), (0.0, 0.2, "unclear"), (-0.3, 0.1, "ok")]
)
def test_damage_is_found_only_with_proof(found, value, around, mark):
    difference = {"difference": estimate(value, around)}
    changed = {
        part: getattr(found, part).model_copy(update=difference) for part in ("near_kept", "near_others", "fragility")
    }
    assert [each.mark for each in damage_findings(found.model_copy(update=changed))] == [mark] * 3


def test_parts_that_a_method_does_not_allow_are_noted(model, data, tmp_path):
    tuner = unsee.PromptTuner(("bird", "cat"), "null-space-centred", shots=2).fit(model, data, out=tmp_path / "run")
    tuner.finish(tmp_path / "run", tuner.run_.bind(data.test))
    record = audit_subject(open_subject(tmp_path / "run", model, data), parts=("attacks", "rebuild"))
    assert record.rebuilt is None
    assert [note.split(":")[0] for note in record.not_audited] == ["rebuild"]
    assert "asked as usual" in record.worst_case.attacks
    assert record.fragility is None  # no pictures were asked for
