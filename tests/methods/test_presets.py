from __future__ import annotations

import unsee
from unsee.methods.task import resolve_settings


def test_tuned_sizes_belong_to_a_model_and_a_data_set(model):
    mini, demo = unsee.load_model("mini"), unsee.load_data("demo")
    sizes = resolve_settings(mini, demo, "lcs", "tuned", 0, {})
    assert (sizes.contexts, sizes.shared, sizes.own) == (8, 20, 120)
    assert resolve_settings(model, demo, "lcs", "tuned", 0, {}).shared == 20, "the tiny CLIP has no sizes of its own"
    assert resolve_settings(mini, demo, "lcs", "paper", 0, {}).shared == 20


def test_the_embedded_model_has_its_sizes_on_cifar_too():
    from unsee.methods.presets import resolve

    common = {"method": "lcs", "preset": "tuned", "seed": 0, "classes": 10, "shots": 16}
    assert resolve({}, data="cifar10", family="mini", **common).own == 120
    assert resolve({}, data="cifar10", family="", **common).own == 5
    for data in ("cifar100", "cifar100-tenth"):
        sizes = resolve({}, data=data, family="mini", **common | {"classes": 100})
        assert (sizes.contexts, sizes.shared, sizes.own) == (16, 80, 120)
        assert resolve({}, data=data, family="", **common | {"classes": 100}).shared == 400
