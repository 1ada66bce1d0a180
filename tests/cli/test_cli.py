from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time

import pytest

from tests.test_tuner import in_other_order
from unsee import PromptTuner
from unsee.cli import main
from unsee.data.data_set import Data

FORGET = "airplane,automobile,bird,cat"


@pytest.fixture
def run_unsee(capsys, model_folder, tmp_path):
    def call(*arguments, model=True):
        more = ["--cache-dir", tmp_path / "cache"]
        if model and arguments[0] == "forget":
            more += ["--model", model_folder]
        code = main([str(a) for a in (*arguments, *more)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model_folder, image_folder):
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["forget", image_folder, "--model", model_folder, "--forget", FORGET, "--iterations", 5, "--out", out]
    assert main([str(a) for a in (*arguments, "--no-cache")]) == 0
    return out


def test_forget_ends_with_a_table_and_the_path_of_the_run(run_unsee, image_folder, tmp_path):
    out = tmp_path / "run"
    code, text, err = run_unsee("forget", image_folder, "--forget", FORGET, "--iterations", 3, "--out", out)
    assert code == 0
    for word in ("zero-shot", "label mask", "tuned (guided)", "H", "Err_for", "Acc_mem", f"run: {out}"):
        assert word in text
    assert "generation 3/3" in err
    for name in (
        "config.json",
        "journal.jsonl",
        "checkpoint.jsonl",
        "prompt.safetensors",
        "prompt.json",
        "result.json",
    ):
        assert (out / name).is_file()


def test_json_puts_one_object_on_stdout(run_unsee, image_folder, tmp_path):
    out = tmp_path / "run"
    code, text, _ = run_unsee("forget", image_folder, "--forget", "cat", "--iterations", 2, "--out", out, "--json")
    result = json.loads(text)
    assert code == 0
    assert result == json.loads((out / "result.json").read_text()) | {"run": str(out)}
    for part in ("zero_shot", "valid", "test", "label_mask"):
        assert set(result[part]) == {"h", "err_for", "acc_mem"}
    assert result["ledger"]["candidates"] == 30  # 20 at first, then 10
    assert result["forget"] == ["cat"]
    assert result["method"] == "guided"


def test_config_holds_every_setting_versions_fingerprints_and_the_split(finished):
    config = json.loads((finished / "config.json").read_text())
    assert config["settings"]["contexts"] == 8
    assert config["settings"]["shots"] == 4
    assert len(config["split"]["train"]) == len(config["split"]["valid"]) == 40
    assert len(config["model"]["fingerprint"]) == len(config["data"]["fingerprint"]) == 32
    assert {"python", "numpy", "torch", "cma"} <= set(config["versions"])
    assert config["forget"] == FORGET.split(",")


def test_evaluate_shows_scores_and_every_class(run_unsee, finished):
    code, text, _ = run_unsee("evaluate", finished)
    assert code == 0
    assert "zero-shot" in text
    assert "truck" in text
    code, text, _ = run_unsee("evaluate", finished, "--json")
    found = json.loads(text)
    result = json.loads((finished / "result.json").read_text())
    assert found["test"] == result["test"]
    assert found["zero_shot"] == result["zero_shot"]
    assert found["per_class"]["cat"]["after"] == result["per_class"]["cat"]["after"]


def test_evaluate_takes_the_same_classes_in_another_order_and_refuses_others(
    run_unsee, model, data, image_folder, tmp_path
):
    turned = Data(data.name, in_other_order(data.train), in_other_order(data.test))
    tuner = PromptTuner(FORGET, iterations=5, shots=4).fit(model, turned, out=tmp_path / "run")
    code, text, _ = run_unsee("evaluate", tmp_path / "run", "--data", image_folder, "--json")
    assert code == 0
    assert json.loads(text)["test"] == tuner.score(turned.test).as_dict()
    images = shutil.copytree(image_folder, tmp_path / "images")
    for part in ("train", "test"):
        (images / part / "cat").rename(images / part / "kat")
    code, _, err = run_unsee("evaluate", tmp_path / "run", "--data", images)
    assert code == 1
    assert err.splitlines()[-1].startswith("error: the images' classes are not the run's: they have 'kat', which")


def test_classify_shows_answers_without_and_with_the_prompt(run_unsee, finished, image_folder):
    images = sorted((image_folder / "test" / "cat").glob("*.png"))[:2]
    code, text, _ = run_unsee("classify", finished, *images)
    assert code == 0
    assert "plain prompt" in text
    code, text, _ = run_unsee("classify", finished, *images, "--json", "--top", 10)
    answers = json.loads(text)["images"]
    assert len(answers) == 2
    assert len(answers[0]["before"]) == 10


def test_a_budget_counts_whole_generations_and_resume_continues_to_a_larger_one(run_unsee, image_folder, tmp_path):
    out = tmp_path / "run"
    options = ["--forget", "cat", "--iterations", 4, "--budget", 30, "--out", out, "--json"]
    assert json.loads(run_unsee("forget", image_folder, *options)[1])["ledger"]["candidates"] == 30
    assert json.loads(run_unsee("resume", out, "--json")[1])["ledger"]["candidates"] == 30
    assert json.loads(run_unsee("resume", out, "--json", "--budget", 70)[1])["ledger"]["candidates"] == 50
    more = ["--budget", 1000, "--iterations", 6]
    assert json.loads(run_unsee("resume", out, "--json", *more)[1])["ledger"]["candidates"] == 62


def test_any_setting_can_be_set(run_unsee, image_folder, tmp_path):
    options = ["--forget", "cat", "--iterations", 2, "--out", tmp_path / "run"]
    pairs = ["--set", "search=separable", "--set", "validate=generation", "--set", "sigma0=0.5"]
    assert run_unsee("forget", image_folder, *options, *pairs)[0] == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["search"], settings["validate"], settings["sigma0"]) == ("separable", "generation", 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--forget", "catt"], "unknown class to forget 'catt'; did you mean 'cat'"),
        (["--forget", ","], "no class to forget was named"),
        (["--forget", "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"], "all 10 classes"),
        (["--forget", "cat", "--shots", 5], "class 'airplane' has 8 images to tune on; 5 shots need 10"),
        (["--forget", "cat", "--set", "contexts=100"], "100 contexts are more than the model's 77 tokens allow"),
        (["--forget", "cat", "--set", "contexts=74"], "74 contexts do not fit"),
        (["--forget", "cat", "--set", "colour=red"], "unknown setting 'colour'"),
        (["--forget", "cat", "--set", "colour"], "--set takes KEY=VALUE"),
        (["--forget", "cat", "--budget", 0], "budget must be at least 1"),
        (["--forget", "cat", "--dtype", "float16"], "float16 needs a GPU"),
        (["--forget", "cat", "--device", "tpu"], "device 'tpu' is not there; this machine has: cpu"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(run_unsee, image_folder, tmp_path, options, message):
    code, text, err = run_unsee("forget", image_folder, "--out", tmp_path / "run", *options)
    assert code == 1
    assert text == ""
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_long_class_names_are_refused_by_name(run_unsee, image_folder, tmp_path):
    copy = shutil.copytree(image_folder, tmp_path / "images")
    for part in ("train", "test"):
        (copy / part / "cat").rename(copy / part / ("a b " * 40 + "cat"))
    code, _, err = run_unsee("forget", copy, "--forget", "dog", "--out", tmp_path / "run")
    assert code == 1
    assert "the class name 'a b a b" in err
    assert not (tmp_path / "run").exists()


def test_a_bad_image_is_named_or_skipped(run_unsee, image_folder, tmp_path):
    copy = shutil.copytree(image_folder, tmp_path / "images")
    for i in range(2):
        (copy / "train" / "cat" / f"00{i}.png").write_bytes(b"")
    (copy / "test" / "dog" / "001.png").write_text("no image")
    options = ["--forget", "cat", "--shots", 3, "--iterations", 2, "--out", tmp_path / "run"]
    code, _, err = run_unsee("forget", copy, *options)
    assert code == 1
    assert "cannot read image" in err
    assert "--skip-bad-images leaves such images out" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run" / "result.json").exists()
    code, _, err = run_unsee("forget", copy, *options, "--skip-bad-images", "--overwrite")
    assert code == 0
    assert "dog/001.png" in err
    assert "cat/00" in err


def test_a_taken_run_folder_is_refused_or_overwritten(run_unsee, image_folder, tmp_path):
    options = ["--forget", "cat", "--iterations", 1, "--out", tmp_path / "run"]
    assert run_unsee("forget", image_folder, *options)[0] == 0
    code, _, err = run_unsee("forget", image_folder, *options)
    assert code == 1
    assert "unsee resume" in err
    assert "--overwrite" in err
    assert run_unsee("forget", image_folder, *options, "--overwrite")[0] == 0


@pytest.mark.parametrize("command", ["forget", "compare", "reproduce"])
@pytest.mark.parametrize("out", [None, "train/runs", "../images/runs"])
def test_a_run_inside_the_data_is_refused_and_nothing_is_written(
    monkeypatch, capsys, model_folder, image_folder, tmp_path, command, out
):
    images = shutil.copytree(image_folder, tmp_path / "images")
    before = sorted(images.rglob("*"))
    monkeypatch.chdir(images)
    given = {
        "forget": ["forget", ".", "--forget", "cat"],
        "compare": ["compare", ".", "--forget", "cat", "--methods", "label-mask"],
        "reproduce": ["reproduce", "table-main", "--data", "."],
    }[command]
    more = [] if out is None else ["--out", out]
    assert main([*given, "--model", str(model_folder), "--no-cache", *more]) == 1
    text, err = capsys.readouterr()
    assert not text
    assert err.count("\n") == 1
    assert "is inside the data" in err
    assert f"--out {tmp_path / 'runs'}" in err
    assert sorted(images.rglob("*")) == before


def test_damaged_runs_are_refused_in_one_line(run_unsee, finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    lines = (copy / "checkpoint.jsonl").read_text().splitlines(keepends=True)
    (copy / "checkpoint.jsonl").write_text("".join(["x" + lines[0], *lines[1:]]))
    code, _, err = run_unsee("resume", copy)
    assert (code, err.count("\n")) == (1, 1)
    assert "line 1 is damaged" in err
    (copy / "prompt.safetensors").write_bytes(b"damaged")
    assert run_unsee("evaluate", copy)[0] == 1
    (copy / "config.json").write_text("{}")
    assert run_unsee("resume", copy)[0] == 1
    assert run_unsee("resume", tmp_path / "nothing")[0] == 1


def test_bad_usage_exits_with_2(run_unsee):
    assert run_unsee("forget", model=False)[0] == 2
    assert main(["no-such-command"]) == 2


@pytest.mark.parametrize("command", ["forget", "resume", "evaluate", "classify", "report"])
def test_every_command_explains_itself(capsys, command):
    assert main([command, "--help"]) == 0
    assert "Usage: unsee" in capsys.readouterr().out


def run_in_process(arguments, errors):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    os.dup2(os.open(errors, os.O_CREAT | os.O_WRONLY), sys.stderr.fileno())
    sys.exit(main(arguments))


def test_an_interrupted_run_exits_with_130_and_can_be_resumed(processes, model_folder, image_folder, tmp_path):
    arguments = ["forget", image_folder, "--model", model_folder, "--forget", "cat", "--out", tmp_path / "run"]
    arguments += ["--image-queries", 20_000]
    errors = tmp_path / "errors.txt"
    running = processes.Process(target=run_in_process, args=([*map(str, arguments), "--no-cache"], errors))
    running.start()
    journal = tmp_path / "run" / "journal.jsonl"
    while running.is_alive() and (not journal.exists() or journal.read_bytes().count(b"\n") < 3):
        time.sleep(0.01)
    os.kill(running.pid, signal.SIGINT)
    running.join(timeout=60)
    err = errors.read_text()
    assert running.exitcode == 130
    assert f"unsee resume {tmp_path / 'run'}\n" in err
    assert "Traceback" not in err
    done = journal.read_text().count("\n")
    assert main(["resume", str(tmp_path / "run"), "--iterations", str(done + 2), "--no-cache"]) == 0
    assert journal.read_text().count("\n") == done + 2


def test_resume_says_when_nothing_is_left_to_do(run_unsee, finished, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    code, _, err = run_unsee("resume", copy, "--budget", 9000)
    assert code == 0
    assert "nothing is left to do: all 5 iterations are done; --iterations allows more" in err


def test_a_run_without_a_prompt_says_that_its_method_tunes_none(run_unsee, image_folder, tmp_path):
    options = ["--forget", "cat", "--method", "label-mask", "--shots", 2, "--out", tmp_path / "run"]
    assert run_unsee("forget", image_folder, *options)[0] == 0
    code, _, err = run_unsee("evaluate", tmp_path / "run")
    assert code == 1
    assert "a finished run whose method tunes no prompt" in err
