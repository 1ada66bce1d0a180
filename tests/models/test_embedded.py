"""The embedded model and images: what a newcomer meets first."""

from __future__ import annotations

import json
import shutil

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import unsee
from tests.conftest import SessionOptions
from unsee.cli import main
from unsee.models.families import FAMILIES
from unsee.models.fast import embedded
from unsee.report.paper import experiments
from unsee.runs.prompt import TEMPLATE

FORGET = ["airplane", "automobile", "bird", "cat"]


@pytest.fixture(scope="module")
def cache(demo_features):
    return demo_features


@pytest.fixture(scope="module")
def mini(cache):
    return unsee.load_model("mini", cache=unsee.FeatureCache(cache))


@pytest.fixture(scope="module")
def demo(few_photos):
    return few_photos


@pytest.fixture(scope="module")
def bound(mini, demo):
    return mini.bind(demo.test, demo.class_names)


def test_the_embedded_files_are_small(demo):
    size = sum(path.stat().st_size for path in embedded.EMBEDDED.iterdir())
    assert size <= 25 * 2**20


def test_it_recognises_the_embedded_images_under_plain_prompts(bound, demo):
    for template in (TEMPLATE, "a blurry photo of a {}.", "{}."):
        accuracy = (bound.zero_shot(template).argmax(axis=1) == demo.test.labels).mean()
        assert accuracy >= 0.88, template


@pytest.mark.slow
def test_it_recognises_all_embedded_images():
    demo = unsee.load_data("demo")
    assert len(demo.test) == 2000
    found = unsee.load_model("mini").bind(demo.test, demo.class_names).zero_shot(TEMPLATE)
    assert (found.argmax(axis=1) == demo.test.labels).mean() >= 0.88


def test_its_text_tower_is_clips(mini):
    from safetensors.torch import load_file
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    config = json.loads((embedded.EMBEDDED / "config.json").read_text())
    theirs = CLIPTextModelWithProjection(CLIPTextConfig(**config)).float().eval()
    state = {k: v.float() for k, v in load_file(embedded.EMBEDDED / "text.safetensors").items() if k != "logit_scale"}
    theirs.load_state_dict(state, strict=False)
    texts = ["a photo of a cat.", "ship.", "a dark photo of the large automobile."]
    ours = mini.texts(texts)
    for text, own in zip(texts, ours, strict=True):
        ids = torch.tensor([[mini.tokenizer.sos, *mini.tokenizer.ids(text), mini.tokenizer.eot]])
        with torch.no_grad():
            found = torch.nn.functional.normalize(theirs(input_ids=ids).text_embeds[0], dim=-1)
        assert (found - own).abs().max() < 1e-5


def test_image_embeddings_do_not_depend_on_the_batch(mini, demo):
    prepared = [mini.encoder.prepare(demo.test.read(i)) for i in range(9)]
    together = mini.encoder.encode(prepared)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-4)
    for i in (0, 4, 8):
        assert np.allclose(mini.encoder.encode(prepared[i : i + 1])[0], together[i], atol=1e-5)


def test_transparency_is_shown_on_white_as_with_every_other_model(mini):
    clear = Image.new("RGBA", (40, 40), (255, 0, 0, 128))
    on_white = Image.new("RGB", (40, 40), (255, 127, 127))
    assert np.array_equal(mini.encoder.prepare(clear), mini.encoder.prepare(on_white))


@pytest.mark.parametrize("form", ["embedded", "folder"])
def test_threads_reach_onnx_runtime(form):
    name = "mini" if form == "embedded" else embedded.EMBEDDED
    options = unsee.load_model(name, threads=3).encoder.session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 1)


def test_without_a_word_onnx_runtime_chooses_its_threads(monkeypatch):
    monkeypatch.setattr(onnxruntime, "SessionOptions", SessionOptions)  # not those of the tests
    mini = unsee.load_model("mini")
    assert mini.encoder.session.get_session_options().intra_op_num_threads == 0


@pytest.mark.parametrize("threads", [0, -1])
def test_a_number_of_threads_below_one_is_refused(threads):
    with pytest.raises(unsee.InputError, match=f"threads must be at least 1, not {threads}"):
        unsee.load_model("mini", threads=threads)


def test_the_number_of_threads_changes_no_fingerprint_and_no_embedding(mini, demo):
    other = unsee.load_model("mini", threads=1)
    assert other.card.fingerprint == mini.card.fingerprint
    prepared = [mini.encoder.prepare(demo.test.read(i)) for i in range(3)]
    assert np.abs(other.encoder.encode(prepared) - mini.encoder.encode(prepared)).max() <= 1e-5


def test_its_card_says_what_it_is_and_what_it_is_not(capsys):
    assert main(["models", "show", "mini"]) == 0
    text = capsys.readouterr().out
    for word in ("CIFAR-10", "EfficientNet", "not"):
        assert word in text
    assert main(["models", "show", "mini", "--json"]) == 0
    assert "mini" in json.loads(capsys.readouterr().out)


def test_models_lists_every_kind_in_one_line_each(capsys):
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("│")]
    assert len(lines) == len(FAMILIES)
    for line, family in zip(lines, FAMILIES, strict=True):
        assert all(part in line for part in (family.name, family.write, family.about, family.text, family.tested))
    assert main(["models", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["models"]) == len(FAMILIES)


def test_forgetting_works_on_it(mini, demo):
    tuner = unsee.PromptTuner(FORGET, seed=0, iterations=60).fit(mini, demo)
    found = tuner.evaluate(demo.test)
    assert found.zero_shot.h < 0.3
    assert found.tuned.h > 0.6
    assert found.entropy_after > found.entropy_before + 0.1


def test_damaged_embedded_files_are_one_clear_line(tmp_path):
    with pytest.raises(unsee.ModelError, match="the embedded model is incomplete"):
        embedded.load_mini(folder=tmp_path)
    for path in embedded.EMBEDDED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "image.onnx").write_bytes(b"no graph")
    with pytest.raises(unsee.ModelError, match="not a graph that ONNX Runtime can load"):
        embedded.load_mini(folder=tmp_path)


def test_forget_demo_works_from_any_folder_and_draws_its_picture(tmp_path, monkeypatch, capsys, cache, few_demo_photos):
    monkeypatch.chdir(tmp_path)
    assert main(["forget", "demo", "--forget", ",".join(FORGET), "--iterations", "3", "--cache-dir", str(cache)]) == 0
    (run,) = (tmp_path / "runs").glob("demo-guided-*-seed0")
    with Image.open(run / "picture.png") as picture:
        assert min(picture.size) > 300
    assert "label mask" in capsys.readouterr().out


def test_a_folder_in_its_form_is_a_model_too(tmp_path, mini):
    folder = shutil.copytree(embedded.EMBEDDED, tmp_path / "again")
    again = unsee.load_model(folder)
    assert again.card.fingerprint == mini.card.fingerprint
    assert again.card.name == str(folder)
    (folder / "text.safetensors").unlink()
    with pytest.raises(unsee.ModelError, match="incomplete"):
        unsee.load_model(folder)


@pytest.mark.slow
def test_compare_runs_what_is_missing_and_prints_one_table(tmp_path, capsys, cache):
    arguments = ["compare", "demo", "--forget", "cat", "--methods", "zero-shot,label-mask,uniform-gate,lcs,coop"]
    arguments += ["--seeds", "0,1", "--out", str(tmp_path), "--set", "iterations=2", "--set", "shots=4"]
    arguments += ["--cache-dir", str(cache)]
    assert main([*arguments, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["rows"]
    assert [row["method"] for row in first] == ["zero-shot", "label-mask", "uniform-gate", "lcs", "coop"]
    assert first[1]["err_for"] == 1.0
    assert first[2]["err_for"] > 0.8
    assert first[3]["access"] == "confidences"
    assert first[4]["access"] == "gradients"
    assert first[3]["candidates"] == 40
    made = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("result.json"))
    unfinished = next(tmp_path.glob("demo-lcs-seed1-*"))
    (unfinished / "result.json").unlink()
    assert main(arguments) == 0
    assert "uniform-gate" in capsys.readouterr().out
    assert len(set(made) & {path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}) == 9
    assert main(["compare", "demo", "--forget", "cat", "--methods", "lsc"]) == 1
    assert main(["compare", "demo", "--forget", "cat", "--methods", "lcs", "--seeds", "one"]) == 1


def test_data_lists_what_is_there_and_how_to_get_the_rest(tmp_path, capsys):
    assert main(["data", "--data-dir", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "demo" in text
    assert "unsee data get cifar10" in text
    assert main(["data", "--data-dir", str(tmp_path), "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["data"]][:2] == ["demo", "cifar10"]


@pytest.mark.slow
def test_the_embedded_images_stand_for_cifar10(tmp_path, capsys, monkeypatch, cache):
    text = (experiments.TABLES / "table-main.toml").read_text(encoding="utf-8")
    start = text.index('[[rows]]\nname = "Zero-Shot"')
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "table-main.toml").write_text(text[: text.index('[[rows]]\nname = "BBT"', start)])
    monkeypatch.setattr(experiments, "TABLES", tmp_path / "e")
    arguments = ["reproduce", "table-main", "--data", "demo", "--out", str(tmp_path / "runs"), "--seeds", "0,1"]
    assert main([*arguments, "--cache-dir", str(cache), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["experiments"]
    assert found["model"] == "mini"
    assert found["lines"][0]["paper"]["h"] == [15.3]
    assert main([*arguments, "--cache-dir", str(cache)]) == 0
    shown = capsys.readouterr().out
    assert "ours on mini, the paper's on CLIP ViT-B/16" in shown
    assert "15.30" in shown


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(unsee.InputError, match="device 'cuda' is not there; this machine has: cpu"):
        unsee.load_model("mini", device="cuda")
