"""A prompt that says how its answers are served: wherever it answers, the rule is applied."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import unsee
from unsee.methods.serving import SERVING, serve
from unsee.settings import SERVED_AS


def test_every_rule_of_the_settings_is_there():
    assert tuple(SERVING) == SERVED_AS


@pytest.mark.parametrize("rule", ["mask-top-label", "one-digit"])
def test_a_prompt_carries_its_rule_to_wherever_it_answers(model, data, tmp_path, rule):
    given = {"iterations": 2, "shots": 2}
    plain = unsee.PromptTuner(["cat", "dog"], **given).fit(model, data, out=tmp_path / "plain")
    tuner = unsee.PromptTuner(["cat", "dog"], serve=rule, **given).fit(model, data, out=tmp_path / "served")
    np.testing.assert_array_equal(tuner.contexts_, plain.contexts_)  # tuning is the same
    bound = plain._bound(data.test)
    expected = serve(plain.fitted_.confidences(bound), plain.forget_mask_, rule)
    assert (expected != plain.fitted_.confidences(bound)).any()
    np.testing.assert_array_equal(tuner.fitted_.confidences(bound), expected)
    prompt = unsee.load_prompt(tmp_path / "served")
    np.testing.assert_array_equal(prompt.confidences(model, data.test), expected)
    assert tuner.score(data.test).err_for >= plain.score(data.test).err_for - 0.5
    if rule == "mask-top-label":
        assert tuner.score(data.test).err_for == 1
        assert not {"cat", "dog"} & {a.after[0][0] for a in prompt.classify(model, data.test)}
    assert json.loads((tmp_path / "served" / "prompt.json").read_text())["serve"] == rule
    assert "serve" not in json.loads((tmp_path / "plain" / "prompt.json").read_text())


def test_rules_that_are_not_there_are_refused(model, data, tmp_path):
    with pytest.raises(unsee.InputError, match="serve"):
        unsee.PromptTuner(["cat"], serve="nothing", shots=2).fit(model, data)
    with pytest.raises(unsee.InputError, match="tunes none"):
        unsee.PromptTuner(["cat"], "label-mask", serve="gate", shots=2).fit(model, data)
    tuner = unsee.PromptTuner(["cat"], iterations=1, shots=2).fit(model, data)
    dataclasses.replace(tuner.prompt, serve="loudly").save(tmp_path)
    with pytest.raises(unsee.RunError, match="serve is one of"):
        unsee.load_prompt(tmp_path)
