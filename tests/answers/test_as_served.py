"""Two words for what comes after tuning: the prompt alone, and as served. Both are shown wherever either is."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

import unsee
from unsee.answers.evaluation import evaluate
from unsee.answers.metrics import top_labels
from unsee.answers.picture import before_after
from unsee.answers.rules import RULES, rules_for_prompts, serve, show_digits
from unsee.cli import main
from unsee.cli.classify import show_answers
from unsee.cli.console import Console
from unsee.runs.folder import read_result
from unsee.runs.prompt import Answer
from unsee.runs.stored import read_run

FORGET = ["cat", "dog"]


@pytest.fixture(scope="module")
def run(model, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("served") / "run"
    tuner = unsee.PromptTuner(FORGET, iterations=3, shots=2).fit(model, data, out=out)
    tuner.finish(out, tuner.run_.bind(data.test))
    return out


@pytest.fixture
def printed(run, model_folder, image_folder, capsys):
    def call(command, *more):
        assert main([command, str(run), *map(str, more), "--model", str(model_folder), "--no-cache"]) == 0
        return capsys.readouterr().out

    return call


def some_answers(images):
    """Two of three near uniform."""
    rng = np.random.default_rng(0)
    return np.array([rng.dirichlet(np.full(10, 100 if i % 3 else 0.3)) for i in range(images)], np.float32)


def test_a_flat_answer_has_no_top_label_and_a_lead_makes_one():
    flat = np.array([[0.0, 0.5, 0.5], [0.2, 0.5, 0.3], [0.0, 1.0, 0.0]], np.float32)
    assert top_labels(flat).tolist() == [-1, 1, 1]


def test_an_evaluation_has_each_measure_as_served_too(data):
    forget = np.array([name in FORGET for name in data.class_names])
    answers = some_answers(len(data.test))
    found = evaluate(answers, answers, data.test.labels, forget, "mask-top-digit")
    seen = serve(answers, forget, "mask-top-digit")
    assert found.answers_served.tolist() == top_labels(seen).tolist()
    assert (found.answers_served == -1).any()
    assert {found.per_class(data.class_names)[name].served for name in FORGET} == {0.0}
    assert found.entropy_forgotten.served not in (found.entropy_forgotten.after, None)
    plain = evaluate(answers, answers, data.test.labels, forget)
    assert plain.entropy_forgotten.served == plain.entropy_forgotten.after
    assert (plain.after_served == plain.after).all()


def test_a_run_keeps_both_and_old_results_are_still_read(run, tmp_path):
    result = read_result(run)
    assert {result.per_class[name].served for name in FORGET} == {0.0}
    assert result.entropy_forgotten.served is not None
    counts = read_run(run).confusion()
    assert sorted(counts) == ["after", "before", "served"]
    written = json.loads((run / "result.json").read_text())
    for record in (*written["per_class"].values(), written["entropy_forgotten"]):
        del record["served"]
    (tmp_path / "result.json").write_text(json.dumps(written))
    assert read_result(tmp_path).entropy_forgotten.served is None


@pytest.mark.parametrize("rule", rules_for_prompts())
def test_the_picture_has_no_label_that_a_caller_does_not_see(data, monkeypatch, rule):
    forget = np.array([name in FORGET for name in data.class_names])
    answers = some_answers(len(data.test))
    drawn = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, at, text, fill, font: drawn.append((fill, text)))
    found = evaluate(answers, answers, data.test.labels, forget, rule)
    assert isinstance(before_after(data.test, found, forget), Image.Image)
    under = [text for fill, text in drawn if fill == "#1a1a1a" and text not in data.class_names[:10]]
    labels = {re.sub(r" \d+%$", "", text) for text in under}
    seen = serve(answers, forget, rule)
    allowed = {data.class_names[i] for i in seen.argmax(axis=1)} | {"no label"}
    assert {label for label in labels if "…" not in label} <= allowed
    assert any("as served" in text and rule in text for _, text in drawn)
    if RULES[rule].removes_names:
        assert not labels & set(FORGET)
    if rule == "mask-top-digit":
        assert "no label" in labels
    if RULES[rule].digits == 1:
        assert all(text.endswith(("0%", "label")) for text in under)


def test_a_digit_is_a_digit():
    assert [show_digits(x, "mask-top-digit") for x in (0.5556, 0.35, 0.45, 0.0889)] == [0.6, 0.4, 0.5, 0.1]
    assert show_digits(0.5556, "two-digits") == 0.56
    assert show_digits(0.5556, "as-is") == 0.5556


def test_evaluate_prints_both_side_by_side(printed):
    text = printed("evaluate")
    assert "prompt alone" in text
    assert "as served (mask-top-digit)" in text
    assert "after" not in text
    line = next(line for line in text.splitlines() if "entropy of answers" in line)
    assert "prompt alone 0." in line
    assert "as served 0." in line
    found = json.loads(printed("evaluate", "--json"))
    assert found["per_class"]["cat"]["served"] == 0.0
    assert found["rule"] == "mask-top-digit"


def test_classify_prints_one_digit_where_the_rule_has_one(printed, image_folder):
    images = sorted((image_folder / "test").glob("*/*.png"))[::4]
    text = printed("classify", *images)
    assert "prompt alone" in text
    assert "as served (mask-top-digit)" in text
    rows = json.loads(printed("classify", *images, "--json"))["images"]
    for row in rows:
        assert all(round(c, 1) == c for _, c in row["after"])
        assert row["label"] is None or row["label"] == row["after"][0][0]
        assert row["label"] not in FORGET
    served = [line.split("│")[-2] for line in text.splitlines() if "as served" in line]
    assert len(served) == len(images)
    assert all("no label" in cell or re.search(r"\b\d0%", cell) or "100%" in cell for cell in served)
    assert not any(re.search(r"\d\.\d%", cell) for cell in served)


def test_classify_lists_only_labels_that_stand_apart(capsys):
    sure, flat = (("frog", 0.5556), ("deer", 0.0889), ("ship", 0.0889)), (("deer", 0.125), ("frog", 0.125))
    answers = [Answer("a.png", None, sure, sure, ranked=1), Answer("b.png", None, flat, flat, ranked=0)]
    show_answers(Console(), answers, "mask-top-digit")
    text = capsys.readouterr().out
    assert "frog 60%, the next ones equal" in text
    assert "no label: several are equally sure" in text
    show_answers(Console(), answers, "top-label")
    assert re.search(r"as served \(top-label\) +│ frog +│", capsys.readouterr().out)
    show_answers(Console(as_json=True), answers, "mask-top-digit")
    rows = json.loads(capsys.readouterr().out)["images"]
    assert [row["label"] for row in rows] == ["frog", None]
    assert rows[0]["after"] == [["frog", 0.6], ["deer", 0.1], ["ship", 0.1]]
    assert rows[0]["prompt_alone"][0] == ["frog", 0.5556]


def test_a_prompt_without_a_rule_says_that_it_is_served_as_it_is(
    model, data, model_folder, image_folder, tmp_path, capsys
):
    options = ["--forget", "cat", "--iterations", "1", "--shots", "2", "--serve", "as-is", "--no-cache"]
    options += ["--model", str(model_folder), "--out", str(tmp_path / "run")]
    assert main(["forget", str(image_folder), *options]) == 0
    assert "as served (as-is)" in capsys.readouterr().out
