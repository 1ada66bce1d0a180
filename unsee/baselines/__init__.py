"""Every row of the paper's tables, and a few more, by method name; all have the face of `PromptTuner`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unsee.baselines.learners import LEARNERS
from unsee.baselines.training import WeightTuner
from unsee.baselines.untuned import RULES, Untuned
from unsee.errors import InputError, unknown
from unsee.settings import METHODS
from unsee.tuner import PromptTuner

Tuner = PromptTuner | WeightTuner | Untuned

__all__ = ["Tuner", "Untuned", "WeightTuner", "from_config", "make_tuner"]


def make_tuner(
    forget: str | Sequence[str], method: str = "lcs", *, preset: str = "tuned", seed: int = 0, **settings: Any
) -> Tuner:
    """The tuner of this name, its settings stored and nothing done yet."""
    if method not in METHODS:
        raise InputError(unknown("method", method, METHODS))
    kind = Untuned if method in RULES else WeightTuner if method in LEARNERS else PromptTuner
    return kind(forget, method, preset=preset, seed=seed, **settings)


def from_config(config: dict[str, Any]) -> Tuner:
    """The tuner whose run has this config."""
    settings = dict(config["settings"])
    method, preset, seed = (settings.pop(key) for key in ("method", "preset", "seed"))
    return make_tuner(config["forget"], method, preset=preset, seed=seed, **settings)
