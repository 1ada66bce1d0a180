"""The first commands of a new user: folders that tell runs apart, lists of names, interruptions."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from tests import tiny
from unsee import InputError, ModelError, load_model
from unsee.cli import main


@pytest.fixture
def forget(model_folder, image_folder, tmp_path, monkeypatch, capsys):
    """Calls `unsee forget` in an empty folder, with one short generation."""
    monkeypatch.chdir(tmp_path)

    def call(*options, data=image_folder):
        common = ["--model", model_folder, "--no-cache", "--shots", 2, "--iterations", 1, "--json"]
        code = main([str(a) for a in ("forget", data, *common, *options)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if code == 0 else {}, err

    return call


def test_two_lists_of_classes_have_two_default_folders(forget, image_folder, tmp_path):
    assert forget("--forget", "cat")[0] == 0
    assert forget("--forget", "dog,bird")[0] == 0
    names = {f"{image_folder.name}-guided-{names}-seed0" for names in ("cat", "bird+dog")}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == names
    code, _, err = forget("--forget", "bird,dog")
    assert code == 1
    assert err.count("\n") == 1
    assert "already holds a run" in err
    assert "--out" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--forget", "catt"], "unknown class to forget 'catt'; did you mean 'cat'"),
        (["--forget", "cat", "--set", "colour=red"], "unknown setting 'colour'"),
        (["--forget", "cat", "--set", "population=1"], "population must be at least 2"),
        (["--forget", "cat", "--model", "minii"], "did you mean 'mini'?"),
    ],
)
def test_a_taken_folder_hides_no_other_error(forget, tmp_path, options, message):
    assert forget("--forget", "cat", "--out", tmp_path / "run")[0] == 0
    code, _, err = forget("--out", tmp_path / "run", *options)
    assert code == 1
    assert message in err
    assert "already holds a run" not in err


def test_forget_is_repeatable(forget):
    assert forget("--forget", "cat", "--forget", "dog,bird")[1]["forget"] == ["bird", "cat", "dog"]


def test_names_with_commas_come_from_a_file(forget, tmp_path):
    photos = tiny.write_images(tmp_path / "photos", names=("salt, pepper", "cat", "dog"), train=4, test=2)
    (tmp_path / "names.txt").write_text("salt, pepper\n\n  dog \n", encoding="utf-8-sig")
    code, result, _ = forget("--forget-file", tmp_path / "names.txt", data=photos)
    assert code == 0
    assert sorted(result["forget"]) == ["dog", "salt, pepper"]
    code, _, err = forget("--forget-file", tmp_path / "nothing.txt", data=photos)
    assert code == 1
    assert "--forget-file" in err


def test_forget_without_names_is_bad_usage(forget):
    code, _, err = forget()
    assert code == 2
    assert "--forget" in err


def test_an_unknown_precision_is_refused_for_every_model(forget):
    code, _, err = forget("--forget", "cat", "--model", "mini", "--dtype", "float61")
    assert code == 2
    assert "did you mean 'float16'" in err
    with pytest.raises(InputError, match="dtype is one of float32, float16, bfloat16, not 'float61'"):
        load_model("mini", dtype="float61")


@pytest.mark.parametrize("name", ["minii", "openai/clip-vit-base-patch61"])
def test_a_model_of_another_name_is_answered_with_the_nearest(name):
    with pytest.raises(ModelError, match=r"did you mean '(mini|openai/clip-vit-base-patch16)'"):
        load_model(name)


def stop(*_, **__):
    raise KeyboardInterrupt


def test_an_interruption_before_the_first_generation_has_nothing_to_resume(forget, monkeypatch, tmp_path):
    monkeypatch.setattr("unsee.models.load_model", stop)
    code, _, err = forget("--forget", "cat", "--out", "run")
    assert code == 130
    assert "nothing to resume" in err
    assert "unsee resume" not in err
    assert not (tmp_path / "run").exists()


def test_an_interruption_leaves_the_run_that_was_to_be_overwritten(forget, monkeypatch, tmp_path):
    assert forget("--forget", "cat", "--out", "run")[0] == 0
    monkeypatch.setattr("unsee.methods.loop.tune", stop, raising=False)
    monkeypatch.setattr("unsee.models.load_model", stop)
    code, _, err = forget("--forget", "dog", "--out", "run", "--overwrite")
    assert code == 130
    assert "nothing to resume" in err
    assert (tmp_path / "run" / "result.json").is_file()


def test_an_interruption_names_the_run_to_resume(forget, monkeypatch):
    monkeypatch.setattr("unsee.answers.picture.before_after", stop)
    code, _, err = forget("--forget", "cat", "--out", "my run")
    assert code == 130
    assert err.splitlines()[-1] == "interrupted; continue with: unsee resume 'my run'"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "run"], "interrupted"),
        (["resume", "run"], "interrupted; continue with: unsee resume run"),
        (["compare", "demo"], "interrupted; the same command continues: finished runs are kept"),
        (
            ["reproduce", "fig-contexts", "--data", "demo"],
            "interrupted; the same command continues: finished runs are kept",
        ),
    ],
)
def test_an_interrupted_command_says_how_to_go_on(forget, monkeypatch, capsys, words, message):
    assert forget("--forget", "cat", "--out", "run")[0] == 0
    monkeypatch.setattr("unsee.models.load_model", stop)
    assert main(words) == 130
    assert capsys.readouterr().err.splitlines()[-1] == message


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_bar_never_shows_nan_and_keeps_generation_and_time_left(forget, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert forget("--forget", "cat", "--out", "run", "--set", "population=4")[0] == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "nan" not in shown
    assert "generation 1/1 0:00:00" in shown
    assert "…" not in shown.partition("generation")[2]
