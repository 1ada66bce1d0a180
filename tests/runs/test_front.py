"""The Pareto front: what belongs to it, that it survives a stop, and prompts picked from it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unsee
from unsee.methods.front import front_of, pick
from unsee.runs.front import read_front
from unsee.runs.picking import pick_prompt
from unsee.types import Candidate


def candidate(err_for, acc_mem, entropy=0.5, loss=1.0, number=1):
    return Candidate(number, 0, loss, err_for, acc_mem, entropy, np.full((2, 3), number, dtype=np.float32))


def numbers(front):
    return [c.generation for c in front]


def test_only_candidates_that_no_other_beats_in_every_way_stay():
    a, b, c = candidate(0.9, 0.8, number=1), candidate(0.8, 0.9, number=2), candidate(0.7, 0.7, number=3)
    assert numbers(front_of([a, b, c])) == [1, 2]
    assert numbers(front_of([c, a, b])) == [1, 2]  # driven out later
    assert numbers(front_of([a, candidate(0.9, 0.8, number=4)])) == [1]  # of equals the first
    assert numbers(front_of([a, candidate(0.7, 0.7, 0.9, number=5)])) == [1, 5]  # less informative answers
    assert numbers(front_of([a, candidate(0.9, 0.8, 0.5001, number=6)])) == [1]  # but not by a hair


def test_picking_forgets_most_among_those_that_keep_enough():
    front = front_of([candidate(e, a, number=i) for i, (e, a) in enumerate([(1.0, 0.5), (0.9, 0.8), (0.5, 0.95)])])
    assert pick(front, acc_mem=0.8).generation == 1
    assert pick(front, acc_mem=0.81).generation == 2
    assert pick(front, acc_mem=0.0).generation == 0
    assert pick(front, err_for=0.85).generation == 1
    with pytest.raises(unsee.InputError, match="acc_mem up to"):
        pick(front, acc_mem=0.96)
    with pytest.raises(unsee.InputError, match="between 0 and 1"):
        pick(front, acc_mem=93.0)
    with pytest.raises(unsee.InputError, match="what to pick by"):
        pick(front)


def tuner(**settings):
    return unsee.PromptTuner(["cat", "dog"], shots=3, **settings)


def finish(fitted, data, out):
    return fitted.finish(out, fitted._bound(data.test), data.train.subset(fitted.config_.split.train))


@pytest.mark.parametrize(("method", "validate"), [("lcs", "every"), ("bbt", "generation"), ("cbbt", "every")])
def test_a_front_is_the_same_bytes_after_a_stop_inside_a_generation(model, data, tmp_path, method, validate):
    given = {"method": method, "validate": validate, "population": 7, "iterations": 4}
    tuner(**given).fit(model, data, out=tmp_path / "whole")
    tuner(**given, budget=17).fit(model, data, out=tmp_path / "cut")
    tuner(**given, budget=17).resume(model, data, tmp_path / "cut", budget=28)
    whole = (tmp_path / "whole" / "front.jsonl").read_bytes()
    assert whole == (tmp_path / "cut" / "front.jsonl").read_bytes()
    assert whole.count(b"\n") >= 1
    assert (tmp_path / "whole" / "prompt.safetensors").read_bytes() == (
        tmp_path / "cut" / "prompt.safetensors"
    ).read_bytes()


def test_half_a_line_and_lines_of_a_generation_that_never_counted_are_dropped(model, data, tmp_path):
    tuner(iterations=3).fit(model, data, out=tmp_path / "run")
    path = tmp_path / "run" / "front.jsonl"
    whole = path.read_bytes()
    line = json.loads(whole.splitlines()[0]) | {"generation": 9}
    path.write_bytes(whole + json.dumps(line).encode() + b'\n{"generation": 4, "los')
    tuner(iterations=3).resume(model, data, tmp_path / "run")
    assert path.read_bytes() == whole


def test_every_candidate_of_the_front_was_validated_with_these_scores(model, data, tmp_path):
    fitted = tuner(iterations=3).fit(model, data, out=tmp_path / "run")
    valid = data.train.subset(fitted.config_.split.valid)
    front = read_front(tmp_path / "run" / "front.jsonl")
    assert max(2 * c.err_for * c.acc_mem / max(c.err_for + c.acc_mem, 1e-9) for c in front) == fitted.valid_.h
    for c in front:
        p = unsee.runs.prompt.Prompt(c.contexts, data.class_names, ("cat",), "x", model.card.fingerprint)
        found = p.confidences(model, valid)
        gone = np.isin(valid.labels, [data.class_names.index(name) for name in ("cat", "dog")])
        right = found.argmax(axis=1) == valid.labels
        assert c.acc_mem == pytest.approx(right[~gone].mean())
        assert c.err_for == pytest.approx(1 - right[gone].mean())


def test_picking_writes_a_prompt_and_leaves_the_run_as_it_is(model, data, tmp_path):
    run = tmp_path / "run"
    finish(tuner(iterations=4).fit(model, data, out=run), data, run)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    front = read_front(run / "front.jsonl")
    asked = sorted(c.acc_mem for c in front)[len(front) // 2]
    record, folder = pick_prompt(run, acc_mem=asked)
    assert record.valid.acc_mem >= asked
    assert record.valid.err_for == max(c.err_for for c in front if c.acc_mem >= asked)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before  # the ledger too
    prompt = unsee.load_prompt(folder)
    assert prompt.forget == ("cat", "dog")
    chosen = next(c for c in front if (c.generation, c.index) == (record.generation, record.candidate))
    np.testing.assert_array_equal(prompt.contexts, chosen.contexts)


def test_what_cannot_be_picked_is_said_in_one_line(model, data, tmp_path):
    rule = unsee.PromptTuner(["cat"], "label-mask", shots=2).fit(model, data, out=tmp_path / "rule")
    finish(rule, data, tmp_path / "rule")
    with pytest.raises(unsee.RunError, match="tunes no prompt"):
        pick_prompt(tmp_path / "rule", acc_mem=0.9)
    tuner(iterations=1).fit(model, data, out=tmp_path / "run")
    with pytest.raises(unsee.RunError, match="own prompt"):
        pick_prompt(tmp_path / "run", tmp_path / "run", acc_mem=0.0)
    (tmp_path / "run" / "front.jsonl").write_bytes(b'{"generation": 1}\n')
    with pytest.raises(unsee.RunError, match="line 1 is damaged"):
        pick_prompt(tmp_path / "run", acc_mem=0.0)
    (tmp_path / "run" / "front.jsonl").unlink()
    with pytest.raises(unsee.RunError, match="nothing to pick from"):
        pick_prompt(tmp_path / "run", acc_mem=0.0)
