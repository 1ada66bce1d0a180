"""Settings given on the command line or in Python: used, or refused in one line."""

from __future__ import annotations

import json

import pytest

from unsee import InputError, PromptTuner
from unsee.cli import main


@pytest.fixture
def forget(model_folder, image_folder, tmp_path, capsys):
    def call(*options):
        out = tmp_path / "run"
        arguments = ["forget", image_folder, "--model", model_folder, "--forget", "cat", "--out", out, "--no-cache"]
        code = main([str(a) for a in (*arguments, *options)])
        err = capsys.readouterr().err
        settings = json.loads((out / "config.json").read_text())["settings"] if code == 0 else {}
        return code, settings, err

    return call


@pytest.mark.parametrize(
    ("pair", "name", "value"),
    [
        ("iterations=3", "iterations", 3),
        ("shots=2", "shots", 2),
        ("budget=27", "budget", 27),
        ("skip_bad_images=true", "skip_bad_images", True),
    ],
)
def test_set_reaches_settings_that_have_an_option_too(forget, pair, name, value):
    options = [] if name == "iterations" else ["--iterations", 2]
    code, settings, _ = forget("--set", pair, *options)
    assert code == 0
    assert settings[name] == value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "seed=3"], "--set does not take seed; use --seed"),
        (["--set", "method=bbt"], "--set does not take method; use --method"),
        (["--set", "preset=paper"], "--set does not take preset; use --preset"),
        (["--set", "iterations=3", "--iterations", "4"], "iterations is given twice"),
        (["--set", "tau=1", "--set", "tau=2"], "--set tau is given twice"),
    ],
)
def test_what_set_cannot_take_is_one_clear_line(forget, options, message):
    code, _, err = forget(*options)
    assert code == 1
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"validate": 5}, "setting validate must be text, not 5"),
        ({"iterations": "5"}, "setting iterations must be a whole number, not '5'"),
        ({"sigma0": "1"}, "setting sigma0 must be a number, not '1'"),
        ({"iterations": 2.5}, "setting iterations must be a whole number, not 2.5"),
        ({"iterations": True}, "setting iterations must be a whole number, not True"),
        ({"stop_when_stalled": 1}, "setting stop_when_stalled must be true or false, not 1"),
        ({"budget": "all"}, "setting budget must be a whole number, not 'all'"),
    ],
)
def test_a_python_setting_of_the_wrong_type_is_refused_by_name(model, data, given, message):
    with pytest.raises(InputError, match=message):
        PromptTuner(["cat"], **given).fit(model, data)
    with pytest.raises(InputError, match="class names are text, not 3"):
        PromptTuner([3])


def test_whole_numbers_are_numbers():
    assert PromptTuner(["cat"], sigma0=1).settings == {"sigma0": 1}
    from unsee.methods.presets import resolve

    found = resolve({"sigma0": 1}, method="lcs", preset="paper", seed=0, data="demo", width=512, classes=10, shots=4)
    assert type(found.sigma0) is float
