"""`unsee models check`: a model compared with its own library."""

from __future__ import annotations

import json
import logging
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.models.clip_files import clip, openai_names, write_open_clip, write_torchscript
from tests.models.dual_files import FAMILIES, modern, write
from unsee.cli import main
from unsee.models import load_model
from unsee.models.check.proof import compare_answers, prove
from unsee.models.check.reference import open_reference

pytestmark = modern

REST = [family for family in FAMILIES if family != "altclip"]


@pytest.fixture(scope="module", autouse=True)
def silent():
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def altclip(tmp_path_factory):
    return write(tmp_path_factory.mktemp("altclip"), "altclip")


@pytest.mark.parametrize("family", ["altclip", *(pytest.param(family, marks=pytest.mark.slow) for family in REST)])
def test_every_family_passes(tmp_path, altclip, family):
    found = prove(str(altclip if family == "altclip" else write(tmp_path, family)))
    assert found.passed
    assert set(found.differences) == {"random contexts", "plain templates", "longest names"}
    assert found.largest < 1e-5
    assert found.weights > 50
    assert found.ratio > 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["folder", "torchscript", "open_clip"])
def test_every_form_of_clip_passes(tmp_path, form):
    weights = openai_names(clip().state_dict())
    if form == "torchscript":
        path = write_torchscript(tmp_path / "clip.pt", weights)
    elif form == "open_clip":
        path = write_open_clip(tmp_path / "open", weights, "open_clip_model.safetensors", quick_gelu=True)
    else:
        path = tmp_path / "folder"
        clip().save_pretrained(path)
    found = prove(str(path))
    assert found.passed
    assert found.largest < 1e-5
    assert ("as unsee reads them" in found.reference) == (form != "folder")


@pytest.mark.slow
def test_one_form_can_be_compared_with_another(tmp_path):
    """OpenAI's file read by us, against Hugging Face's folder read by its library: nothing is shared."""
    clip().save_pretrained(tmp_path / "folder")
    torch.save(openai_names(clip().state_dict()), tmp_path / "clip.pt")
    found = prove(str(tmp_path / "clip.pt"), against=str(tmp_path / "folder"))
    assert found.passed
    assert "CLIPModel on" in found.reference


@pytest.mark.parametrize("part", ["text", "image"])
def test_a_weight_that_changes_after_loading_is_noticed(altclip, part):
    model = load_model(altclip)
    reference = open_reference(str(altclip), model)
    half = model.tower.model if part == "text" else model.encoder.model
    weight = next(iter(half.parameters())).view(-1)
    weight[-1] += 1e-6 + weight[-1].abs() * 1e-6  # of a token that no prompt uses: it moves no answer
    found = compare_answers(model, reference)
    assert not found.passed
    assert len(found.changed) == 1
    if part == "text":
        assert found.largest < 1e-5, "the answers alone would not have told"


def test_a_weight_that_differs_from_another_copys_is_noticed(altclip, tmp_path, capsys):
    copy = shutil.copytree(altclip, tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    key = "text_model.roberta.encoder.layer.1.output.dense.weight"
    weights[key][3, 5] += 1e-4
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    assert main(["models", "check", str(copy)]) == 0, "the library reads the same wrong weight"
    capsys.readouterr()
    assert main(["models", "check", str(copy), "--against", str(altclip)]) == 1
    printed = capsys.readouterr()
    assert "layers.1.output.dense.weight of" in printed.err
    assert "weights differ from the reference's" in printed.err


@pytest.mark.slow
def test_answers_that_differ_fail(tmp_path):
    clip().save_pretrained(tmp_path)
    model = load_model(tmp_path)
    reference = open_reference(str(tmp_path), model)
    model.logit_scale *= 1.5
    found = compare_answers(model, reference)
    assert found.largest > 1e-3
    assert found.changed == ("logit_scale",)
    model.logit_scale /= 1.5
    model.tower.norm[0][0] = float("nan")
    assert not compare_answers(model, reference).passed


def test_the_command_prints_difference_ratio_and_fingerprint(altclip, tmp_path, capsys):
    Image.fromarray(np.full((50, 60, 3), 90, np.uint8)).save(tmp_path / "grey.png")
    assert main(["models", "check", str(altclip), str(tmp_path / "grey.png")]) == 0
    printed = capsys.readouterr().out
    assert "1 images, against transformers" in printed
    assert "times as fast" in printed
    assert load_model(altclip).card.fingerprint in printed
    assert main(["models", "check", str(altclip), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is True
    assert found["largest"] <= 1e-3


def test_models_without_another_library_and_of_other_sizes_are_refused(altclip, tmp_path, capsys):
    assert main(["models", "check", "mini"]) == 1
    assert "'mini' is not a form that transformers runs" in capsys.readouterr().err
    clip().save_pretrained(tmp_path)
    assert main(["models", "check", str(altclip), "--against", str(tmp_path)]) == 1
    assert "have different sizes" in capsys.readouterr().err
