"""The Pareto front: what belongs to it, that it survives a stop, and prompts picked from it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import unsee
from unsee.answers.evaluation import evaluate
from unsee.answers.metrics import entropy
from unsee.methods.pareto import front_of, pick
from unsee.runs.front import read_front
from unsee.runs.picking import pick_prompt
from unsee.types import Candidate, Scores, TradeOff

VALID = Scores(0.5, 0.5, 0.5)


def candidate(err_for, acc_mem, entropy=0.5, loss=1.0, number=1):
    return Candidate(number, 0, loss, VALID, TradeOff(err_for, acc_mem, entropy), np.full((2, 3), number, np.float32))


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
    return fitted.finish(out, fitted.run_.bind(data.test))


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


@pytest.mark.parametrize("validate", ["every", "generation"])
def test_every_candidate_of_the_front_has_these_scores_on_what_it_was_asked_about(model, data, tmp_path, validate):
    fitted = tuner(iterations=3, validate=validate).fit(model, data, out=tmp_path / "run")
    split = fitted.config_.split
    images = data.train.subset([*split.train, *split.valid])
    gone = np.isin(images.labels, [data.class_names.index(name) for name in ("cat", "dog")])
    front, mask = read_front(tmp_path / "run" / "front.jsonl"), fitted.forget_mask_
    assert front
    for c in front:
        prompt = dataclasses.replace(fitted.prompt, contexts=c.contexts, serve="as-is")
        found = prompt.confidences(model, images)
        right = found.argmax(axis=1) == images.labels
        assert c.trade_off.acc_mem == pytest.approx(right[~gone].mean())
        assert c.trade_off.err_for == pytest.approx(1 - right[gone].mean())
        part = data.train.subset(split.valid)
        assert c.valid.h == pytest.approx(evaluate(None, prompt.confidences(model, part), part.labels, mask).tuned.h)
        assert c.trade_off.entropy == pytest.approx(entropy(found[gone]).mean(), abs=1e-5)


def test_picking_writes_a_prompt_and_leaves_the_run_as_it_is(model, data, tmp_path):
    run = tmp_path / "run"
    finish(tuner(iterations=4).fit(model, data, out=run), data, run)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    front = read_front(run / "front.jsonl")
    asked = sorted(c.trade_off.acc_mem for c in front)[len(front) // 2]
    record, folder = pick_prompt(run, acc_mem=asked)
    assert record.trade_off.acc_mem >= asked
    assert record.trade_off.err_for == max(c.trade_off.err_for for c in front if c.trade_off.acc_mem >= asked)
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


@pytest.mark.slow
def test_a_picked_prompt_keeps_on_test_images_what_was_asked_for(tmp_path, demo_features):
    model, data = unsee.load_model("mini", cache=unsee.FeatureCache(demo_features)), unsee.load_data("demo")
    forget, asked = data.class_names[:4], 0.93  # within reach of every run, and not at the edge of what they reach
    for seed in range(10):
        run = tmp_path / f"run{seed}"
        fitted = unsee.PromptTuner(forget, seed=seed).fit(model, data, out=run)
        ledger = (run / "checkpoint.jsonl").read_bytes()
        _, folder = pick_prompt(run, acc_mem=asked)
        assert (run / "checkpoint.jsonl").read_bytes() == ledger
        picked = dataclasses.replace(fitted.fitted_, contexts=unsee.load_prompt(folder).contexts)
        found = evaluate(None, picked.confidences(fitted.run_.bind(data.test)), data.test.labels, fitted.forget_mask_)
        assert abs(found.tuned.acc_mem - asked) <= 0.02, (seed, asked, found.tuned)
