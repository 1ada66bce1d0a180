"""A shorter audit never replaces a fuller one, and says what it could not try."""

from __future__ import annotations

import json
from functools import partial

import pytest

import unsee
from unsee.audit.audit import audit
from unsee.audit.probes import k_shot_probe
from unsee.audit.record import read_audit
from unsee.cli import main
from unsee.data.other_names import LIST, known_names
from unsee.runs.folder import read_result
from unsee.runs.records import write_record

FORGET = ("bird", "cat")


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unsee.audit.leakage.k_shot_probe", partial(k_shot_probe, trials=2))
        yield


@pytest.fixture
def run(model, data, tmp_path):
    tuner = unsee.PromptTuner(FORGET, shots=2, iterations=2).fit(model, data, out=tmp_path / "run")
    tuner.finish(tmp_path / "run", tuner.run_.bind(data.test))
    return tmp_path / "run"


def test_a_shorter_audit_keeps_what_it_leaves_out(run, model, data, model_folder, capsys):
    full = audit(run, model, data, parts=("names", "templates", "attacks"))
    assert main(["audit", str(run), "--no-cache", "--skip", "templates,pictures,attacks,rebuild,membership"]) == 0
    out, err = capsys.readouterr()
    assert "kept from the earlier audit: templates, attacks" in err
    assert full.templates[0].name in out
    now = read_audit(run)
    assert (now.templates, now.worst_case, now.other_names) == (full.templates, full.worst_case, full.other_names)
    assert now.distractors is not None
    assert set(full.findings[1:]) <= set(now.findings)
    assert read_result(run).audit.findings == now.findings


def test_an_audit_of_other_answers_is_replaced(run, model, data):
    full, said = audit(run, model, data, parts=("names", "templates")), []
    write_record(run / "audit.json", full.model_copy(update={"images": full.images + 1}))
    now = audit(run, model, data, parts=("names",), say=said.append)
    assert now.templates == ()
    assert "the earlier audit is of other answers and is replaced" in said


def test_names_that_were_not_tried_are_listed_with_how_to_give_them(model, tmp_path):
    from tests import tiny

    names = ("cat", "qwertz", "dog", "frog")
    images = unsee.load_data(tiny.write_images(tmp_path / "images", names, train=4, test=3))
    tuner = unsee.PromptTuner(["cat", "qwertz"], shots=2, iterations=1).fit(model, images, out=tmp_path / "run")
    tuner.finish(tmp_path / "run", tuner.run_.bind(images.test))
    (note,) = audit(tmp_path / "run", model, images, parts=("names",)).not_audited
    assert "other names of qwertz: none are known" in note
    assert '--names FILE, as JSON such as {"qwertz": ["another name"]}' in note
    given = {"cat": ["kitty"], "qwertz": ["keyboard"]}
    assert audit(tmp_path / "run", model, images, parts=("names",), other_names=given).not_audited == ()


def test_everyday_classes_have_other_names_and_the_list_is_small():
    assert "cap" in known_names(["hat"])["hat"]
    assert "sneaker" in known_names(["Shoe"])["Shoe"]
    found = known_names(["shirt", "couch", "bus", "tractors"])
    assert all(found.values())
    assert len(found) == 4
    assert LIST.stat().st_size < 300_000
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    assert len(listed["names"]) > 500
    assert all(name.lower() == name for name in listed["names"])
