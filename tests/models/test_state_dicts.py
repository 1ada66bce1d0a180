"""A CLIP that was fine-tuned and saved with torch.save(model.state_dict(), FILE), however its weights are named."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import save_file

from tests.models.clip_files import answers, clip, openai_names, refusal, same_weights
from unsee.models import load_model
from unsee.models.fast.checkpoints import read_checkpoint


@pytest.fixture(scope="module")
def weights():
    return clip().state_dict()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("model")
    clip().save_pretrained(found)
    return found


def test_a_saved_state_dict_answers_as_the_folder_it_came_from(weights, folder, tmp_path):
    torch.save(weights, tmp_path / "tuned.pt")
    assert same_weights(tmp_path / "tuned.pt", folder)
    assert (answers(tmp_path / "tuned.pt") == answers(folder)).all()


def test_a_safetensors_file_with_hugging_faces_names_needs_no_architecture(weights, folder, tmp_path):
    save_file({key: value.clone().contiguous() for key, value in weights.items()}, tmp_path / "tuned.safetensors")
    assert same_weights(tmp_path / "tuned.safetensors", folder)


def prefixed(prefix):
    return lambda state: {prefix + key: value for key, value in state.items()}


WRAPPED = {
    "DataParallel": prefixed("module."),
    "torch.compile": prefixed("_orig_mod."),
    "Lightning": lambda state: {"state_dict": prefixed("model.")(state), "epoch": 3, "global_step": 100},
    "a training loop": lambda state: {"epoch": 3, "model_state_dict": state, "optimizer_state_dict": {"state": {}}},
    "DDP in a training loop": lambda state: {"model": prefixed("module.")(state), "loss": 0.5},
    "a part of a larger model": lambda state: {**prefixed("net.clip.")(state), "net.head.weight": torch.zeros(2, 2)},
    "half precision": lambda state: {key: value.bfloat16().float() for key, value in state.items()},
}


@pytest.mark.parametrize("names", ["hugging face", "openai", "open_clip"])
@pytest.mark.parametrize("how", WRAPPED)
def test_prefixes_and_wrappings_are_taken_off(weights, tmp_path, how, names):
    state = dict(weights) if names == "hugging face" else openai_names(weights)
    if names == "open_clip":  # its CustomTextCLIP
        state = {key if key.startswith(("visual", "logit")) else f"text.{key}": value for key, value in state.items()}
    torch.save(WRAPPED[how](state), tmp_path / "wrapped.pt")
    found = read_checkpoint(str(tmp_path / "wrapped.pt"))
    kept = torch.equal(
        found.state["text_model.embeddings.token_embedding.weight"],
        weights["text_model.embeddings.token_embedding.weight"],
    )
    assert kept or how == "half precision"
    assert (found.text.heads, found.vision.heads, found.vision.layers, found.image) == (2, 2, 2, 32)
    assert found.text.activation == "quick_gelu"


def test_an_architecture_says_the_activation_of_hugging_faces_names_too(tmp_path):
    torch.save(clip(wide=True).state_dict(), tmp_path / "tuned.pt")
    found = read_checkpoint(f"ViT-B-32:{tmp_path / 'tuned.pt'}")
    assert (found.text.activation, found.vision.heads) == ("gelu", 12)
    assert "not a ViT-L-14" in refusal(f"ViT-L-14:{tmp_path / 'tuned.pt'}")


def test_what_the_weights_do_not_say_is_said_once(weights, folder, tmp_path):
    torch.save(weights, tmp_path / "tuned.pt")
    said: list[str] = []
    load_model(tmp_path / "tuned.pt", say=said.append)
    assert len(said) == 1
    assert "quick_gelu" in said[0]
    assert "ViT-B-32:tuned.pt" in said[0]
    load_model(folder, say=said.append)
    assert len(said) == 1, "a folder has a config"


def test_a_tower_whose_heads_are_not_64_wide_is_asked_for_its_architecture(weights, tmp_path):
    huge = dict(weights) | {"vision_model.embeddings.patch_embedding.weight": torch.zeros(1280, 3, 14, 14)}
    for state in (huge, openai_names(huge)):
        torch.save(state, tmp_path / "tuned.pt")
        assert refusal(tmp_path / "tuned.pt").endswith("say its architecture, as in ViT-H-14:tuned.pt")


def test_a_whole_model_is_refused_with_the_line_that_saves_its_weights(tmp_path):
    torch.save(clip(), tmp_path / "model.pt")
    assert "torch.save(model.state_dict()" in refusal(tmp_path / "model.pt")


def test_one_tower_alone_is_said_to_be_one(weights, tmp_path):
    for part, missing in (("text", "image tower"), ("vision", "text tower")):
        torch.save({key: value for key, value in weights.items() if key.startswith(part)}, tmp_path / "part.pt")
        assert f"no {missing}" in refusal(tmp_path / "part.pt")
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "other.pt")
    assert "not a CLIP" in refusal(tmp_path / "other.pt")


@pytest.mark.parametrize("names", ["hugging face", "openai"])
@pytest.mark.parametrize("config", [False, True])
def test_a_folder_may_hold_the_saved_file_with_or_without_a_config(weights, folder, tmp_path, names, config):
    torch.save(dict(weights) if names == "hugging face" else openai_names(weights), tmp_path / "epoch 3.pt")
    if config:
        shutil.copy(folder / "config.json", tmp_path)
    assert same_weights(tmp_path, folder)


def test_of_several_files_of_weights_one_is_to_be_named(weights, tmp_path):
    for epoch in (1, 2):
        torch.save(weights, tmp_path / f"epoch{epoch}.pt")
    torch.save({}, tmp_path / "optimizer.pt")
    assert refusal(tmp_path).endswith(f"several files of weights; name one, as in {tmp_path / 'epoch1.pt'}")
    (tmp_path / "epoch1.pt").unlink()
    read_checkpoint(str(tmp_path))  # the optimizer's state is not a model
