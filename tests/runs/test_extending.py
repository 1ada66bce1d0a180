"""A run for other classes starts from the answers of an earlier one, and only from answers that are its own too."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import unsee
from tests import tiny
from tests.runs.test_resume_rules import Stop, stop_after
from unsee import InputError, PromptTuner, RunError
from unsee.cli import main
from unsee.runs.extending import inherit, other_list
from unsee.runs.folder import read_config, read_result
from unsee.runs.tuning import start_run

FORGET = ["airplane", "automobile", "bird", "cat"]


def tasks(parent, model, data, forget, **settings):
    config = read_config(parent)
    before = PromptTuner.from_config(config)
    after = PromptTuner.from_config(config).set_params(forget=forget, **settings)
    return before.task(model, data), after.task(model, data)


@pytest.fixture(scope="module")
def parent(model, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "parent"
    PromptTuner(FORGET, "guided", shots=4, image_queries=6_000).fit(model, data, out=out)
    return out


def test_it_asks_little_and_starts_from_candidates_that_are_good_for_the_new_list(parent, model, data, tmp_path):
    before, after = tasks(parent, model, data, FORGET[1:], image_queries=1_000)
    found = start_run(inherit(parent, before, after), tmp_path / "child")
    ledger, history = found.recorder.ledger, found.recorder.history
    assert ledger.image_queries <= 1_000
    assert history[0].ledger["candidates"] == 0  # known answers: nothing was asked
    assert history[0].chosen is not None
    config = read_config(tmp_path / "child")
    assert config.parent is not None
    assert (config.parent.run, config.parent.forget) == ("parent", tuple(FORGET))


def test_it_is_resumed_without_its_parent(parent, model, data, tmp_path):
    before, after = tasks(parent, model, data, FORGET[1:], image_queries=1_500)
    task = inherit(parent, before, after)
    with pytest.raises(Stop):
        start_run(task, tmp_path / "child", watch=stop_after(5))
    PromptTuner.from_config(read_config(tmp_path / "child")).resume(model, data, tmp_path / "child")
    start_run(task, tmp_path / "whole")
    for name in ("prompt.safetensors", "prompt.json", "replies.bin", "inherited.safetensors"):
        assert (tmp_path / "child" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_run_that_was_extended_can_be_extended(parent, model, data, tmp_path):
    before, after = tasks(parent, model, data, FORGET[1:], image_queries=1_000)
    start_run(inherit(parent, before, after), tmp_path / "child")
    before, after = tasks(tmp_path / "child", model, data, FORGET[2:], image_queries=1_000)
    task = inherit(tmp_path / "child", before, after)
    start_run(task, tmp_path / "grandchild")
    assert read_config(tmp_path / "grandchild").parent.run == "child"


def test_inherited_answers_that_were_changed_are_refused(parent, model, data, tmp_path):
    before, after = tasks(parent, model, data, FORGET[1:], image_queries=1_000)
    start_run(inherit(parent, before, after), tmp_path / "child")
    path = tmp_path / "child/inherited.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RunError, match="not what the run started from"):
        PromptTuner.from_config(read_config(tmp_path / "child")).resume(
            model, data, tmp_path / "child", image_queries=2_000
        )


def test_answers_of_another_model_are_not_reused(parent, data, tmp_path):
    other = unsee.load_model(tiny.write_model(tmp_path / "other", seed=5))
    with pytest.raises(RunError, match="another model"):
        inherit(parent, *tasks(parent, other, data, FORGET[1:]))


def test_answers_to_other_images_are_not_reused(parent, model, data, tmp_path):
    changed = unsee.load_data(tiny.write_images(tmp_path / "others", seed=9))
    with pytest.raises(RunError, match="other images under the same names"):
        inherit(parent, *tasks(parent, model, changed, FORGET[1:]))


def test_answers_about_other_names_are_not_reused(parent, model, tmp_path):
    fewer = unsee.load_data(tiny.write_images(tmp_path / "fewer", names=tiny.NAMES[:5]))
    with pytest.raises(RunError, match="another data set"):
        inherit(parent, *tasks(parent, model, fewer, FORGET[1:]))


@pytest.mark.parametrize(
    "given", [{"position": "middle"}, {"contexts": 3}, {"template": "{}"}, {"shots": 3}, {"applies_to": "forgotten"}]
)
def test_answers_under_other_prompts_are_not_reused(parent, model, data, given):
    before, after = tasks(parent, model, data, FORGET[1:], **given)
    with pytest.raises(RunError, match=f"cannot be extended: {next(iter(given))} was"):
        inherit(parent, before, after)


def test_a_run_that_kept_no_answers_cannot_be_extended(model, data, tmp_path):
    PromptTuner(FORGET, "lcs", shots=2, iterations=2).fit(model, data, out=tmp_path / "run")
    with pytest.raises(RunError, match="has kept no answers"):
        inherit(tmp_path / "run", *tasks(tmp_path / "run", model, data, FORGET[1:]))


@pytest.mark.parametrize(
    ("forget", "restore", "message"),
    [
        (["zebra"], [], "class 'zebra'"),
        ([], ["deer"], "'deer' is not forgotten by the run"),
        (["cat"], [], "say what to forget as well"),
        ([], FORGET, "nothing is forgotten"),
    ],
)
def test_lists_that_make_no_sense_are_refused(parent, forget, restore, message):
    with pytest.raises(InputError, match=message):
        other_list(read_config(parent), forget, restore)


def test_the_new_list_is_the_old_one_with_what_was_said(parent):
    assert other_list(read_config(parent), ["deer"], ["bird"]) == ("airplane", "automobile", "cat", "deer")


def test_the_command_makes_a_run_that_names_its_parent(
    parent, tmp_path, capsys, monkeypatch, image_folder, model_folder
):
    monkeypatch.chdir(tmp_path)
    settings = ("--model", str(model_folder), "--forget", "cat", "--method", "guided", "--shots", "4")
    assert main(["forget", str(image_folder), *settings, "--image-queries", "5000", "--out", "first"]) == 0
    assert main(["extend", "first", "--forget", "bird", "--out", "second", "--price", "1.5"]) == 0
    said = capsys.readouterr()
    found = read_result(tmp_path / "second")
    assert found.forget == ("bird", "cat")
    assert found.ledger.image_queries <= 500
    assert f"spent: {found.ledger.image_queries:,} image queries" in said.err
    assert read_config(tmp_path / "second").parent.run == "first"


def test_known_answers_go_to_a_file_and_back(parent, model, data):
    from unsee.methods.inherited import as_arrays, from_arrays

    known = inherit(parent, *tasks(parent, model, data, FORGET[1:])).inherited.known
    again = from_arrays(as_arrays(known), known[0].answers.shape[1], len(data.class_names))
    for one, other in zip(known, again, strict=True):
        for mine, theirs in zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=True):
            assert (mine is None and theirs is None) or np.array_equal(mine, theirs)
