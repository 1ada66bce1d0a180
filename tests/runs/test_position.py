"""The class name in the middle or in front of the contexts: a setting that the prompt remembers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.test_tuner import FORGET, Answering
from unsee import InputError, PromptTuner, RunError, load_prompt
from unsee.runs.folder import read_config
from unsee.runs.identity import folder_key, identify

SHORT = {"iterations": 2, "shots": 2, "population": 4, "serve": "as-is", "contexts": 4}


@pytest.mark.parametrize(("position", "applies_to"), [("middle", "all"), ("front", "forgotten")])
def test_a_prompt_remembers_where_the_name_is(model, data, tmp_path, position, applies_to):
    tuner = PromptTuner(FORGET, position=position, applies_to=applies_to, **SHORT).fit(
        model, data, out=tmp_path / "run"
    )
    card = json.loads((tmp_path / "run" / "prompt.json").read_text())
    assert card["position"] == position
    assert card["prompt"].split().index("<class") == (3 if position == "middle" else 1)
    prompt, some = load_prompt(tmp_path / "run"), data.test.subset(range(0, 60, 7))
    bound = model.bind(some, data.class_names).at(position)
    if applies_to == "forgotten":
        bound = bound.apply_to(FORGET, "a photo of a {}.")
    wanted = bound.confidences(prompt.contexts[None])[0]
    assert np.array_equal(prompt.confidences(model, some), wanted)
    assert tuner.predict(some) == [data.class_names[i] for i in wanted.argmax(axis=1)]
    assert not np.allclose(model.bind(some, data.class_names).confidences(prompt.contexts[None])[0], wanted)
    resumed = PromptTuner.from_config(read_config(tmp_path / "run")).resume(model, data, tmp_path / "run", iterations=3)
    assert resumed.settings_.position == position


def test_runs_with_the_name_at_the_end_keep_their_identity_and_files(model, data, tmp_path):
    PromptTuner(FORGET, **SHORT).fit(model, data, out=tmp_path / "run")
    assert "position" not in json.loads((tmp_path / "run" / "prompt.json").read_text())
    config = read_config(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    written = json.loads(path.read_text())
    del written["settings"]["position"]  # as earlier versions wrote it
    path.write_text(json.dumps(written))
    assert folder_key(read_config(tmp_path / "run")) == folder_key(config)
    assert "position" not in identify(config).settings
    with pytest.raises(RunError, match="position was 'end', now it is 'front'"):
        PromptTuner(FORGET, position="front", **SHORT).resume(model, data, tmp_path / "run")


def test_other_positions_need_a_model_in_this_process(model, data):
    black_box = Answering(model, lambda p: p)
    with pytest.raises(InputError, match="position=front needs a model in this process"):
        PromptTuner(FORGET, position="front", **SHORT).fit(black_box, data)
    with pytest.raises(InputError, match="unknown position 'behind'"):
        PromptTuner(FORGET, position="behind", **SHORT).fit(model, data)
    with pytest.raises(InputError, match="position is about tuned prompts"):
        PromptTuner(FORGET, "label-mask", position="front", shots=2).fit(model, data)
