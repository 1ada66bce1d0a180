"""The rows of the tables that tune no prompt: untuned rules, trained copies, classifiers from scratch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests import tiny
from tests.test_tuner import FORGET, Answering
from unsee import InputError, ModelError, PromptTuner, RunError
from unsee.answers.metrics import scores
from unsee.answers.rules import RULES
from unsee.cli import main
from unsee.data.images import as_images
from unsee.methods.learners import BATCH, trainable_copy
from unsee.methods.training import Optimizers, _restore
from unsee.models.black_box import bind

SHORT = {"shots": 4, "iterations": 12}


def weights_of(model):
    vision = [p.detach().clone() for p in model.encoder.model.parameters()]
    return [t.detach().clone() for t in model.tower.tensors()] + vision


@pytest.mark.parametrize("method", ["finetune", pytest.param("coop-params", marks=pytest.mark.slow)])
def test_training_weights_never_touches_the_users_model(model, data, method):
    before, fingerprint = weights_of(model), model.card.fingerprint
    tuner = PromptTuner(FORGET, method, **SHORT, weight_rate=1e-3).fit(model, data)
    assert all(torch.equal(a, b) for a, b in zip(before, weights_of(model), strict=True))
    assert not any(t.requires_grad for t in model.tower.tensors())
    assert model.card.fingerprint == fingerprint
    assert any(not torch.equal(a, b) for a, b in zip(before, tuner.fitted_.learner.tensors()[:-1], strict=True))
    losses = [generation.losses[0] for generation in tuner.history_]
    assert losses[-1] < losses[0]


def test_a_trainable_copy_answers_as_the_model_does_and_is_apart_from_it(model, data):
    copy = trainable_copy(model)
    contexts = np.zeros((1, 2, model.card.width), dtype=np.float32)
    mine, theirs = (m.bind(data.test, data.class_names).confidences(contexts) for m in (model, copy))
    assert np.allclose(mine, theirs, atol=1e-5)
    with torch.no_grad():
        copy.tower.tokens.add_(1)
        next(copy.encoder.model.parameters()).add_(1)
    assert np.array_equal(model.bind(data.test, data.class_names).confidences(contexts), mine)


def test_a_classifier_from_scratch_sees_transparency_on_white(model, data):
    settings = {"shots": 1, "iterations": 1}
    learner = PromptTuner(FORGET, "scratch-resnet18", **settings).fit(model, data).fitted_.learner
    clear, on_white = Image.new("RGBA", (24, 24), (255, 0, 0, 128)), Image.new("RGB", (24, 24), (255, 127, 127))
    found = learner.confidences(as_images([clear, on_white]))
    assert np.array_equal(found[0], found[1])


def test_a_trained_image_tower_answers_in_small_batches(model, data):
    """Memory stays bounded however many images are asked for, and the answers are those of one image at a time."""
    learner = PromptTuner(FORGET, "finetune", shots=1, iterations=1).fit(model, data).fitted_.learner
    sizes: list[int] = []
    hook = learner.model.encoder.model.register_forward_pre_hook(
        lambda _, args, given: sizes.append(len(given["pixel_values"])), with_kwargs=True
    )
    many = data.test.subset(np.arange(len(data.test)).repeat(2)[:70])
    found = learner.confidences(many)
    hook.remove()
    assert sizes == [BATCH, BATCH, 70 - 2 * BATCH]
    assert found.shape == (70, len(data.class_names))
    alone = learner.confidences(many.subset([41]))
    assert np.abs(found[41] - alone[0]).max() <= 1e-5


@pytest.mark.slow
def test_finetuning_learns_the_kept_classes(model, data):
    tuner = PromptTuner(FORGET, "finetune", shots=4, iterations=20, weight_rate=1e-3).fit(model, data)
    assert tuner.score(data.test).acc_mem > tuner.evaluate(data.test).zero_shot.acc_mem + 0.2


@pytest.mark.slow
def test_a_classifier_from_scratch_knows_only_the_kept_classes(model, data):
    settings = {"shots": 4, "iterations": 8, "weight_rate": 1e-3}
    tuner = PromptTuner(FORGET, "scratch-resnet18", **settings).fit(model, data)
    found = tuner.score(data.test)
    assert found.err_for == 1.0
    assert found.acc_mem > 0.5, "each class of these images has its own colours"
    assert not set(tuner.predict(data.test)) & set(FORGET)
    again = PromptTuner(FORGET, "scratch-resnet18", **settings | {"iterations": 3}).fit(model, data)
    assert [g.losses[0] for g in again.history_] == [g.losses[0] for g in tuner.history_[:3]]


def test_a_classifier_can_start_from_given_weights(model, data, tmp_path):
    settings = {"shots": 2, "iterations": 2, "weights": str(tiny.write_resnet(tmp_path)), "image_size": 32}
    tuner = PromptTuner(FORGET, "scratch-resnet18", **settings).fit(model, data)
    assert tuner.fitted_.learner.network.config.hidden_sizes == [8, 16]
    with pytest.raises(ModelError, match="cannot be loaded"):
        PromptTuner(FORGET, "scratch-resnet18", shots=2, weights=str(tmp_path / "nothing")).fit(model, data)


@pytest.mark.slow
def test_a_vision_transformer_from_scratch_trains(model, data):
    tuner = PromptTuner(FORGET, "scratch-vit", shots=4, iterations=3).fit(model, data)
    assert tuner.history_[-1].losses[0] < tuner.history_[0].losses[0]


def test_trained_weights_are_kept_on_request(model, data, tmp_path):
    settings = {"shots": 2, "iterations": 2}
    PromptTuner(FORGET, "finetune", **settings).fit(model, data, out=tmp_path / "plain")
    assert not (tmp_path / "plain" / "weights.safetensors").exists()
    tuner = PromptTuner(FORGET, "finetune", **settings, save_weights=True).fit(model, data, out=tmp_path / "kept")
    kept = load_file(tmp_path / "kept" / "weights.safetensors")
    assert all(torch.equal(kept[f"{i:04}"], t) for i, t in enumerate(tuner.fitted_.learner.tensors()))
    tuner.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "weights.safetensors").exists()


def test_a_checkpoint_of_another_shape_is_refused(model, data, tmp_path):
    from safetensors.numpy import load, save

    tuner = PromptTuner(FORGET, "finetune", shots=2, iterations=2).fit(model, data, out=tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.safetensors"
    state = load(path.read_bytes())
    state["now.0"] = state["now.0"][:1]
    path.write_bytes(save(state))
    with pytest.raises(RunError, match="does not fit the model"):
        tuner.resume(model, data, tmp_path / "run", iterations=4)
    path.write_bytes(b"damaged")
    with pytest.raises(RunError, match="damaged"):
        tuner.resume(model, data, tmp_path / "run", iterations=4)


def test_a_saved_optimiser_is_restored_on_the_device_of_the_weights():
    class Elsewhere:  # a learner on a device that every machine has
        weight = torch.nn.Parameter(torch.zeros(3, device="meta"))

        def tensors(self):
            return [self.weight]

        def groups(self):
            return [{"params": [self.weight], "lr": 0.1, "optimizer": "adam"}]

        def rate(self, step):
            return 0.1

    learner = Elsewhere()
    optimizer = Optimizers(learner)
    saved = {name: np.ones(3, np.float32) for name in ("now.0", "best.0", "adam.0.exp_avg", "adam.0.exp_avg_sq")}
    (best,) = _restore(learner, optimizer, saved | {"adam.0.step": np.ones(1, np.float32)})
    ((_, _, state, _),) = optimizer.memory()
    assert {best.device.type, state["exp_avg"].device.type, state["exp_avg_sq"].device.type} == {"meta"}
    assert (state["step"].device.type, state["step"].item()) == ("cpu", 1)


@pytest.mark.parametrize("method", ["finetune", "coop-params"])
def test_weights_of_a_black_box_cannot_be_trained(model, data, method):
    box = Answering(model, lambda b, n, c: np.full((b, n, c), 1 / c, np.float32))
    with pytest.raises(InputError, match="needs weights of a model in this process"):
        PromptTuner(FORGET, method, shots=2, iterations=2).fit(box, data)


def test_untuned_rules_do_what_they_say(model, data):
    p = model.bind(data.test, data.class_names).zero_shot("a photo of a {}.")
    forget = np.array([name in FORGET for name in data.class_names])
    rng = np.random.default_rng(0)
    plain, masked, gated = (RULES[name](p, forget, rng) for name in ("zero-shot", "label-mask", "uniform-gate"))
    assert np.array_equal(plain, p)
    assert (masked[:, forget] == 0).all()
    assert np.allclose(masked.sum(axis=1), 1, atol=1e-5)
    hit = forget[p.argmax(axis=1)]
    assert np.allclose(gated[hit], 0.1, atol=1e-5)
    assert np.array_equal(gated[~hit], p[~hit])


@pytest.mark.parametrize("method", [name for name, rule in RULES.items() if not rule.for_prompts])
def test_untuned_methods_have_the_same_interface(model, data, tmp_path, method):
    tuner = PromptTuner(FORGET, method, shots=2).fit(model, data, out=tmp_path / "run")
    found = tuner.evaluate(data.test)
    plain = model.bind(data.test, data.class_names).zero_shot("a photo of a {}.")
    gone = np.isin(data.class_names, FORGET)
    hit, after = gone[plain.argmax(axis=1)], tuner.fitted_.confidences(bind(model, data.test))
    assert 0 < hit.sum() < len(hit), "else the rules cannot be told apart"
    assert np.array_equal(after.argmax(axis=1)[~hit], plain.argmax(axis=1)[~hit])
    if method == "uniform-gate":
        assert np.allclose(after[hit], 0.1, atol=1e-5)
    else:
        wanted = plain if method == "zero-shot" else np.where(gone, 0, plain)
        assert np.array_equal(after.argmax(axis=1), wanted.argmax(axis=1))
    assert tuner.score(data.test) == scores(after.argmax(axis=1), data.test.labels, gone)
    tuner.save(tmp_path / "saved")
    result = tuner.result(found, found.tuned)
    assert result.ledger.candidates == 0
    assert result.test == found.tuned
    assert len(tuner.predict(data.test)) == len(data.test)


def test_forget_takes_every_method(model_folder, image_folder, tmp_path, capsys):
    for method in ("label-mask", "finetune"):
        arguments = ["forget", image_folder, "--model", model_folder, "--forget", "cat", "--method", method]
        arguments += ["--shots", 2, "--iterations", 2, "--out", tmp_path / method, "--no-cache", "--json"]
        assert main([str(a) for a in arguments]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["method"] == method
        assert main(["resume", str(tmp_path / method), "--no-cache", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["test"] == result["test"]
