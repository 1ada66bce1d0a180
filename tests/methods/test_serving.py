"""A prompt that says how its answers are served: wherever it answers, the rule is applied."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import unsee
from unsee.methods.presets import resolve
from unsee.methods.serving import SERVING, serve
from unsee.metrics import scores
from unsee.settings import SERVED_AS


def test_every_rule_of_the_settings_is_there():
    assert tuple(SERVING) == SERVED_AS


@pytest.mark.parametrize("rule", ["mask-top-label", "one-digit"])
def test_a_prompt_carries_its_rule_to_wherever_it_answers(model, data, tmp_path, rule):
    given = {"iterations": 2, "shots": 2}
    plain = unsee.PromptTuner(["cat", "dog"], serve="as-is", **given).fit(model, data, out=tmp_path / "plain")
    tuner = unsee.PromptTuner(["cat", "dog"], serve=rule, **given).fit(model, data, out=tmp_path / "served")
    np.testing.assert_array_equal(tuner.contexts_, plain.contexts_)  # tuning is the same
    bound = plain._bound(data.test)
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
    given = {"seed": 0, "data": "demo", "family": "mini", "classes": 10, "shots": 16}
    for method, preset, rule in [
        ("lcs", "tuned", "mask-one-digit"),
        ("lcs", "paper", "as-is"),
        ("coop-memorize", "tuned", "as-is"),  # is not meant to forget
        ("label-mask", "tuned", "as-is"),  # tunes no prompt that could carry a rule
    ]:
        assert resolve({}, method=method, preset=preset, **given).serve == rule
    assert resolve({"serve": "as-is"}, method="lcs", preset="tuned", **given).serve == "as-is"


def test_one_digit_of_a_masked_answer():
    p = np.array([[0.5, 0.26, 0.24], [0.9, 0.01, 0.09]], dtype=np.float32)
    found = serve(p, np.array([True, False, False]), "mask-one-digit")
    np.testing.assert_allclose(found, [[0, 0.5, 0.5], [0, 0.1, 0.9]], atol=1e-5)
    assert found[0].argmax() == 1  # the higher one stays in front


def test_rules_that_are_not_there_are_refused(model, data, tmp_path):
    with pytest.raises(unsee.InputError, match="serve"):
        unsee.PromptTuner(["cat"], serve="nothing", shots=2).fit(model, data)
    with pytest.raises(unsee.InputError, match="tunes none"):
        unsee.PromptTuner(["cat"], "label-mask", serve="gate", shots=2).fit(model, data)
    tuner = unsee.PromptTuner(["cat"], iterations=1, shots=2).fit(model, data)
    dataclasses.replace(tuner.prompt, serve="loudly").save(tmp_path)
    with pytest.raises(unsee.RunError, match="serve is one of"):
        unsee.load_prompt(tmp_path)
