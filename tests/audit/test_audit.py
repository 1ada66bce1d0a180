"""`unsee audit` on finished runs: every method, every part, what is written, what is said."""

from __future__ import annotations

import dataclasses
import json
import shutil
from functools import partial

import numpy as np
import pytest

import unsee
from unsee.answers.rules import rules_for_prompts
from unsee.audit import relearning
from unsee.audit.asking import sample
from unsee.audit.audit import audit, audit_case
from unsee.audit.case import Case
from unsee.audit.probes import k_shot_probe
from unsee.audit.record import VERSION, AuditRecord, read_audit
from unsee.audit.renaming import ask_other_names
from unsee.audit.side_by_side import audits_table, served_table
from unsee.audit.subject import open_subject
from unsee.audit.variations import DISTURBANCES, swap_templates
from unsee.cli import main
from unsee.data.other_names import known_names, read_names_file, rounds
from unsee.methods.registry import METHODS
from unsee.models.black_box import bind
from unsee.report.comparison import compare
from unsee.report.html import write_report
from unsee.runs.folder import read_result
from unsee.runs.picking import pick_prompt
from unsee.runs.sweep import Workspace

FORGET = ("airplane", "bird", "cat")


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Few trials: what they are worth is tested in test_intervals.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unsee.audit.leakage.k_shot_probe", partial(k_shot_probe, trials=2))
        yield


def make_run(model, data, out, method="lcs", **settings):
    tuner = unsee.PromptTuner(FORGET, method, shots=2, **settings).fit(model, data, out=out)
    tuner.finish(out, tuner.run_.bind(data.test))
    return tuner


@pytest.fixture(scope="module")
def runs(model, data, tmp_path_factory):
    root = tmp_path_factory.mktemp("audited")
    make_run(model, data, root / "lcs", iterations=3)
    make_run(model, data, root / "label-mask", "label-mask")
    return root


@pytest.fixture(scope="module")
def found(model, data, runs):
    return audit(runs / "lcs", model, data)


def test_an_audit_has_every_part_and_agrees_with_the_run(found, runs, data):
    result = read_result(runs / "lcs")
    assert found.after.scores == result.served.scores
    assert found.serving["as-is"].scores == result.test
    assert found.serving[found.serve].scores == result.served.scores
    assert found.before.scores == result.zero_shot
    assert found.serving["as-is"].entropy == pytest.approx(result.entropy_forgotten.after)
    assert set(found.after.per_class) == set(FORGET)
    for name, record in found.after.per_class.items():
        assert record.accuracy.value == pytest.approx(result.per_class[name].after)
    assert found.chance == 0.1
    assert found.probe_chance == pytest.approx(1 / 3)
    assert set(found.after.probe) == {1, 4, 16}
    assert found.after.probe[4] is None  # there are six test images per class: fewer left than shown
    assert {v.name for v in found.pictures} == set(DISTURBANCES)
    assert len(found.templates) == 4
    assert found.distractors.name == "20 more names"
    assert found.membership.others == "training images that were not used"
    assert {"aeroplane", "plane", "jet"} <= {o.name for o in found.other_names}
    assert found.not_audited == ()
    assert {each.images for each in found.after.per_class.values()} == {6}
    assert all(
        each.eligibility in ("known", "never known", "too few images") for each in found.after.per_class.values()
    )
    assert found.after.images == 18
    assert all(each.images == 18 and each.recognised for each in (*found.templates, found.distractors, *found.pictures))
    assert all(each.images == 6 and each.accuracy.value == each.after for each in found.other_names)
    assert found.change_kept.value == pytest.approx(found.after.scores.acc_mem - found.before.scores.acc_mem)
    assert found.image_queries > 2 * len(data.test)


def test_it_is_written_beside_the_run_and_into_its_result(found, runs):
    assert read_audit(runs / "lcs") == found
    summary = read_result(runs / "lcs").audit
    assert summary.verdict == found.verdict
    assert summary.findings == found.findings
    assert len(found.verdict) == len(found.findings) > 5
    assert summary.probe == found.after.probe


def test_an_audit_is_the_same_again(found, model, data, runs):
    again = audit_case(Case(open_subject(runs / "lcs", model, data)), parts=["membership", "names"])
    for part in ("before", "after", "serving", "membership", "other_names"):
        assert getattr(again, part) == getattr(found, part)


SOME = ("null-space-centred",)  # a kind that the tests here do not meet anyway, and a quick one


@pytest.mark.parametrize("method", [m if m in SOME else pytest.param(m, marks=pytest.mark.slow) for m in METHODS])
def test_every_method_can_be_audited(method, model, data, tmp_path):
    own = METHODS[method]
    settings = {} if own.untuned else {"iterations": 1}
    if method == "cbbt":
        settings["population"] = 5
    tuner = make_run(model, data, tmp_path / "run", method, **settings)
    subject = open_subject(tmp_path / "run", model, data)
    expected = tuner.fitted_.confidences(tuner.run_.bind(data.test))
    np.testing.assert_array_equal(subject.unserved(subject.bind(data.test)), expected)  # the run itself, again
    record = audit(tmp_path / "run", model, data, parts=["names", "distractors"])
    assert record.method == method
    result = read_result(tmp_path / "run")
    assert record.after.scores == (result.test if result.served is None else result.served.scores)
    assert bool(record.other_names) == subject.takes_names
    assert len(record.not_audited) == (0 if subject.takes_names else 2)


def test_a_label_mask_does_not_find_other_names_on_its_list(model, data, runs):
    record = audit(runs / "label-mask", model, data, parts=["names", "distractors"])
    assert record.after.scores.err_for == 1
    assert any(o.after > 0 for o in record.other_names) == any(o.before > 0 for o in record.other_names)
    for other in record.other_names:
        assert other.after >= other.before  # nothing is removed that could be in its way
    assert record.distractors.after.err_for == 1  # its own names still are


def test_contexts_for_forgotten_names_go_with_these_names(model, data, tmp_path):
    make_run(model, data, tmp_path / "run", iterations=1, applies_to="forgotten", serve="as-is")
    subject = open_subject(tmp_path / "run", model, data)
    few = sample(data.test, seed=0, per_class=1)
    assert len(ask_other_names(subject, few, {"cat": ["kitty"]})) == 1
    assert swap_templates(subject, few, ["a drawing of a {}"])[0].name == "a drawing of a {}"
    bound, none = bind(model, few, ["lamp", "dog"]), [None] * len(data.class_names)
    found = subject.after_renamed(bound, np.zeros(2, bool), none)
    np.testing.assert_array_equal(found, bound.zero_shot(subject.template))  # no name is left for the contexts


def test_relearning_counts_the_images_that_bring_classes_back(model, data, runs, monkeypatch):
    monkeypatch.setattr("unsee.audit.relearning.RELEARN_STEPS", 2)
    record = audit(runs / "lcs", model, data, parts=["relearning"]).relearned
    assert record.method == "coop"
    assert set(record.accuracy) <= {1, 2, 4}  # each class has eight images to tune and validate on
    assert set(record.per_class) == set(FORGET)
    masked = audit(runs / "label-mask", model, data, parts=["relearning"]).relearned
    assert set(masked.accuracy.values()) == {0.0}  # a removed name is never answered, whatever the prompt
    assert masked.recognised[1].high > 0.1  # of 18 images


def test_relearning_is_the_same_attack_under_every_preset(model, data, runs):
    subject = open_subject(runs / "lcs", model, data)
    paper = dataclasses.replace(subject.task, settings=dataclasses.replace(subject.task.settings, preset="paper"))
    found = [relearning._task(each, model, 1).settings for each in (subject, dataclasses.replace(subject, task=paper))]
    assert [each.preset for each in found] == ["tuned", "paper"]
    for name in ("iterations", "rate", "rate_unit", "optimizer", "batch", "views", "validate"):
        assert getattr(found[0], name) == getattr(found[1], name), name


def test_a_black_box_is_relearned_by_search(model, data, runs, monkeypatch):
    monkeypatch.setattr("unsee.audit.relearning.ITERATIONS", 1)

    class Remote(NoText):
        def bind(self, images, class_names):
            bound, inner = super().bind(images, class_names), self._model.bind(images, class_names)
            bound.zero_shot = inner.zero_shot
            return bound

    record = audit(runs / "lcs", Remote(model), data, parts=["relearning"])
    assert record.relearned.method == "lcs"
    assert record.image_queries > 20 * 2 * len(FORGET)


class NoText:
    """A model that answers contexts alone, as a service might."""

    def __init__(self, model):
        self.card, self._model = model.card, model

    def bind(self, images, class_names):
        bound = self._model.bind(images, class_names)
        return type("Bound", (), {"confidences": staticmethod(bound.confidences), "room": bound.room})()


def test_a_model_without_plain_text_prompts_is_audited_without_a_before(model, data, runs):
    record = audit(runs / "lcs", NoText(model), data, parts=("names", "pictures", "relearning"))
    assert record.before is None
    assert record.pictures[0].before is None
    assert record.other_names[0].before is None
    assert [sentence.split(":")[0] for sentence in record.not_audited] == ["relearning"]
    with pytest.raises(unsee.InputError, match="plain-text prompt"):
        audit(runs / "label-mask", NoText(model), data)


def test_a_picked_prompt_can_be_audited(model, data, runs):
    _, folder = pick_prompt(runs / "lcs", acc_mem=0.0)
    record = audit(folder, model, data, parts=[])
    assert read_audit(folder) == record
    assert {path.name for path in folder.iterdir()} == {
        "audit.json",
        "config.json",
        "pick.json",
        "prompt.json",
        "prompt.safetensors",
    }


def test_other_data_has_classes_that_were_in_neither_list(model, data, runs, tmp_path):
    names = ("cat", "lamp", "tree")
    labels = np.arange(60) % 3
    test = dataclasses.replace(data.test.subset(np.arange(60)), class_names=names, labels=labels)
    record = audit(runs / "lcs", model, data, parts=[], other_data=unsee.Data("mine", test, test)).other_data
    assert record.classes == 2  # the cat was to be forgotten
    assert 0 <= record.after <= 1


def test_the_audit_is_deleted_when_a_run_is_continued(model, data, tmp_path):
    tuner = make_run(model, data, tmp_path / "run", iterations=1)
    audit(tmp_path / "run", model, data, parts=[])
    tuner.resume(model, data, tmp_path / "run", iterations=2)
    assert read_audit(tmp_path / "run") is None


def test_what_cannot_be_audited_is_refused(model, data, runs, tmp_path):
    with pytest.raises(unsee.InputError, match="part of an audit"):
        audit(runs / "lcs", model, data, parts=["everything"])
    unsee.PromptTuner(FORGET, shots=2, iterations=1).fit(model, data, out=tmp_path / "run")
    with pytest.raises(unsee.RunError, match="not a finished run"):
        audit(tmp_path / "run", model, data)
    other = dataclasses.replace(data, test=data.test.subset(np.arange(30)))
    with pytest.raises(unsee.InputError, match="cannot be audited"):
        audit(runs / "lcs", model, other)


def test_names_come_from_wordnet_or_from_the_user(tmp_path):
    assert known_names(["automobile", "no such class"])["automobile"][:2] == ("car", "auto")
    assert "no such class" not in known_names(["no such class"])
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"cat": ["kitty", " tabby "]}))
    assert read_names_file(path) == {"cat": ("kitty", "tabby")}
    for text in ("[]", '{"cat": "kitty"}', "{"):
        path.write_text(text)
        with pytest.raises(unsee.InputError, match=r"names\.json"):
            read_names_file(path)


def test_a_round_asks_for_each_class_under_one_name_that_no_class_has():
    others = {"cat": ["kitty", "dog", "puss"], "dog": ["hound"], "bird": ["hen"]}
    found = rounds(["cat", "dog", "bird"], ["cat", "dog"], others)
    assert found == [{"cat": "kitty", "dog": "hound"}, {"cat": "puss"}]


def test_disturbed_images_differ_and_are_images(data):
    image = data.test.read(0).convert("RGB")
    for change in DISTURBANCES.values():
        changed = change(image)
        assert changed.mode == "RGB"
        assert changed.tobytes() != image.tobytes()


def test_a_sample_has_so_many_of_each_class(data):
    chosen = sample(data.test, seed=0, per_class=2)
    assert (np.bincount(chosen.labels) == 2).all()


def test_the_command_prints_tables_and_a_verdict(runs, model_folder, capsys, tmp_path):
    arguments = [str(runs / "lcs"), "--no-cache", "--skip", "membership,templates,distractors,pictures"]
    assert main(["audit", *arguments]) == 0
    text = capsys.readouterr().out
    for words in (
        "class recovered by a 1-shot probe",
        "mask-top-digit (as served)",
        "as-is (prompt alone)",
        "verdict, of answers alone:",
        "jet",
        "bits the top label leaks",
    ):
        assert words in text
    assert main(["audit", *arguments[:3], f"names,{arguments[3]}", "--json"]) == 0
    AuditRecord.model_validate_json(capsys.readouterr().out)
    assert main(["audit", *arguments[:2], "--skip", "all"]) == 1
    assert "part to skip" in capsys.readouterr().err
    assert main(["pick", str(runs / "lcs"), "--acc-mem", "0", "--out", str(tmp_path / "p"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == str(tmp_path / "p")
    assert main(["evaluate", str(tmp_path / "p"), "--no-cache"]) == 0
    assert main(["pick", str(runs / "lcs")]) == 2


def test_other_names_of_what_is_not_forgotten_are_refused(runs, model_folder, capsys, tmp_path):
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"catt": ["kitty"]}))
    assert main(["audit", str(runs / "lcs"), "--no-cache", "--names", str(path)]) == 1
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert "unknown forgotten class in the list of other names 'catt'; did you mean 'cat'?" in told


def test_an_audit_by_other_measures_reads_as_none_and_a_damaged_one_is_refused(model, data, runs, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(runs / "label-mask", folder)
    audit(folder, model, data, parts=[])
    path = folder / "audit.json"
    content = json.loads(path.read_text())
    for changed in ({"version": VERSION - 1}, {"version": VERSION + 1, "after": "of another kind"}):
        path.write_text(json.dumps(content | changed))
        assert read_audit(folder) is None
    old = {name: value for name, value in content.items() if name not in ("version", "serve", "after")}
    path.write_text(json.dumps(old))  # as before versions had numbers
    assert read_audit(folder) is None
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"audit": {"verdict": "of another kind"}}))
    assert read_result(folder).audit is None
    assert read_result(folder).test == read_result(runs / "label-mask").test
    path.write_text('{"version":')
    with pytest.raises(unsee.RunError, match=r"audit\.json: damaged") as error:
        read_audit(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ['{"method": "label-mask"}', '{"version": 999}', "{"])
def test_a_comparison_makes_audits_of_another_version_again(content, model, data, tmp_path, monkeypatch):
    monkeypatch.setattr("unsee.report.comparison.audit", partial(audit, parts=[]))
    workspace, said = Workspace(model, data, tmp_path), []

    def run():
        given = ("cat", "dog"), ["label-mask"], [0]
        return compare(workspace, *given, settings={"shots": 2}, audited=True, say=said.append)

    found = run()
    for path in tmp_path.glob("*/audit.json"):
        path.write_text(content)
    assert run() == found
    assert sum(text.startswith("auditing ") for text in said) == 2


@pytest.mark.slow
def test_a_report_shows_the_audit_and_the_trade_offs(found, runs, tmp_path):
    write_report([runs / "lcs"], tmp_path / "page.html", ["svg", "csv", "tex"])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Is it really forgotten?" in page
    assert "Trade-offs to pick from" in page
    assert "<li><strong>unclear</strong>: " in page  # the verdict, as a list
    assert found.findings[0].finding in page
    assert (tmp_path / "page-front.svg").is_file()
    assert (tmp_path / "page-audits.csv").read_text(encoding="utf-8").splitlines()[1].startswith("lcs,1,")
    assert "What the answers leak" in (tmp_path / "page.tex").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_comparison_audits_every_method_and_goal(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr("unsee.report.comparison.audit", partial(audit, parts=[]))  # the answers alone: quicker
    workspace, given = Workspace(model, data, tmp_path), {"shots": 2, "iterations": 1}
    said = []

    def run():
        wanted = ("cat", "dog"), ["label-mask", "lcs"], [0]
        return compare(workspace, *wanted, settings=given, goals=["entropy", "push"], audited=True, say=said.append)

    found = run()
    rows = ["label-mask", "lcs, entropy", "lcs, push"]
    assert [row.name for row in found.audits] == [row.method for row in found.methods] == rows
    assert found.audits[0].probe[1] is not None
    assert len(found.served) == 3 * len(rules_for_prompts())
    assert found.served[0].h == found.methods[0].h  # as it is
    assert sum("auditing" in text for text in said) == 3
    assert run() == found
    assert sum("auditing" in text for text in said) == 3  # audited before
    assert len(audits_table(found.audits).rows) == 3
    assert len(served_table(found.served).rows) == 3 * len(rules_for_prompts())
    with pytest.raises(unsee.InputError, match="unknown goal"):
        compare(workspace, ("cat",), ["lcs"], [0], goals=["none"])
