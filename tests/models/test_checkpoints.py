"""Every format of checkpoint loads to the same logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.clip_files import (
    answers,
    clip,
    few,
    openai_names,
    refusal,
    same_weights,
    write_open_clip,
    write_torchscript,
)
from unsee.models.fast import checkpoints
from unsee.models.fast.checkpoints import Preprocess, read_checkpoint


def test_the_answers_tell_models_apart(quick, tmp_path):
    clip("gelu").save_pretrained(tmp_path)
    assert np.abs(answers(tmp_path) - quick[1]).max() > 1e-3


def test_hugging_face_bin_loads_to_the_same_logits(quick, folder):
    torch.save(load_file(quick[0] / "model.safetensors"), folder / "pytorch_model.bin")
    assert same_weights(folder, quick[0])
    assert np.array_equal(answers(folder), quick[1])


def test_hugging_face_shards_load_to_the_same_logits(quick, tmp_path):
    clip().save_pretrained(tmp_path, max_shard_size="2MB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert (tmp_path / "model.safetensors.index.json").is_file()
    assert np.array_equal(answers(tmp_path), quick[1])


def test_hugging_face_bin_shards_load_to_the_same_logits(quick, folder):
    state = sorted(load_file(quick[0] / "model.safetensors").items())
    parts = {"pytorch_model-00001-of-00002.bin": dict(state[:20]), "pytorch_model-00002-of-00002.bin": dict(state[20:])}
    for name, part in parts.items():
        torch.save(part, folder / name)
    index = {"weight_map": {key: name for name, part in parts.items() for key in part}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert np.array_equal(answers(folder), quick[1])


def test_both_ends_of_text_rules_of_hugging_face_configs_load(quick, folder):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    assert read_checkpoint(str(folder)).eos == 49407
    config["text_config"]["eos_token_id"] = 2
    (folder / "config.json").write_text(json.dumps(config))
    assert read_checkpoint(str(folder)).eos is None
    assert np.array_equal(answers(folder), quick[1])


def test_an_openai_state_dict_loads_to_the_same_logits(quick, weights, tmp_path):
    torch.save(weights, tmp_path / "clip.pt")
    assert same_weights(tmp_path / "clip.pt", quick[0])
    assert np.array_equal(answers(tmp_path / "clip.pt"), quick[1])


def test_a_state_dict_inside_a_training_checkpoint_loads_to_the_same_logits(quick, weights, tmp_path):
    torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in weights.items()}}, tmp_path / "clip.pt")
    assert np.array_equal(answers(tmp_path / "clip.pt"), quick[1])


def test_an_openai_torchscript_archive_loads_to_the_same_logits(quick, weights, tmp_path):
    path = write_torchscript(tmp_path / "clip.pt", weights)
    assert same_weights(path, quick[0])
    assert np.array_equal(answers(path), quick[1])


def test_half_precision_archives_load_as_their_rounded_weights(weights, tmp_path):
    half = {key: value.half() for key, value in weights.items()}
    rounded = {key: value.float() for key, value in half.items()}
    torch.save(rounded, tmp_path / "rounded.pt")
    torch.save(half, tmp_path / "half.pt")
    write_torchscript(tmp_path / "script.pt", half)
    wanted = answers(tmp_path / "rounded.pt")
    assert np.array_equal(answers(tmp_path / "half.pt"), wanted)
    assert np.array_equal(answers(tmp_path / "script.pt"), wanted)


def test_half_precision_hugging_face_folders_load_as_their_rounded_weights(quick, folder, weights, tmp_path):
    state = {key: value.half() for key, value in load_file(quick[0] / "model.safetensors").items()}
    save_file(state, folder / "model.safetensors")
    torch.save({key: value.half() for key, value in weights.items()}, tmp_path / "half.pt")
    assert np.array_equal(answers(folder), answers(tmp_path / "half.pt"))


@pytest.mark.parametrize("name", ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"])
def test_open_clip_folders_load_to_the_same_logits_as_a_gelu_hugging_face_folder(weights, tmp_path, name):
    theirs = write_open_clip(tmp_path / "theirs", weights, name)
    clip("gelu").save_pretrained(tmp_path / "ours")
    processor = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    processor |= {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "ours" / "preprocessor_config.json").write_text(json.dumps(processor))
    assert np.array_equal(answers(theirs), answers(tmp_path / "ours"))


def test_an_open_clip_folder_that_asks_for_quick_gelu_gets_it(quick, weights, tmp_path):
    folder = write_open_clip(tmp_path / "theirs", weights, "open_clip_model.safetensors", quick_gelu=True)
    config = json.loads((folder / "open_clip_config.json").read_text())
    del config["preprocess_cfg"]
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    assert np.array_equal(answers(folder), quick[1])


def with_preprocess(folder: Path, **settings) -> Path:
    """An OpenCLIP folder with these settings in its preprocess_cfg."""
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["preprocess_cfg"] |= settings
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("settings", "wanted"),
    few(
        3,
        ({}, {"mode": "shortest"}),
        ({"resize_mode": None, "interpolation": None}, {"mode": "shortest"}),
        ({"resize_mode": "longest", "fill_color": 127}, {"mode": "longest", "fill": 127}),
        ({"resize_mode": "squash", "interpolation": "bilinear"}, {"mode": "squash", "interpolation": "bilinear"}),
        ({"interpolation": "random"}, {"interpolation": "bicubic"}),  # random in training only, says open_clip
        ({"mean": 0.5, "std": 0.25}, {}),
        ({"size": [32, 32], "mode": "RGB"}, {}),
    ),
)
def test_open_clips_preprocessing_is_read(weights, tmp_path, settings, wanted):
    folder = with_preprocess(write_open_clip(tmp_path / "theirs", weights, "open_clip_model.safetensors"), **settings)
    usual = Preprocess(32, 32, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), crop_rounding="even")
    assert read_checkpoint(str(folder)).preprocess == replace(usual, **wanted)


@pytest.mark.parametrize(
    ("settings", "said"),
    few(
        3,
        ({"resize_mode": "crop"}, "preprocess_cfg.resize_mode is 'crop'; it must be shortest, longest or squash"),
        ({"interpolation": "nearest"}, "preprocess_cfg.interpolation is 'nearest'; it must be bicubic, bilinear or"),
        ({"fill_color": 300}, "preprocess_cfg.fill_color is 300; it must be a whole number from 0 to 255"),
        ({"fill_color": [0, 0, 0]}, "preprocess_cfg.fill_color is [0, 0, 0]; it must be"),
        ({"mode": "L"}, "preprocess_cfg.mode is 'L'; it must be RGB"),
        ({"mean": [0.5, 0.5]}, "preprocess_cfg.mean is [0.5, 0.5]; it must be three numbers"),
        ({"std": "wide"}, "preprocess_cfg.std is 'wide'; it must be three numbers"),
        ({"std": 0}, "preprocess_cfg.std is 0; it must be above 0"),
    ),
)
def test_preprocessing_that_cannot_be_done_is_refused(weights, tmp_path, settings, said):
    folder = with_preprocess(write_open_clip(tmp_path / "theirs", weights, "open_clip_model.safetensors"), **settings)
    assert f"{folder / 'open_clip_config.json'}: {said}" in refusal(folder)


def test_open_clip_weights_with_the_text_tower_apart_load_to_the_same_logits(quick, weights, tmp_path):
    vision = ("visual.", "logit_scale")
    apart = {key if key.startswith(vision) else f"text.{key}": value for key, value in weights.items()}
    torch.save(apart, tmp_path / "clip.pt")
    assert np.array_equal(answers(tmp_path / "clip.pt"), quick[1])


@pytest.mark.parametrize(("architecture", "activation"), [("ViT-B-32", "gelu"), ("ViT-B-32-quickgelu", "quick_gelu")])
@pytest.mark.parametrize("name", [pytest.param("weights.pt", marks=pytest.mark.slow), "weights.safetensors"])
def test_a_named_architecture_and_its_weights_load_to_the_same_logits(tmp_path, architecture, activation, name):
    model = clip(activation, wide=True)
    model.save_pretrained(tmp_path)
    state = openai_names(model.state_dict())
    save_file(state, tmp_path / name) if name.endswith("safetensors") else torch.save(state, tmp_path / name)
    assert np.array_equal(answers(f"{architecture}:{tmp_path / name}"), answers(tmp_path))


def test_no_file_of_the_models_is_longer_than_400_lines():
    files = Path(checkpoints.__file__).parent.glob("*.py")
    assert not {path.name for path in files if len(path.read_text(encoding="utf-8").splitlines()) > 400}


def test_the_names_that_others_import_stay_where_they_are():
    for name in ("Checkpoint", "Preprocess", "TowerSizes", "check", "expected", "read_checkpoint", "OPENAI_MEAN"):
        assert name in checkpoints.__all__
        assert hasattr(checkpoints, name)
