"""Checkpoints that cannot be used are refused in one line."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.models.clip_files import (
    answers,
    few,
    refusal,
    write_open_clip,
    write_torchscript,
)


def test_truncated_safetensors_are_named(quick, folder):
    content = (quick[0] / "model.safetensors").read_bytes()
    for size in (0, 5, 2000, len(content) - 10):
        (folder / "model.safetensors").write_bytes(content[:size])
        assert f"{folder / 'model.safetensors'}: truncated or not a weights file" in refusal(folder)


@pytest.mark.parametrize("form", ["state dict", "torchscript"])
def test_truncated_pt_files_are_named(weights, tmp_path, form):
    path = tmp_path / "clip.pt"
    torch.save(weights, path) if form == "state dict" else write_torchscript(path, weights)
    content = path.read_bytes()
    for size in (0, 5, 2000, len(content) // 2, len(content) - 10):
        path.write_bytes(content[:size])
        message = refusal(path)
        assert str(path) in message
        assert "truncated" in message or "damaged" in message


def test_a_tensor_of_the_wrong_shape_is_named_in_a_hugging_face_folder(quick, folder):
    state = load_file(quick[0] / "model.safetensors")
    key = "text_model.encoder.layers.1.mlp.fc1.weight"
    save_file(state | {key: state[key][:-1].contiguous()}, folder / "model.safetensors")
    assert refusal(folder) == f"{folder}: {key} has shape (255, 128), expected (256, 128)"


def test_a_missing_tensor_is_named_in_a_hugging_face_folder(quick, folder):
    state = load_file(quick[0] / "model.safetensors")
    del state["vision_model.encoder.layers.0.self_attn.k_proj.bias"]
    save_file(state, folder / "model.safetensors")
    wanted = "vision_model.encoder.layers.0.self_attn.k_proj.bias is missing"
    assert refusal(folder) == f"{folder}: not a CLIP checkpoint: {wanted}"


@pytest.mark.parametrize("tower", ["text", "vision"])
def test_a_config_with_fewer_layers_than_the_weights_is_refused(quick, folder, tower):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config[f"{tower}_config"]["num_hidden_layers"] = 1
    (folder / "config.json").write_text(json.dumps(config))
    message = refusal(folder)
    assert message.startswith(f"{folder}: {tower}_model.encoder.layers.1.")
    assert message.endswith(f"does not belong to this CLIP {'image' if tower == 'vision' else 'text'} tower")


def test_a_missing_shard_is_named(quick, folder):
    index = {"weight_map": {"logit_scale": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert str(folder / "model-00001-of-00001.safetensors") in refusal(folder)


@pytest.mark.parametrize(
    ("key", "said"),
    few(
        3,
        ("visual.conv1.weight", "visual.conv1.weight is missing"),
        ("text_projection", "text_projection is missing"),
        ("logit_scale", "logit_scale is missing"),
        ("transformer.resblocks.1.mlp.c_fc.bias", "text_model.encoder.layers.1.mlp.fc1.bias is missing"),
        ("visual.transformer.resblocks.0.attn.in_proj_weight", "self_attn.q_proj.weight is missing"),
        ("transformer.resblocks.0.mlp.c_fc.weight", "transformer.resblocks.0.mlp.c_fc.weight is missing"),
        ("visual.transformer.resblocks.0.mlp.c_fc.weight", "visual.transformer.resblocks.0.mlp.c_fc.weight is missing"),
    ),
)
def test_a_missing_tensor_is_named_in_an_openai_file(weights, tmp_path, key, said):
    torch.save({k: v for k, v in weights.items() if k != key}, tmp_path / "clip.pt")
    message = refusal(tmp_path / "clip.pt")
    assert message.startswith(str(tmp_path / "clip.pt"))
    assert said in message


@pytest.mark.parametrize(
    ("key", "spoil"),
    few(
        3,
        ("visual.conv1.weight", lambda t: t[0]),
        ("visual.proj", lambda t: t[:-1]),
        ("positional_embedding", lambda t: t[0]),
        ("visual.positional_embedding", lambda t: t[:-1]),
        ("token_embedding.weight", lambda t: t[:, 0]),
        ("text_projection", lambda t: t[0]),
        ("text_projection", lambda t: t[0, 0]),
        ("positional_embedding", lambda t: t[0, 0]),
        ("visual.positional_embedding", lambda t: t[0, 0]),
        ("visual.proj", lambda t: t[0, 0]),
        ("logit_scale", lambda t: t[None].expand(2)),
        ("transformer.resblocks.1.attn.in_proj_weight", lambda t: t[:-1]),
        ("transformer.resblocks.1.attn.in_proj_weight", lambda t: t[0, 0]),
        ("visual.transformer.resblocks.0.mlp.c_fc.weight", lambda t: t[0, 0]),
        ("visual.transformer.resblocks.1.mlp.c_proj.bias", lambda t: t[:-1]),
    ),
)
def test_a_tensor_of_the_wrong_shape_is_refused_in_an_openai_file(weights, tmp_path, key, spoil):
    torch.save(weights | {key: spoil(weights[key]).clone()}, tmp_path / "clip.pt")
    message = refusal(tmp_path / "clip.pt")
    assert message.startswith(str(tmp_path / "clip.pt"))
    assert "shape" in message or "axes" in message


def test_the_wrong_architecture_for_the_weights_is_refused(weights, tmp_path):
    torch.save(weights, tmp_path / "clip.pt")
    message = refusal(f"ViT-B-16:{tmp_path / 'clip.pt'}")
    assert message.startswith(f"{tmp_path / 'clip.pt'}: not a ViT-B-16")


def test_an_unknown_architecture_is_answered_with_near_ones(tmp_path):
    assert "unknown architecture 'ViT-B-33'; did you mean 'ViT-B-32'" in refusal(f"ViT-B-33:{tmp_path / 'clip.pt'}")


def test_a_named_architecture_without_its_file_is_refused(tmp_path):
    assert refusal(f"ViT-B-32:{tmp_path / 'clip.pt'}") == f"model {tmp_path / 'clip.pt'}: no such file"


def test_a_config_of_another_kind_of_model_is_refused(quick, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    said = refusal(tmp_path)
    assert said.startswith(
        f"{tmp_path / 'config.json'}: model_type is 'bert', which is not one of clip, metaclip_2, siglip"
    )


@pytest.mark.parametrize("content", ["{", "[]", "", '"clip"', "\xff"])
@pytest.mark.parametrize("name", ["config.json", "open_clip_config.json"])
def test_a_broken_config_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content.encode("latin1"))
    assert str(tmp_path / name) in refusal(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"text_config": {"hidden_size": "wide"}},
        {"text_config": {"eos_token_id": None}},
        {"text_config": []},
        {"text_config": {"num_attention_heads": 0}},
        {"vision_config": {"patch_size": 0}},
        {"vision_config": "large"},
        {"projection_dim": [64]},
    ],
)
def test_a_config_with_an_impossible_value_is_refused(quick, folder, change):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    for key, value in change.items():
        config[key] = config[key] | value if isinstance(value, dict) else value
    (folder / "config.json").write_text(json.dumps(config))
    assert str(folder) in refusal(folder)


def test_an_unusual_activation_is_refused(quick, folder):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "silu"
    (folder / "config.json").write_text(json.dumps(config))
    assert refusal(folder) == f"{folder}: vision activation 'silu' is not gelu or quick_gelu"


def test_a_resnet_without_its_attention_is_refused(weights, tmp_path):
    """OpenAI's ResNets have a visual.conv1 too, the first of a stem of three."""
    state = {key: value for key, value in weights.items() if not key.startswith("visual.")}
    state["visual.conv1.weight"] = torch.zeros(32, 3, 3, 3)
    state["visual.layer1.0.conv1.weight"] = torch.zeros(64, 64, 1, 1)
    torch.save(state, tmp_path / "RN50.pt")
    wanted = "not a CLIP checkpoint: visual.attnpool.positional_embedding is missing"
    assert refusal(tmp_path / "RN50.pt") == f"{tmp_path / 'RN50.pt'}: {wanted}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vision_cfg": {"layers": [3, 4, 6, 3]}}, "vision_cfg.layers"),
        ({"vision_cfg": {"attentional_pool": True}}, "vision_cfg.attentional_pool"),
        ({"text_cfg": {"hf_model_name": "roberta-base"}}, "text_cfg.hf_model_name = 'roberta-base'"),
        ({"text_cfg": {"hf_tokenizer_name": "xlm"}}, "text_cfg.hf_tokenizer_name"),
    ],
)
def test_an_open_clip_config_that_is_not_plain_clip_is_refused(weights, tmp_path, change, said):
    folder = write_open_clip(tmp_path / "theirs", {"logit_scale": torch.zeros(())}, "open_clip_model.safetensors")
    config = json.loads((folder / "open_clip_config.json").read_text())
    for part, values in change.items():
        config["model_cfg"][part] |= values
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    message = refusal(folder)
    assert message.startswith(str(folder / "open_clip_config.json"))
    assert said in message


def test_an_open_clip_config_that_contradicts_its_weights_is_refused(weights, tmp_path):
    folder = write_open_clip(tmp_path / "theirs", weights, "open_clip_model.safetensors")
    config = json.loads((folder / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["patch_size"] = 16
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    assert "vision patch_size is 8, open_clip_config.json says 16" in refusal(folder)


@pytest.mark.parametrize("name", ["/no/such/folder", "./nothing", "nothing.pt", "nothing", "a/b/c", "~/no such model"])
def test_a_path_that_is_not_there_is_named(name):
    assert refusal(name) == f"model {name!r}: no such file or folder; see: unsee models"


def test_a_folder_without_a_model_is_named(tmp_path):
    assert refusal(tmp_path) == f"{tmp_path}: no config.json or open_clip_config.json in this folder"


def test_a_folder_without_weights_is_named(folder):
    assert refusal(folder) == f"{folder}: no model.safetensors or pytorch_model.bin"


def test_a_file_of_something_else_is_named(tmp_path):
    (tmp_path / "notes.pt").write_text("these are not weights\n" * 100)
    assert refusal(tmp_path / "notes.pt").startswith(str(tmp_path / "notes.pt"))
    torch.save(["a", "list"], tmp_path / "list.pt")
    assert refusal(tmp_path / "list.pt") == f"{tmp_path / 'list.pt'}: not a state dict of tensors"


def test_a_hub_id_that_cannot_be_reached_is_refused_soon():
    started = time.monotonic()
    message = refusal("nobody-at-all/no-such-clip-model")
    assert message.startswith("model 'nobody-at-all/no-such-clip-model' is no local path and could not be fetched")
    assert time.monotonic() - started < 30


def in_hub_cache(cache: Path, name: str, folder: Path) -> None:
    """Puts a folder where the hub's client keeps a repository that it has fetched."""
    kept = cache / f"models--{name.replace('/', '--')}"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, kept / "snapshots" / ("0" * 40))


@pytest.mark.parametrize("name", ["some-one/clip", "facebook/metaclip-b16-fullcc2.5b"])
def test_a_hub_id_may_have_a_dot_in_it(quick, tmp_path, monkeypatch, name):
    in_hub_cache(tmp_path, name, quick[0])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert np.array_equal(answers(name), quick[1])


def test_a_hub_repository_may_have_open_clips_files_only(weights, tmp_path, monkeypatch):
    folder = write_open_clip(tmp_path / "mine", weights, "open_clip_pytorch_model.bin")
    in_hub_cache(tmp_path / "hub", "laion/open-clip", folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert np.array_equal(answers("laion/open-clip"), answers(folder))
