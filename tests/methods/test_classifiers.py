"""Classifiers from scratch and trained copies: what they are fed, in which batches, and where they run."""

from __future__ import annotations

import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image

from tests import tiny
from tests.test_tuner import FORGET
from unsee import InputError, ModelError, PromptTuner
from unsee.data.images import as_images
from unsee.methods import classifiers, learners
from unsee.methods.classifiers import ScratchLearner
from unsee.methods.learners import CopyLearner
from unsee.methods.losses import forgetting_loss_torch
from unsee.models.fast.checkpoint_record import OPENAI_MEAN, OPENAI_STD

FAST = {"shots": 4, "iterations": 1}


def learner_of(model, data, method="scratch-resnet18", preset="tuned", **settings):
    return ScratchLearner(PromptTuner(FORGET, method, preset=preset, **FAST | settings).task(model, data))


@pytest.fixture
def resnet(tmp_path):
    return tiny.write_resnet(tmp_path / "resnet")


@pytest.fixture
def vit(tmp_path):
    return tiny.write_vit(tmp_path / "vit")


def fed(learner, image):
    return learner.pixels(as_images([image]), np.array([0]))[0]


@pytest.mark.parametrize(("preset", "side"), [("paper", 224), ("tuned", 32)])
def test_the_paper_trains_on_224_pixels_and_the_tuned_preset_on_the_images_own(model, data, preset, side):
    task = PromptTuner(FORGET, "scratch-resnet18", preset=preset, **FAST).task(model, data)
    assert task.settings.image_size == (224 if preset == "paper" else 0)
    assert PromptTuner(FORGET, "finetune", preset=preset, **FAST).task(model, data).settings.image_size == 0
    grey = Image.new("RGB", (24, 24), (51, 102, 204))
    found = fed(ScratchLearner(task), grey)
    assert found.shape == (3, side, side)
    wanted = [(level - mean) / std for level, mean, std in zip((0.2, 0.4, 0.8), OPENAI_MEAN, OPENAI_STD, strict=True)]
    assert found.mean(dim=(1, 2)).tolist() == pytest.approx(wanted, abs=1e-4), "CLIP's statistics"


def test_images_are_cropped_not_squashed(model, data):
    wide = np.zeros((64, 128, 3), dtype=np.uint8)
    wide[:, 32:96] = 255
    found = fed(learner_of(model, data), Image.fromarray(wide))
    assert float(found.min()) > 1, "the dark sides are cut off"


def test_weights_are_fed_what_they_were_trained_on(model, data, resnet, vit):
    black = Image.new("RGB", (24, 24))
    found = fed(learner_of(model, data, weights=str(resnet), image_size=64), black)
    assert found.shape == (3, 64, 64)
    assert found[:, 0, 0].tolist() == pytest.approx([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225])
    found = fed(learner_of(model, data, "scratch-vit", weights=str(vit)), black)
    assert found.shape == (3, 48, 48)
    assert found[:, 0, 0].tolist() == [-1, -1, -1]
    config = {"image_mean": [0.5, 0.25, 0.0], "image_std": [0.5, 0.5, 0.5], "size": {"shortest_edge": 40}}
    (resnet / "preprocessor_config.json").write_text(json.dumps(config))
    found = fed(learner_of(model, data, weights=str(resnet)), black)
    assert found.shape == (3, 40, 40)
    assert found[:, 0, 0].tolist() == [-1, -0.5, 0]


def test_a_vit_with_weights_takes_small_images(model, data, vit):
    settings = {"shots": 2, "iterations": 2, "weights": str(vit)}
    tuner = PromptTuner(FORGET, "scratch-vit", **settings).fit(model, data)
    assert tuner.score(data.test).err_for == 1
    with pytest.raises(InputError, match="take images of 48 pixels: use image_size=48, or 0"):
        PromptTuner(FORGET, "scratch-vit", preset="paper", **settings).fit(model, data)
    with pytest.raises(InputError, match="a multiple of 16"):
        PromptTuner(FORGET, "scratch-vit", shots=2, image_size=40).fit(model, data)


def test_damaged_weights_are_refused_in_one_line(model, data, resnet):
    (resnet / "preprocessor_config.json").write_text('{"image_mean": 3}')
    with pytest.raises(ModelError, match=r"preprocessor_config\.json is damaged"):
        learner_of(model, data, weights=str(resnet))
    (resnet / "preprocessor_config.json").unlink()
    (resnet / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="cannot be loaded"):
        learner_of(model, data, weights=str(resnet))


def gradients(learner):
    loss = learner.backward()
    return loss, [p.grad.clone() for group in learner.groups() for p in group["params"]]


def batches_of(monkeypatch, method, images, side):
    """From now on, this many images of this side are trained on at once."""
    monkeypatch.setattr(classifiers, "PAPER_SIDE", side)
    kind = dataclasses.replace(classifiers.ARCHITECTURES[method], batch=images)
    monkeypatch.setitem(classifiers.ARCHITECTURES, method, kind)


def test_batches_add_up_to_the_gradient_over_all_images(model, data, vit, monkeypatch):
    whole = gradients(learner_of(model, data, "scratch-vit", weights=str(vit)))
    batches_of(monkeypatch, "scratch-vit", 5, 48)
    learner, sizes = learner_of(model, data, "scratch-vit", weights=str(vit)), []
    learner.network.register_forward_pre_hook(
        lambda _, args, kw: sizes.append(len(kw["pixel_values"])), with_kwargs=True
    )
    parts = gradients(learner)
    assert sizes == [5, 5, 5, 5, 4], "24 images of the kept classes"
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(parts[1], whole[1], strict=True))


def test_a_batch_mixes_classes_for_batch_normalisation(model, data, resnet, monkeypatch):
    batches_of(monkeypatch, "scratch-resnet18", 8, 32)
    learner = learner_of(model, data, weights=str(resnet), image_size=32)
    assert [len(rows) for rows in learner._parts] == [8, 8, 8]
    assert all(len(set(learner._labels[rows].tolist())) > 2 for rows in learner._parts)


@pytest.mark.parametrize("method", ["finetune", "coop-params"])
def test_batches_of_images_and_names_add_up_to_the_gradient_of_a_copy(model, data, method, monkeypatch):
    task = PromptTuner(FORGET, method, **FAST).task(model, data)
    monkeypatch.setattr(learners, "NAMES", 3)
    monkeypatch.setattr(learners, "TRAINED", 7)
    loss, found = gradients(CopyLearner(task))
    whole = CopyLearner(task)
    text = whole.model.bind_names(data.class_names).embeddings(whole.contexts[None])[0]
    log_p = whole._log_p(whole._features(whole._images, torch.arange(len(whole._images))), text)
    labels = torch.from_numpy(whole._images.labels)
    gone = torch.from_numpy(task.forget)[labels]
    counts = int((~gone).sum()), int(gone.sum())
    weights = task.settings.memorize_weight, task.settings.forget_weight
    wanted = forgetting_loss_torch(log_p, labels, gone, weights, counts)
    wanted.backward()
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-5)
    slopes = [p.grad for group in whole.groups() for p in group["params"]]
    assert any(slope.abs().max() > 1e-3 for slope in slopes)
    assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(found, slopes, strict=True))


def test_everything_is_on_the_models_device(model, data, vit):
    """The meta device stands for a GPU: an operation with a tensor left on the CPU fails on both."""
    elsewhere = copy.copy(model)
    elsewhere.tower = dataclasses.replace(model.tower, tokens=model.tower.tokens.to("meta"))
    learner = learner_of(elsewhere, data, "scratch-vit", weights=str(vit))
    assert {t.device.type for t in learner.tensors()} == {"meta"}
    assert learner.pixels(data.test, np.array([0, 1])).device.type == "meta"
    loss = learner.loss(np.arange(4))
    assert loss.device.type == "meta"
    loss.backward()
    assert {p.grad.device.type for p in learner.network.parameters()} == {"meta"}
    here = learner_of(model, data, "scratch-vit", weights=str(vit))
    assert {t.device.type for t in here.tensors()} == {"cpu"}
