"""Other devices: every path from contexts to answers and gradients runs where the model is.

The `meta` device stands for a GPU. It has no values, but an operation that mixes it with the CPU fails, so whatever is
made on the wrong device is found. Only the copies back to the CPU are replaced: by zeros, and by ones for numbers.
"""

from __future__ import annotations

import copy
import dataclasses
import logging

import numpy as np
import pytest
import torch
from torch.fx.experimental import _config

from tests import tiny
from tests.methods.parts import slope_of
from tests.models.dual_files import modern, pixels, write
from tests.models.test_resnet import SMALL, checkpoint
from tests.test_tuner import FORGET
from unsee import InputError
from unsee.methods.learners import CopyLearner
from unsee.methods.task import make_task
from unsee.models import load_model
from unsee.models.black_box import bind
from unsee.models.check.proof import half_precision
from unsee.models.fast.clip import GPUS, check_device
from unsee.models.library.text_towers import LibraryTower, token_table
from unsee.models.white_box import ClassEmbeddings, answer_embeddings

pytestmark = modern

KINDS = ("clip", "siglip", "altclip", "resnet")


@pytest.fixture(scope="module", autouse=True)
def silent():
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    def make(kind: str):
        folder = tmp_path_factory.mktemp(kind)
        if kind == "clip":
            return load_model(tiny.write_model(folder))
        if kind == "resnet":
            torch.save(checkpoint(SMALL)[1], folder / "small.pt")
            return load_model(folder / "small.pt")
        return load_model(write(folder, kind))

    made = {}
    return lambda kind: made.setdefault(kind, None) or made.update({kind: make(kind)}) or made[kind]


@pytest.fixture
def host(monkeypatch):
    """Copies from the device to the CPU: there is nothing to copy, so zeros and ones are."""
    real = {name: getattr(torch.Tensor, name) for name in ("cpu", "__int__", "__float__", "__bool__")}

    def cpu(self):
        return torch.zeros_like(self, device="cpu") if self.is_meta else real["cpu"](self)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    for name, one in (("__int__", 1), ("__float__", 1.0), ("__bool__", True)):
        monkeypatch.setattr(
            torch.Tensor, name, lambda self, name=name, one=one: one if self.is_meta else real[name](self)
        )
    with _config.patch(meta_nonzero_assume_all_nonzero=True):  # a mask without values selects all
        yield


def on_meta(model):
    """The model with both towers on the device."""
    moved, tower = copy.copy(model), model.tower
    if isinstance(tower, LibraryTower):
        half = copy.deepcopy(tower.model).to("meta")
        moved.tower = dataclasses.replace(tower, model=half, table=token_table(half))
    else:
        layers = tuple(
            dataclasses.replace(
                layer,
                **{f.name: tuple(t.to("meta") for t in getattr(layer, f.name)) for f in dataclasses.fields(layer)},
            )
            for layer in tower.layers
        )
        alone = {name: getattr(tower, name).to("meta") for name in ("tokens", "positions", "projection")}
        moved.tower = dataclasses.replace(tower, layers=layers, norm=tuple(t.to("meta") for t in tower.norm), **alone)
    moved.encoder = copy.copy(model.encoder)
    moved.encoder.model = copy.deepcopy(model.encoder.model).to("meta")
    moved.encoder.device = "meta"
    return moved


@pytest.mark.parametrize("kind", ["clip", "siglip", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS[2:])])
def test_answers_are_computed_where_the_model_is(loaded, host, kind):
    model = on_meta(loaded(kind))
    bound = model.bind(pixels(3), tiny.NAMES)
    assert bound.features.is_meta
    given = np.zeros((2, 3, model.card.width), dtype=np.float32)
    for position in ("end", "middle", "front"):
        placed = bound.at(position)
        assert placed.text.embeddings(torch.from_numpy(given).to("meta")).is_meta
        assert placed.confidences(given).shape == (2, 3, 10)
        assert placed.apply_to(FORGET, "a photo of a {}.").confidences(given).shape == (2, 3, 10)
    assert bound.zero_shot("a photo of a {}.").shape == (3, 10)
    assert bound.select(np.array([0, 2])).confidences(given).shape == (2, 2, 10)
    assert model.embed("a photo").shape[1] == model.card.width
    found = ClassEmbeddings(model, tiny.NAMES, "a photo of a {}.", FORGET).under(given)
    assert answer_embeddings(bind(model, tiny_images(), tiny.NAMES), found[0]).shape == (2, 10)


def tiny_images():
    from unsee.data.images import as_images

    return as_images(pixels(2))


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("siglip", "coop"),
        *(pytest.param("clip", method, marks=pytest.mark.slow) for method in ("coop", "coop-params", "finetune")),
        *(pytest.param("siglip", method, marks=pytest.mark.slow) for method in ("coop-params", "finetune")),
    ],
)
def test_gradients_are_computed_where_the_model_is(loaded, data, host, kind, method):
    task = make_task(on_meta(loaded(kind)), data, FORGET, method, "paper", 0, {"shots": 1, "contexts": 4})
    if method == "coop":
        width = task.model.card.width
        assert slope_of(task, (4, width))(np.zeros(4 * width), 0).shape == (4 * width,)
        return
    learner = CopyLearner(task)
    learner.backward()
    assert all(weight.grad is not None for group in learner.groups() for weight in group["params"][:2])
    assert learner.confidences(data.test.subset(range(3))).shape == (3, 10)


def test_the_walk_notices_a_tensor_on_the_wrong_device(loaded, host):
    """The proof that the tests above test something."""
    model = on_meta(loaded("clip"))
    bound = model.bind(pixels(1), tiny.NAMES)
    with pytest.raises(RuntimeError, match="device"):
        bound.text.embeddings(torch.zeros(1, 2, model.card.width))


def test_devices_that_are_there_can_be_used(monkeypatch):
    for kind in GPUS:
        monkeypatch.setattr(GPUS[kind], "is_available", lambda: True)
        check_device(kind, "float16")
    check_device("cuda:1", "bfloat16")
    with pytest.raises(InputError, match="device 'tpu' is not there; this machine has: cpu, cuda, mps"):
        check_device("tpu", "float32")
    with pytest.raises(InputError, match="float16 needs a GPU"):
        check_device("cpu", "float16")


def test_the_difference_that_half_precision_makes_is_told(loaded):
    full = loaded("clip")
    half, tower = copy.copy(full), full.tower
    half.tower = dataclasses.replace(
        tower, tokens=tower.tokens.half().float(), projection=tower.projection.half().float()
    )
    said = half_precision(half, full)
    assert "answers differ by" in said
    assert "generated images" in said
    assert "use --dtype float32" not in said
    half.tower = dataclasses.replace(tower, projection=tower.projection.flip(0))
    assert "that is much: use --dtype float32" in half_precision(half, full)


def test_a_command_tells_the_difference_once(loaded, monkeypatch, capsys):
    """With half precision on a CPU, which the check of devices refuses otherwise."""
    from unsee.cli.console import Console
    from unsee.cli.inputs import read_model

    full, asked = loaded("clip"), []
    half = copy.copy(full)
    half.tower = dataclasses.replace(full.tower, tokens=full.tower.tokens.half())

    def load(name, **where):
        asked.append(where.get("dtype", "float32"))
        return half if where.get("dtype") == "float16" else full

    monkeypatch.setattr("unsee.models.load_model", load)
    monkeypatch.setattr("unsee.models.check.proof.half_precision", lambda half, full: "the line")
    where = {"cache_dir": None, "no_cache": True, "device": "cuda"}
    assert read_model("clip", Console(), dtype="float16", **where) is half
    assert asked == ["float16", "float32"]
    assert capsys.readouterr().err == "the line\n"
    assert read_model("clip", Console(), dtype="float32", **where) is full
    assert capsys.readouterr().err == ""
