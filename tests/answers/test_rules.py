"""A prompt that says how its answers are served: wherever it answers, the rule is applied."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import unsee
from unsee.answers.metrics import entropy, scores
from unsee.answers.rules import SERVING, serve
from unsee.methods.presets import resolve
from unsee.settings import SERVED_AS


def test_every_rule_of_the_settings_is_there():
    assert tuple(SERVING) == SERVED_AS


@pytest.mark.parametrize("rule", ["mask-top-label", "one-digit"])
def test_a_prompt_carries_its_rule_to_wherever_it_answers(model, data, tmp_path, rule):
    given = {"iterations": 2, "shots": 2}
    plain = unsee.PromptTuner(["cat", "dog"], serve="as-is", **given).fit(model, data, out=tmp_path / "plain")
    tuner = unsee.PromptTuner(["cat", "dog"], serve=rule, **given).fit(model, data, out=tmp_path / "served")
    np.testing.assert_array_equal(tuner.contexts_, plain.contexts_)  # tuning is the same
    bound = plain.run_.bind(data.test)
    own = plain.fitted_.confidences(bound)
    expected = serve(own, plain.forget_mask_, rule)
    assert (expected != own).any()
    np.testing.assert_array_equal(tuner.fitted_.confidences(bound), own)  # scores are of what was tuned
    assert tuner.score(data.test) == plain.score(data.test)
    assert tuner.predict(data.test) == [data.class_names[i] for i in expected.argmax(axis=1)]
    assert plain.evaluate(data.test).served is None
    served = tuner.evaluate(data.test).served
    assert served.rule == rule
    assert served.scores == scores(expected.argmax(axis=1), data.test.labels, plain.forget_mask_)
    prompt = unsee.load_prompt(tmp_path / "served")
    np.testing.assert_array_equal(prompt.confidences(model, data.test), expected)
    if rule == "mask-top-label":
        assert served.scores.err_for == 1
        assert not {"cat", "dog"} & {a.after[0][0] for a in prompt.classify(model, data.test)}
    assert json.loads((tmp_path / "served" / "prompt.json").read_text())["serve"] == rule
    assert "serve" not in json.loads((tmp_path / "plain" / "prompt.json").read_text())


def test_preset_tuned_serves_what_tells_least_and_preset_paper_serves_answers_as_they_are():
    given = {"seed": 0, "data": "demo", "width": 128, "classes": 10, "shots": 16}
    for method, preset, rule in [
        ("lcs", "tuned", "mask-top-digit"),
        ("lcs", "paper", "as-is"),
        ("coop-memorize", "tuned", "as-is"),  # is not meant to forget
        ("label-mask", "tuned", "as-is"),  # tunes no prompt that could carry a rule
    ]:
        assert resolve({}, method=method, preset=preset, **given).serve == rule
    assert resolve({"serve": "as-is"}, method="lcs", preset="tuned", **given).serve == "as-is"


def test_one_digit_of_a_masked_answer_counts_from_an_even_share():
    p = np.array([[0.5, 0.26, 0.24], [0.9, 0.01, 0.09]], dtype=np.float32)
    found = serve(p, np.array([True, False, False]), "mask-one-digit")
    np.testing.assert_allclose(found, [[0, 0.5, 0.5], [0, 0.1, 0.9]], atol=1e-5)
    assert found[0].argmax() == 1  # the higher one stays in front


def test_a_top_digit_is_one_name_above_an_even_share_or_none():
    p = np.array([[0.3, 0.24, 0.23, 0.23], [0, 0.8, 0.1, 0.1], [0, 0.01, 0, 0.99], [1, 0, 0, 0]], dtype=np.float32)
    found = serve(p, np.array([True, False, False, False]), "mask-top-digit")
    third = 1 / 3
    likely, sure = third + 0.5, third + (0.65 + 2 * third) / 2  # the last step ends at 1
    np.testing.assert_allclose(found[0], [0, third, third, third], atol=1e-6)
    np.testing.assert_allclose(found[1], [0, likely, (1 - likely) / 2, (1 - likely) / 2], atol=1e-6)
    np.testing.assert_allclose(found[2], [0, (1 - sure) / 2, (1 - sure) / 2, sure], atol=1e-6)
    np.testing.assert_allclose(found[3], [0, third, third, third], atol=1e-6)  # nothing but a removed name was seen


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_the_top_name_of_a_gated_answer_is_left_to_chance(classes):
    suspect = np.tile(np.eye(classes, dtype=np.float32)[0], (20 * classes, 1))
    seen = serve(suspect, np.arange(classes) == 0, "gate")
    first = (seen.argmax(axis=1) < classes / 2).mean()
    assert first == pytest.approx(0.5, abs=2.5 * (20 * classes) ** -0.5), "the first of equals would be taken too often"
    np.testing.assert_allclose(seen, 1 / classes, rtol=1e-3)


def _answers(classes: int, rows: int, seed: int) -> np.ndarray:
    """Answers from flat to certain, as a softmax of random logits of many sizes."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((rows, classes)) * np.geomspace(1e-3, 30, rows)[:, None]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (p / p.sum(axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("classes", [2, 3, 20, 100, 1000])
@pytest.mark.parametrize("rule", SERVED_AS)
def test_an_uninformative_answer_stays_one(rule, classes):
    rng = np.random.default_rng(0)
    noise = 1 + 1e-3 * rng.standard_normal((50, classes))
    flat = (noise / noise.sum(axis=1, keepdims=True)).astype(np.float32)
    listed = np.arange(classes) < max(1, round(0.4 * classes))
    seen = serve(flat, listed, rule)
    names = int((~listed).sum()) if rule.startswith("mask") else classes
    if rule.endswith("top-label"):  # says a name and nothing else
        return
    most = np.log(names) / np.log(classes)
    np.testing.assert_allclose(entropy(seen), most, atol=1e-3)
    np.testing.assert_allclose(seen.max(axis=1), 1 / names, rtol=0.01)


@pytest.mark.parametrize("classes", [2, 3, 20, 100, 1000])
@pytest.mark.parametrize("rule", SERVED_AS)
def test_rules_keep_their_promises_at_every_size(rule, classes):
    p = _answers(classes, 200, classes)
    listed = np.arange(classes) % 5 < 2
    listed[-1] = False
    seen = serve(p, listed, rule)
    np.testing.assert_allclose(seen.sum(axis=1), 1, atol=1e-5)
    assert (seen >= 0).all()
    kept = ~listed if rule.startswith("mask") else np.ones(classes, dtype=bool)
    order = np.argsort(p[:, kept], axis=1)
    steps = np.diff(np.take_along_axis(seen[:, kept], order, axis=1), axis=1)
    assert steps.min(initial=0) >= (-1e-4 if rule == "gate" else -1e-5), "a gate makes all names alike, but for a hair"
    flatter = (0.7 * p + 0.3 / classes).astype(np.float32)
    assert (serve(flatter, listed, rule).max(axis=1) <= seen.max(axis=1) + 1e-5).all()


def test_rules_that_are_not_there_are_refused(model, data, tmp_path):
    with pytest.raises(unsee.InputError, match="serve"):
        unsee.PromptTuner(["cat"], serve="nothing", shots=2).fit(model, data)
    with pytest.raises(unsee.InputError, match="tunes none"):
        unsee.PromptTuner(["cat"], "label-mask", serve="gate", shots=2).fit(model, data)
    tuner = unsee.PromptTuner(["cat"], iterations=1, shots=2).fit(model, data)
    dataclasses.replace(tuner.prompt, serve="loudly").save(tmp_path)
    with pytest.raises(unsee.RunError, match="serve is one of"):
        unsee.load_prompt(tmp_path)
