"""One random CLIP in every format of checkpoint, and the messages for files that cannot be used."""

from __future__ import annotations

import json
import pickle
import shutil
import time
import warnings
import zipfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.tiny import NAMES, make_clip
from unsee.errors import ModelError
from unsee.models import checkpoints, load_model
from unsee.models.checkpoints import Preprocess, read_checkpoint
from unsee.models.tokenizers import ClipTokenizer, find_tokenizer

TEXT = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
VISION = TEXT | {"image_size": 32, "patch_size": 8}
WIDE = TEXT | {  # the vision width and patch of a ViT-B-32, cut down in depth
    "hidden_size": 768,
    "num_hidden_layers": 1,
    "num_attention_heads": 12,
    "image_size": 64,
    "patch_size": 32,
}
IN_BLOCK = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
OUTSIDE = {
    "logit_scale": "logit_scale",
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight",
    "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight",
    "vision_model.post_layernorm.bias": "visual.ln_post.bias",
}


@cache
def clip(activation: str = "quick_gelu", wide: bool = False):
    vision = WIDE if wide else VISION
    return make_clip(TEXT | {"hidden_act": activation}, vision | {"hidden_act": activation}, projection=64, seed=3)


def openai_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A Hugging Face CLIP's weights under the names that OpenAI gave them."""
    out = {new: state[old] for old, new in OUTSIDE.items()}
    out["text_projection"] = state["text_projection.weight"].T
    out["visual.proj"] = state["visual_projection.weight"].T
    for tower, prefix in (("text_model", "transformer"), ("vision_model", "visual.transformer")):
        depth = sum(key.startswith(tower) and key.endswith("fc1.bias") for key in state)
        for i in range(depth):
            theirs, ours = f"{tower}.encoder.layers.{i}", f"{prefix}.resblocks.{i}"
            for kind in ("weight", "bias"):
                qkv = [state[f"{theirs}.self_attn.{part}_proj.{kind}"] for part in "qkv"]
                out[f"{ours}.attn.in_proj_{kind}"] = torch.cat(qkv)
                for old, new in IN_BLOCK.items():
                    out[f"{ours}.{new}.{kind}"] = state[f"{theirs}.{old}.{kind}"]
    return {key: value.detach().clone().contiguous() for key, value in out.items()}


class Nest(torch.nn.Module):
    """Parameters under dotted names, as the modules of a CLIP would hold them."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        inner: dict[str, dict[str, torch.Tensor]] = {}
        for key, value in weights.items():
            first, _, rest = key.partition(".")
            if rest:
                inner.setdefault(first, {})[rest] = value
            else:
                self.register_parameter(first, torch.nn.Parameter(value, requires_grad=False))
        for name, part in inner.items():
            self.add_module(name, Nest(part))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def write_torchscript(path: Path, weights: dict[str, torch.Tensor]) -> Path:
    """As OpenAI published them: an archive with three sizes beside the weights."""
    module = Nest(weights)
    for name, size in (("input_resolution", 32), ("context_length", 77), ("vocab_size", 49408)):
        module.register_buffer(name, torch.tensor(size))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(module, torch.zeros(1)), str(path))
    return path


def write_open_clip(folder: Path, weights: dict[str, torch.Tensor], name: str, **settings) -> Path:
    folder.mkdir(exist_ok=True)
    model = {
        "embed_dim": 64,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 128, "patch_size": 8},
        "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 2},
    }
    config = {"model_cfg": model | settings, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    if name.endswith(".safetensors"):
        save_file(weights, folder / name)
    else:
        torch.save(weights, folder / name)
    return folder


def answers(name: str | Path) -> np.ndarray:
    """Log-confidences of a model on the same images, names and contexts.

    The images' shape is one where Hugging Face's centre crop and OpenCLIP's start at the same pixel.
    """
    rng = np.random.default_rng(0)
    bound = load_model(name).bind(rng.integers(0, 256, (3, 42, 36, 3), dtype=np.uint8), NAMES)
    return bound.log_confidences(rng.standard_normal((2, 4, 128)).astype(np.float32) * 0.05)


def same_weights(a: str | Path, b: str | Path) -> bool:
    one, two = read_checkpoint(str(a)).state, read_checkpoint(str(b)).state
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The Hugging Face folder, and its answers."""
    folder = tmp_path_factory.mktemp("quick")
    clip().save_pretrained(folder)
    return folder, answers(folder)


@pytest.fixture(scope="module")
def weights(quick):
    return openai_names(load_file(quick[0] / "model.safetensors"))


@pytest.fixture
def folder(tmp_path, quick):
    """A Hugging Face folder to be spoiled; its config is the whole one's."""
    (tmp_path / "config.json").write_bytes((quick[0] / "config.json").read_bytes())
    return tmp_path


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
    [
        ({}, {"mode": "shortest"}),
        ({"resize_mode": None, "interpolation": None}, {"mode": "shortest"}),
        ({"resize_mode": "longest", "fill_color": 127}, {"mode": "longest", "fill": 127}),
        ({"resize_mode": "squash", "interpolation": "bilinear"}, {"mode": "squash", "interpolation": "bilinear"}),
        ({"interpolation": "random"}, {"interpolation": "bicubic"}),  # random in training only, says open_clip
        ({"mean": 0.5, "std": 0.25}, {}),
        ({"size": [32, 32], "mode": "RGB"}, {}),
    ],
)
def test_open_clips_preprocessing_is_read(weights, tmp_path, settings, wanted):
    folder = with_preprocess(write_open_clip(tmp_path / "theirs", weights, "open_clip_model.safetensors"), **settings)
    usual = Preprocess(32, 32, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), crop_rounding="even")
    assert read_checkpoint(str(folder)).preprocess == replace(usual, **wanted)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"resize_mode": "crop"}, "preprocess_cfg.resize_mode is 'crop'; it must be shortest, longest or squash"),
        ({"interpolation": "nearest"}, "preprocess_cfg.interpolation is 'nearest'; it must be bicubic, bilinear or"),
        ({"fill_color": 300}, "preprocess_cfg.fill_color is 300; it must be a whole number from 0 to 255"),
        ({"fill_color": [0, 0, 0]}, "preprocess_cfg.fill_color is [0, 0, 0]; it must be"),
        ({"mode": "L"}, "preprocess_cfg.mode is 'L'; it must be RGB"),
        ({"mean": [0.5, 0.5]}, "preprocess_cfg.mean is [0.5, 0.5]; it must be three numbers"),
        ({"std": "wide"}, "preprocess_cfg.std is 'wide'; it must be three numbers"),
        ({"std": 0}, "preprocess_cfg.std is 0; it must be above 0"),
    ],
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
@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
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


# Error messages: one line with the file and the first problem.


def refusal(name: str | Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(name)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


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
    [
        ("visual.conv1.weight", "visual.conv1.weight is missing"),
        ("text_projection", "text_projection is missing"),
        ("logit_scale", "logit_scale is missing"),
        ("transformer.resblocks.1.mlp.c_fc.bias", "text_model.encoder.layers.1.mlp.fc1.bias is missing"),
        ("visual.transformer.resblocks.0.attn.in_proj_weight", "self_attn.q_proj.weight is missing"),
        ("transformer.resblocks.0.mlp.c_fc.weight", "transformer.resblocks.0.mlp.c_fc.weight is missing"),
        ("visual.transformer.resblocks.0.mlp.c_fc.weight", "visual.transformer.resblocks.0.mlp.c_fc.weight is missing"),
    ],
)
def test_a_missing_tensor_is_named_in_an_openai_file(weights, tmp_path, key, said):
    torch.save({k: v for k, v in weights.items() if k != key}, tmp_path / "clip.pt")
    message = refusal(tmp_path / "clip.pt")
    assert message.startswith(str(tmp_path / "clip.pt"))
    assert said in message


@pytest.mark.parametrize(
    ("key", "spoil"),
    [
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
    ],
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
    assert refusal(tmp_path) == f"{tmp_path / 'config.json'}: model_type is 'bert', not 'clip'"


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


def test_a_resnet_clip_is_refused(tmp_path):
    torch.save({"visual.layer1.0.conv1.weight": torch.zeros(4, 4, 1, 1)}, tmp_path / "RN50.pt")
    message = refusal(tmp_path / "RN50.pt")
    assert message == f"{tmp_path / 'RN50.pt'}: a CLIP with a ResNet image tower; only ViT models are supported"


def test_a_resnet_clip_with_openai_names_is_refused(weights, tmp_path):
    """OpenAI's ResNets have a visual.conv1 too, the first of a stem of three."""
    state = {key: value for key, value in weights.items() if not key.startswith("visual.")}
    state["visual.conv1.weight"] = torch.zeros(32, 3, 3, 3)
    state["visual.layer1.0.conv1.weight"] = torch.zeros(64, 64, 1, 1)
    torch.save(state, tmp_path / "RN50.pt")
    assert "ResNet" in refusal(tmp_path / "RN50.pt")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vision_cfg": {"timm_model_name": "vit_medium"}}, "vision_cfg.timm_model_name = 'vit_medium'"),
        ({"vision_cfg": {"layers": [3, 4, 6, 3]}}, "vision_cfg.layers"),
        ({"vision_cfg": {"attentional_pool": True}}, "vision_cfg.attentional_pool"),
        ({"text_cfg": {"hf_model_name": "roberta-base"}}, "text_cfg.hf_model_name = 'roberta-base'"),
        ({"text_cfg": {"hf_tokenizer_name": "xlm"}}, "text_cfg.hf_tokenizer_name"),
        ({"text_cfg": {"no_causal_mask": True}}, "text_cfg.no_causal_mask"),
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
    assert refusal(name) == f"model {name!r}: no such file or folder"


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


# Nothing in a file is executed.


class Touch:
    """What a malicious pickle does: runs a call when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("form", ["zip", "old zip", "raw pickle"])
@pytest.mark.parametrize("name", ["clip.pt", "pytorch_model.bin", "open_clip_pytorch_model.bin"])
def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(quick, tmp_path, name, form):
    marker, path = tmp_path / "ran", tmp_path / name
    content = {"visual.conv1.weight": torch.zeros(1), "more": Touch(marker)}
    if form == "raw pickle":
        path.write_bytes(pickle.dumps({"more": Touch(marker)}))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    if name == "pytorch_model.bin":
        (tmp_path / "config.json").write_bytes((quick[0] / "config.json").read_bytes())
    if name == "open_clip_pytorch_model.bin":
        (tmp_path / "open_clip_config.json").write_text('{"model_cfg": {}}')
    message = refusal(path if name == "clip.pt" else tmp_path)
    assert message.startswith(f"{path}: holds more than weights")
    assert not marker.exists()
    if form != "raw pickle":
        torch.load(path, weights_only=False)  # proof that it does run when trusted
        assert marker.exists()


class Overwriting(torch.nn.Module):
    """What a malicious TorchScript archive does: its own code runs when torch reads it."""

    def __init__(self, victim: str) -> None:
        super().__init__()
        self.victim = victim
        self.weight = torch.nn.Parameter(torch.zeros(2))

    @torch.jit.export
    def __getstate__(self):
        return (self.weight, self.victim, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, str, bool]) -> None:
        self.weight = torch.from_file(state[1], shared=True, size=4, dtype=torch.uint8).fill_(7)
        self.victim = state[1]
        self.training = state[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_a_torchscript_archive_that_wants_to_run_code_is_refused_and_does_not_run(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "clip.pt"
    victim.write_bytes(b"keep")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(Overwriting(str(victim))).save(str(path))
        assert victim.read_bytes() == b"keep"
        assert refusal(path).startswith(str(path))
        assert victim.read_bytes() == b"keep"
        torch.jit.load(str(path))  # proof that it does run when torch reads it
    assert victim.read_bytes() == bytes([7] * 4)


def test_a_torchscript_archive_whose_tree_wants_to_run_code_is_refused_and_does_not_run(tmp_path):
    marker, path = tmp_path / "ran", tmp_path / "clip.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("clip/data.pkl", pickle.dumps({"weight": Touch(marker)}, protocol=2))
        archive.writestr("clip/constants.pkl", b"")
    assert refusal(path).startswith(f"{path}: holds more than weights")
    assert not marker.exists()


# Tokenizers


def train_tokenizer(folder: Path):
    """A byte-pair tokenizer of a few hundred tokens in CLIP's manner."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator([f"a photo of a {name}." for name in NAMES] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def test_a_tokenizer_json_is_used(tmp_path):
    trained = train_tokenizer(tmp_path)
    found = find_tokenizer(tmp_path, trained.get_vocab_size())
    assert (found.sos, found.eot) == (0, 1)
    assert found.ids("a photo of a Deer.") == trained.encode("a photo of a deer.").ids
    assert found.ids("") == []


def test_padding_and_cutting_that_a_tokenizer_json_asks_for_are_left_out(tmp_path):
    trained = train_tokenizer(tmp_path)
    wanted = trained.encode("a photo of a frog and a ship.").ids
    trained.enable_padding(length=77)
    trained.enable_truncation(4)
    trained.save(str(tmp_path / "tokenizer.json"))
    assert find_tokenizer(tmp_path, 300).ids("a photo of a frog and a ship.") == wanted


def test_a_vocabulary_and_merges_are_used(tmp_path):
    from transformers import CLIPTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz."
    tokens = ["<|startoftext|>", *letters, *(f"{letter}</w>" for letter in letters), "ca", "cat</w>", "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\n")
    found = find_tokenizer(tmp_path, len(tokens))
    assert (found.sos, found.eot) == (0, len(tokens) - 1)
    assert found.ids("Cat.") == [tokens.index("cat</w>"), tokens.index(".</w>")]
    assert found.ids("cat.") == CLIPTokenizer.from_pretrained(tmp_path)("cat.").input_ids[1:-1]


def test_a_tokenizers_fingerprint_changes_with_its_file_only(tmp_path):
    (here := tmp_path / "here").mkdir()
    (there := tmp_path / "there").mkdir()
    train_tokenizer(here)
    content = (here / "tokenizer.json").read_text()
    (there / "tokenizer.json").write_text(content)
    first = find_tokenizer(here, 300).fingerprint
    assert find_tokenizer(there, 300).fingerprint == first
    (there / "tokenizer.json").write_text(content.replace('"Lowercase"', '"NFC"'))
    assert find_tokenizer(there, 300).fingerprint != first
    assert ClipTokenizer().fingerprint == "clip-bpe-49408"


def test_a_vocabularys_fingerprint_changes_with_either_file(tmp_path):
    def fingerprint(tokens: list[str], merges: str) -> str:
        (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
        (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}")
        return find_tokenizer(tmp_path, len(tokens)).fingerprint

    tokens = ["<|startoftext|>", "a", "b", "a</w>", "b</w>", "ab</w>", "<|endoftext|>"]
    turned = ["<|startoftext|>", "b", "a", "a</w>", "b</w>", "ab</w>", "<|endoftext|>"]
    first = fingerprint(tokens, "a b</w>\n")
    assert len({first, fingerprint(turned, "a b</w>\n"), fingerprint(tokens, "")}) == 3
    assert fingerprint(tokens, "a b</w>\n") == first


def test_the_same_weights_under_another_tokenizer_have_another_fingerprint(tmp_path):
    size = train_tokenizer(tmp_path).get_vocab_size()
    text = TEXT | {"vocab_size": size, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    make_clip(text, VISION, projection=64).save_pretrained(tmp_path)
    before = load_model(tmp_path).card.fingerprint
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace('"Lowercase"', '"NFC"'))
    assert load_model(tmp_path).card.fingerprint != before


def test_a_whole_model_with_its_own_small_vocabulary_loads(tmp_path):
    trained = train_tokenizer(tmp_path)
    size = trained.get_vocab_size()
    text = TEXT | {"vocab_size": size, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    make_clip(text, VISION, projection=64).save_pretrained(tmp_path)
    found = answers(tmp_path)
    assert found.shape == (2, 3, len(NAMES))
    assert np.isfinite(found).all()


def test_an_end_of_text_that_the_tokenizer_does_not_have_is_refused(tmp_path):
    trained = train_tokenizer(tmp_path)
    text = TEXT | {"vocab_size": trained.get_vocab_size(), "eos_token_id": 5}
    make_clip(text, VISION, projection=64).save_pretrained(tmp_path)
    assert refusal(tmp_path) == f"{tmp_path}: eos_token_id is 5, but the tokenizer ends with 1"


def test_a_vocabulary_that_is_not_clips_needs_a_tokenizer_file(tmp_path):
    make_clip(TEXT | {"vocab_size": 500}, VISION, projection=64).save_pretrained(tmp_path)
    assert refusal(tmp_path) == f"{tmp_path}: no tokenizer.json, and 500 tokens are not CLIP's 49408"


@pytest.mark.parametrize("content", ["{", "{}", ""])
def test_a_broken_tokenizer_json_is_named(quick, folder, content):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    (folder / "tokenizer.json").write_text(content)
    assert str(folder / "tokenizer.json") in refusal(folder)


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_broken_vocabulary_is_named(quick, folder, content):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    (folder / "vocab.json").write_text(content)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    assert str(folder) in refusal(folder)


def test_a_tokenizer_without_clips_special_tokens_is_named(quick, folder):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    trained = train_tokenizer(folder)
    content = trained.to_str().replace("<|startoftext|>", "<s>")
    (folder / "tokenizer.json").write_text(content)
    assert refusal(folder) == f"{folder / 'tokenizer.json'}: has no <|startoftext|> token"
