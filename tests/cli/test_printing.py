"""What is printed: names as they are, and a warning where the model does not know them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import unsee
from tests import tiny
from unsee.cli import main
from unsee.cli.scores import result_parts
from unsee.methods.plain import classes_not_known
from unsee.runs.folder import read_result

CHEESES = ("gouda", "brie", "feta", "edam", "cheddar", "gruyere", "roquefort", "ricotta", "manchego", "stilton")


@pytest.fixture
def bracketed(tmp_path):
    names = ("[red]dog", "cat[bold]", ":cat: [b]x", "plain")
    return tiny.write_images(tmp_path / "[images]", names=names, train=4, test=2)


def test_brackets_in_class_and_file_names_are_printed_as_they_are(bracketed, model_folder, tmp_path, capsys):
    common = ["--model", str(model_folder), "--no-cache"]
    run = tmp_path / "[run]"
    options = ["--forget", "[red]dog,cat[bold]", "--iterations", "1", "--out", str(run), *common]
    assert main(["forget", str(bracketed), *options]) == 0
    text = capsys.readouterr().out
    assert "[red]dog and cat[bold]" in text
    assert f"run: {run}" in text
    assert main(["evaluate", str(run), *common]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("[red]dog", "cat[bold]", ":cat: [b]x"))
    image = bracketed / "test" / "[red]dog" / "000.png"
    assert main(["classify", str(run), str(image), "--top", "4", *common]) == 0
    text = capsys.readouterr().out.replace("\n", "").replace(" ", "").replace("│", "")
    assert "[red]dog" in text
    assert ":cat:[b]x" in text


def test_a_class_whose_test_images_cannot_be_read_is_null_not_nan(image_folder, model_folder, tmp_path, capsys):
    copy = shutil.copytree(image_folder, tmp_path / "images")
    for path in (copy / "test" / "dog").iterdir():
        path.write_bytes(b"no image")
    common = ["--model", str(model_folder), "--no-cache"]
    options = ["--forget", "cat", "--iterations", "1", "--skip-bad-images", "--out", str(tmp_path / "run"), *common]
    assert main(["forget", str(copy), *options]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json", *common]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["per_class"]["dog"] == {"before": None, "after": None, "served": None}
    assert main(["evaluate", str(tmp_path / "run"), *common]) == 0
    assert "–" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html")]) == 0


def test_names_that_the_model_does_not_know_are_pointed_out_before_tuning(tmp_path, capsys):
    photos = tiny.write_images(tmp_path / "photos", names=CHEESES, train=8, test=2)
    out = tmp_path / "run"
    options = ["--forget", "brie", "--iterations", "2", "--out", str(out), "--no-cache"]
    assert main(["forget", str(photos), *options]) == 0
    text, err = capsys.readouterr()
    (line,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert "the model hardly knows these classes" in line
    assert "chance is 10 %" in line
    assert err.index("warning: ") < err.index("generation 2/2")
    assert "warning: the model hardly knows these classes" in text
    assert json.loads((out / "result.json").read_text())["warnings"] == [line.removeprefix("warning: ")]


def test_names_that_the_model_knows_are_not():
    demo = unsee.load_data("demo")
    said = []
    tuner = unsee.PromptTuner(["cat"], iterations=1, shots=2)
    tuner.fit(unsee.load_model("mini"), demo, say=said.append)
    assert said == tuner.warnings_ == []


def test_a_long_list_is_counted_and_one_seed_has_no_spread(tmp_path, model_folder, capsys):
    photos = tiny.write_images(tmp_path / "photos", names=[*CHEESES, "comte", "tomme"], train=2, test=1)
    options = ["--methods", "zero-shot", "--seeds", "0", "--forget", ",".join((*CHEESES, "comte"))]
    options += ["--model", str(model_folder), "--no-cache", "--out", str(tmp_path / "runs")]
    assert main(["compare", str(photos), *options]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "forgetting gouda, brie, feta, edam, cheddar, gruyere, roquefort, ricotta and 3 more (12 test images" in text
    assert "one seed, in points" in text
    assert "±" not in text


def test_classes_that_the_model_does_not_know_are_named_before_tuning(tmp_path, capsys):
    """Photos of frogs are no xylophones: the name is known to be wrong for them."""
    demo = unsee.load_data("demo")
    for part in ("train", "test"):
        images = getattr(demo, part)
        for name in ("cat", "dog", "ship", "frog"):
            folder = tmp_path / "photos" / part / {"frog": "xylophone"}.get(name, name)
            folder.mkdir(parents=True)
            for i in np.flatnonzero(images.labels == demo.class_names.index(name))[:20]:
                images.read(int(i)).save(folder / f"{i}.png")
    options = ["--forget", "cat", "--iterations", "1", "--shots", "8", "--out", str(tmp_path / "run"), "--no-cache"]
    assert main(["forget", str(tmp_path / "photos"), *options]) == 0
    _, err = capsys.readouterr()
    assert "warning: mini does not know: xylophone (at or below chance under 'a photo of a {}.')" in err
    assert err.index("does not know") < err.index("generation 1/1")


def test_a_class_is_unknown_only_if_there_are_images_enough():
    labels = np.repeat([0, 1, 2], [12, 12, 2])
    plain = np.full((26, 3), 0.1, np.float32)
    plain[np.arange(26), np.where(labels == 0, 0, (labels + 1) % 3)] = 0.8
    assert classes_not_known(plain, labels) == [1]  # class 2 is never recognised either, but has two images


def test_a_run_ends_with_the_next_command_and_says_if_it_is_below_the_plain_prompt(model, data, tmp_path):
    out = tmp_path / "my run"
    tuner = unsee.PromptTuner(["cat"], iterations=1, shots=2)
    tuner.fit(model, data, out=out)
    tuner.finish(out, tuner.run_.bind(data.test))
    result = read_result(out)
    low, high = unsee.Scores(h=0.1, err_for=0.1, acc_mem=0.1), unsee.Scores(h=0.9, err_for=0.9, acc_mem=0.9)
    worse = result_parts(result.model_copy(update={"test": low, "zero_shot": high}), out, 60)
    assert any("below the plain prompt: H 10.00 prompt alone, 90.00 plain prompt" in str(part) for part in worse)
    better = result_parts(result.model_copy(update={"test": high, "zero_shot": low}), out, 60)
    assert not any("below" in part for part in better if isinstance(part, str))
    assert better[-1].splitlines()[-1].startswith(f"next: unsee audit '{out}'")
