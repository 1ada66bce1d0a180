"""A run is resumed as itself, and as nothing else; longer runs end like runs that were started that way."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

import unsee
from tests import tiny
from unsee import PromptTuner, RunError, Scores
from unsee.cli import main
from unsee.methods.best import Evaluated
from unsee.methods.recorder import Recorder
from unsee.methods.registry import METHODS
from unsee.runs.checkpoint import checkpoint_line, read_history
from unsee.runs.folder import RunFolder, read_config
from unsee.runs.identity import identify

FORGET = ["airplane", "automobile", "bird", "cat"]
SHORT = {"iterations": 6, "shots": 4, "population": 8}


class Stop(Exception):
    pass


def stop_after(number):
    def watch(generation, settings):
        if generation.number == number:
            raise Stop

    return watch


def resume(model, data, out, **longer):
    return PromptTuner.from_config(read_config(out)).resume(model, data, out, **longer)


@pytest.fixture
def one_level(tmp_path):
    """Class folders without train and test: they are divided by seed."""
    folder = tmp_path / "photos"
    both = tiny.write_images(tmp_path / "both", names=tiny.NAMES[:3], train=10, test=10)
    for part in ("train", "test"):
        for name in tiny.NAMES[:3]:
            (folder / name).mkdir(parents=True, exist_ok=True)
            for path in (both / part / name).iterdir():
                shutil.copy(path, folder / name / f"{part}-{path.name}")
    return folder


def names(images):
    return {images.name(i) for i in range(len(images))}


def test_evaluate_and_resume_divide_the_images_as_the_run_did(one_level, model_folder, tmp_path, capsys):
    common = ["--model", str(model_folder), "--no-cache"]
    compare = ["compare", str(one_level), "--forget", "bird", "--methods", "lcs", "--seeds", "0,1"]
    assert main([*compare, "--set", "iterations=2", "--set", "shots=2", "--out", str(tmp_path / "runs"), *common]) == 0
    (run,) = (tmp_path / "runs").glob("*-lcs-seed1-*")
    result = json.loads((run / "result.json").read_text())
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", *common]) == 0
    assert json.loads(capsys.readouterr().out)["test"] == result["test"]
    assert main(["resume", str(run), "--json", *common]) == 0
    assert json.loads(capsys.readouterr().out)["test"] == result["test"]
    config = read_config(run)
    assert (config.settings.seed, config.data.split_seed) == (1, 0)
    now = unsee.load_data(one_level, seed=config.data.split_seed)
    tuned_on = names(now.train.subset(config.split.train))
    assert not tuned_on & names(now.test)


def test_data_divided_by_another_seed_is_refused(one_level, model, tmp_path):
    data = unsee.load_data(one_level, seed=0)
    PromptTuner(["bird"], iterations=2, shots=2).fit(model, data, out=tmp_path / "run")
    with pytest.raises(RunError, match="another data split"):
        resume(model, unsee.load_data(one_level, seed=1), tmp_path / "run")


def test_images_added_later_are_noticed_by_evaluate(one_level, model_folder, tmp_path, capsys):
    common = ["--model", str(model_folder), "--no-cache"]
    run = str(tmp_path / "run")
    assert main(["forget", str(one_level), "--forget", "bird", "--iterations", "2", "--out", run, *common]) == 0
    shutil.copy(one_level / "bird" / "test-000.png", one_level / "bird" / "another.png")
    capsys.readouterr()
    assert main(["evaluate", run, *common]) == 1
    assert "is no longer the data of" in capsys.readouterr().err
    assert main(["evaluate", run, "--data", str(one_level), *common]) == 0


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"forget": ["dog"]}, "it forgets airplane, automobile, bird, cat, not dog"),
        ({"seed": 1}, "seed was 0, now it is 1"),
        ({"sigma0": 0.5}, "sigma0 was 1.0, now it is 0.5"),
        ({"method": "bbt"}, "method was 'lcs', now it is 'bbt'"),
        ({"shots": 2}, "shots was 4, now it is 2"),
    ],
)
def test_a_run_is_not_resumed_as_another_one(model, data, tmp_path, other, message):
    out = tmp_path / "run"
    PromptTuner(FORGET, "lcs", seed=0, **SHORT).fit(model, data, out=out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    settings = {"forget": FORGET, "method": "lcs", "seed": 0} | SHORT | other
    with pytest.raises(RunError, match=message):
        PromptTuner(**settings).resume(model, data, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_only_lengths_can_be_raised_and_never_lowered(model, data, tmp_path):
    PromptTuner(FORGET, "lcs", **SHORT).fit(model, data, out=tmp_path / "run")
    with pytest.raises(unsee.InputError, match="iterations or budget or image_queries only, not shots"):
        resume(model, data, tmp_path / "run", shots=2)
    for less in ({"iterations": 3}, {"budget": 10}, {"image_queries": 3_000}):
        with pytest.raises(RunError, match="48 candidates in 6 generations already"):
            resume(model, data, tmp_path / "run", **less)


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.planned_steps])
def test_methods_that_plan_their_steps_refuse_more_iterations(model, data, tmp_path, method):
    population = 1 if METHODS[method].settings["search"] == "gradient" else 8
    out = tmp_path / "run"
    PromptTuner(FORGET, method, **(SHORT | {"population": population})).fit(model, data, out=out)
    with pytest.raises(RunError, match="start a new run with --iterations 9"):
        resume(model, data, out, iterations=9)
    assert resume(model, data, out, iterations=6).ledger_.generations == 6


def test_changed_pixels_make_another_run(model, image_folder, tmp_path):
    copy = shutil.copytree(image_folder, tmp_path / "images")
    data = unsee.load_data(copy)
    PromptTuner(FORGET, **SHORT).fit(model, data, out=tmp_path / "run")
    shutil.copy(copy / "test" / "dog" / "000.png", copy / "test" / "cat" / "000.png")
    with pytest.raises(RunError, match="other images under the same names"):
        resume(model, unsee.load_data(copy), tmp_path / "run")


def test_seconds_of_a_resumed_run_count_all_its_parts(model, data, tmp_path):
    out = tmp_path / "run"
    PromptTuner(FORGET, "lcs", budget=24, **SHORT).fit(model, data, out=out)
    history, _ = read_history(out / "checkpoint.jsonl")
    slow = [checkpoint_line(dataclasses.replace(g, seconds=3600.0)) for g in history]  # as if it had taken an hour
    (out / "checkpoint.jsonl").write_bytes(b"".join(slow))
    longer = resume(model, data, out, budget=48)
    assert longer.result(longer.evaluate(data.test), longer.valid_).seconds["tuning"] >= 3600


def test_the_best_by_loss_stays_the_best_after_a_resume(model, data, tmp_path):
    settings = {"iterations": 9, "shots": 4, "population": 1, "validate": "loss"}
    with pytest.raises(Stop):
        PromptTuner(FORGET, "coop", **settings).fit(model, data, out=tmp_path / "run", watch=stop_after(3))
    with RunFolder.open(tmp_path / "run") as run:  # as if the second of three steps had been the best
        for generation, loss in zip(run.history, (3.0, 1.0, 2.0), strict=True):
            generation.losses[0] = loss
        run.history[2] = dataclasses.replace(run.history[2], chosen=None)
        recorder = Recorder(run.config.settings, run)
        assert recorder.best.merit == -1.0
        generation = recorder.count(Evaluated(np.array([1.5])))
        assert generation.chosen is None
        assert recorder.count(Evaluated(np.array([0.5]))).chosen == 0


@pytest.mark.parametrize("method", ["coop", "finetune"])
def test_a_saved_run_is_resumed_where_it_ended(model, data, tmp_path, method):
    settings = SHORT | {"population": 1}
    tuner = PromptTuner(FORGET, method, **settings).fit(model, data)
    tuner.save(tmp_path / "run")
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    again = resume(model, data, tmp_path / "run")
    assert again.predict(data.test) == tuner.predict(data.test)
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before
    assert [float(g.losses[0]) for g in again.history_] == [float(g.losses[0]) for g in tuner.history_]


@pytest.mark.parametrize(
    ("validate", "seed", "budget"),
    [("generation", 0, 11), ("generation", 3, 41), ("generation", 4, 35), ("every", 1, 19), ("3", 2, 21)],
)
def test_a_budget_that_cuts_a_generation_changes_nothing_in_the_end(model, data, tmp_path, validate, seed, budget):
    settings = SHORT | {"seed": seed, "validate": validate}
    PromptTuner(FORGET, "lcs", **settings).fit(model, data, out=tmp_path / "whole")
    PromptTuner(FORGET, "lcs", budget=budget, **settings).fit(model, data, out=tmp_path / "cut")
    resume(model, data, tmp_path / "cut", budget=48)
    for name in ("prompt.safetensors", "prompt.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_overwriting_removes_weights_of_an_earlier_run(model, data, tmp_path):
    out = tmp_path / "run"
    small = SHORT | {"population": 1, "iterations": 2}
    PromptTuner(FORGET, "finetune", save_weights=True, **small).fit(model, data, out=out)
    assert (out / "weights.safetensors").is_file()
    PromptTuner(FORGET, "lcs", **SHORT).fit(model, data, out=out, overwrite=True)
    assert not (out / "weights.safetensors").exists()


def test_a_model_that_answers_no_text_can_be_scored(model, data, tmp_path):
    from tests.test_tuner import Answering

    def uniform(b, n, c):
        return np.full((b, n, c), 1 / c, np.float32)

    tuner = PromptTuner(FORGET, **SHORT).fit(Answering(model, uniform), data, out=tmp_path / "run")
    assert tuner.score(data.test) == Scores(h=0.0, err_for=0.75, acc_mem=0.0), "all are taken for the first class"
    found = tuner.evaluate(data.test)
    assert found.zero_shot is None
    bound = tuner.run_.bind(data.test)
    result = tuner.finish(tmp_path / "run", bound)
    assert result.zero_shot is None
    assert json.loads((tmp_path / "run" / "result.json").read_text())["zero_shot"] is None


def test_a_run_from_before_there_was_a_step_size_setting_has_the_rule_of_the_library(model, data, tmp_path):
    out = tmp_path / "run"
    PromptTuner(FORGET, preset="tuned", **SHORT).fit(model, data, out=out)
    config = json.loads((out / "config.json").read_text())
    assert config["settings"].pop("step_size") == "library"
    (out / "config.json").write_text(json.dumps(config))
    old = read_config(out)
    assert old.settings.step_size == "library"
    resume(model, data, out, iterations=7)
    new = old.model_copy(update={"settings": dataclasses.replace(old.settings, step_size="csa")})
    assert identify(old).difference(identify(new)) == "step_size was 'library', now it is 'csa'"
