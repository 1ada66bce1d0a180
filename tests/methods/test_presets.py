"""Default sizes belong to the model first, then to the number of classes; a folder has those of a named data set."""

from __future__ import annotations

import pytest

import unsee
from tests.tiny import write_images
from unsee.methods.forecast import forecast
from unsee.methods.presets import NARROW, resolve
from unsee.methods.registry import METHODS
from unsee.methods.task import resolve_settings

SIZES = ("contexts", "shared", "own", "dim", "rank", "iterations", "population")


def sizes(data: str, width: int, classes: int, method: str = "lcs", preset: str = "tuned") -> tuple[int, ...]:
    found = resolve({}, method=method, preset=preset, seed=0, data=data, width=width, classes=classes, shots=16)
    return tuple(getattr(found, name) for name in SIZES)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset", ["tuned", "paper"])
@pytest.mark.parametrize("width", [64, 128, 512, 1280])
def test_a_folder_has_the_sizes_of_a_named_set_with_as_many_classes(method, preset, width):
    assert sizes("my photos", width, 10, method, preset) == sizes("cifar10", width, 10, method, preset)
    large = sizes("my photos", width, 100, method, preset)
    if METHODS[method].epochs:  # passes over the shots, of which CIFAR-100 has fewer
        return
    assert large == sizes("cifar100", width, 100, method, preset)


def test_narrow_models_have_sizes_of_their_own_and_wide_ones_the_papers():
    assert sizes("my photos", 128, 10)[:3] == (8, 20, 120)
    assert sizes("my photos", 128, 21)[:3] == (16, 80, 120)
    assert sizes("my photos", 64, 100)[2:4] == (64, 64), "no latent has more numbers than a context"
    assert sizes("my photos", NARROW + 1, 10)[:3] == (4, 20, 5)
    assert sizes("my photos", 512, 100)[:3] == (16, 400, 100)
    assert sizes("my photos", 128, 10, preset="paper")[:3] == (4, 20, 5)


def test_a_folder_of_ten_classes_is_tuned_by_the_embedded_model_as_demo_is(tmp_path):
    mini, demo = unsee.load_model("mini"), unsee.load_data("demo")
    write_images(tmp_path, demo.class_names, train=32, test=1)
    folder = unsee.load_data(str(tmp_path))
    assert resolve_settings(mini, folder, "lcs", "tuned", 0, {}) == resolve_settings(mini, demo, "lcs", "tuned", 0, {})


def test_the_forecast_says_the_sizes_and_where_they_come_from(model, data):
    def said(method: str, **given: object) -> str:
        return forecast([unsee.PromptTuner(["cat"], method, shots=2, **given).task(model, data)]).sentence()

    width = model.card.width
    assert said("lcs").endswith(
        f"8 contexts of 20 shared + {width} own numbers (preset tuned: contexts up to 256 wide, up to 20 classes)"
    )
    assert said("bbt", preset="paper").endswith("4 contexts of 10 numbers (preset paper)")
    assert said("vanilla").count(f"8 contexts of {width} numbers") == 1
    assert said("zero-shot").endswith(" s")
