"""Attacks, damage and undoing as parts of an audit: on the embedded model, whose label mask hides nothing but names."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import unsee
from unsee.audit.attack_findings import attack_findings, damage_findings
from unsee.audit.audit import audit_subject
from unsee.audit.robustness import DISTURBANCES, sample
from unsee.audit.subject import open_subject
from unsee.cli.attack_tables import attack_parts
from unsee.runs.audit_record import AuditRecord

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
    tuner.finish(out, tuner._bound(few.test), few.train.subset(tuner.config_.split.train))
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


def test_findings_on_attacks_say_leak_only_with_proof(found):
    words = {each.finding: each.mark for each in attack_findings(found)}
    assert words["a caller who chooses label lists undoes it"] == "leak"
    assert all(each.mark != "damage" or "more" in each.finding for each in damage_findings(found))
    assert [each.mark for each in damage_findings(found)].count("ok") == 0  # 28 kept images are too few for proof


def test_parts_that_a_method_does_not_allow_are_noted(model, data, tmp_path):
    tuner = unsee.PromptTuner(("bird", "cat"), "null-space-centred", shots=2).fit(model, data, out=tmp_path / "run")
    tuner.finish(tmp_path / "run", tuner._bound(data.test), data.train.subset(tuner.config_.split.train))
    record = audit_subject(open_subject(tmp_path / "run", model, data), parts=("attacks", "rebuild"))
    assert record.rebuilt is None
    assert [note.split(":")[0] for note in record.not_audited] == ["rebuild"]
    assert "asked as usual" in record.worst_case.attacks
    assert record.fragility is None  # no pictures were asked for
