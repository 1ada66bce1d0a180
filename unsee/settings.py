"""Every setting of a run, and its checks. Defaults by method, preset and data are in `methods/`."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unsee.errors import InputError, unknown

Value = int | float | str | bool | None  # of a setting
PROJECTIONS = ("token-std", "unit", "normalized")
CMA_KINDS = ("full", "separable", "vkd")
# How a search learns: from losses (CMA-ES, or not at all), along measured slopes, or along true ones.
SEARCHES = (*CMA_KINDS, "random", "differences", "two-sided", "gradient")
OPTIMIZERS = ("adam", "sgd")
RATE_UNITS = ("token-std", "absolute")
APPLIES_TO = ("all", "forgotten")
POSITIONS = ("end", "middle", "front")  # of the class name among the contexts
# What is asked of answers to forgotten images: that they are uniform (the paper's), as a label mask makes them, or not
# the true class; or that they are uniform as far as the classes to keep allow.
GOALS = ("entropy", "mask", "push", "constrained")
# What is done to answers before they leave; the rules are in `answers/rules.py`.
SERVED_AS = (
    "as-is",
    "two-digits",
    "one-digit",
    "top-label",
    "mask",
    "mask-one-digit",
    "mask-top-digit",
    "mask-top-label",
    "gate",
    "temperature",
)
STEP_SIZES = ("csa", "tpa", "library")
PARAMETRIZATIONS = ("shared", "bbt", "independent", "vanilla", "low-rank", "none")
# A run may be continued with more of these; all other settings say what the run is.
EXTENDABLE = ("iterations", "budget")
_CHOICES = {
    "projection": PROJECTIONS,
    "search": SEARCHES,
    "step_size": STEP_SIZES,
    "parametrization": PARAMETRIZATIONS,
    "optimizer": OPTIMIZERS,
    "rate_unit": RATE_UNITS,
    "applies_to": APPLIES_TO,
    "position": POSITIONS,
    "goal": GOALS,
    "serve": SERVED_AS,
}
# CMA-ES ranks its candidates; differences compare one with the point itself; two sides make a pair.
_LEAST_POPULATION = {**dict.fromkeys(CMA_KINDS, 4), "differences": 2, "two-sided": 2}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_AT_LEAST_ONE = ("shots", "iterations", "contexts", "own", "dim", "rank")
_ABOVE_ZERO = ("sigma0", "rate", "weight_rate", "tau")
_NOT_NEGATIVE = (
    "shared",
    "seed",
    "image_size",
    "memorize_weight",
    "forget_weight",
    "embedding_weight",
    "batch",
    "views",
    "difference",
    "keep_within",
    "slack",
)


@dataclass(frozen=True)
class Settings:
    """A run's settings after all defaults."""

    method: str
    preset: str
    seed: int
    parametrization: str
    shots: int  # images per class to tune on, and as many others to validate on
    iterations: int
    contexts: int  # m
    shared: int  # d_s of LCS
    own: int  # d_u of LCS
    dim: int  # d of BBT and of independent contexts
    rank: int  # k of VkD-CMA-ES
    population: int = 20
    budget: int | None = None  # candidates, never exceeded
    search: str = "full"
    sigma0: float = 1.0
    step_size: str = "library"  # rule of CMA-ES: "csa"; "tpa" in blocks of 300 and more; or the default of pycma
    projection: str = "token-std"
    origin: str = "mean"  # or a phrase such as "a photo of a"
    memorize_weight: float = 1.0
    forget_weight: float = 1.0
    goal: str = "entropy"  # of answers to forgotten images; or "mask", "push", "constrained"
    keep_within: float = 0.02  # goal=constrained: by how much Acc_mem may be below that of the plain prompt
    slack: float = 0.0  # H that may be given up for answers that tell less of forgotten images
    validate: str = "every"  # candidate; or "generation" (its best); "first" (of each); k (every k-th); "loss" (none)
    merit: str = "h"  # validation score to choose by; "acc_mem" for methods that do not try to forget
    rate: float = 0.1  # of descents
    rate_unit: str = "token-std"  # standard deviations of the token embeddings; or "absolute": as they are
    optimizer: str = "adam"  # of descents; or "sgd", as CoOp has it: momentum, a warm-up epoch, cosine by epoch
    difference: float = 0.125  # how far measured slopes move an entry, in the same unit; 0: as little as CBBT
    batch: int = 0  # images per step; 0: all of them
    views: int = 0  # random crops and flips of each image to tune on, one per epoch in turn; 0: the images themselves
    weight_rate: float = 1e-4  # of methods that train weights
    weights: str = ""  # a folder with pretrained weights for the from-scratch classifiers to start from
    image_size: int = 0  # side of their images in pixels; 0: by the weights, or else by the images, at most 224
    save_weights: bool = False  # keep the trained copy in the run folder
    with_images: float = 1.0  # share of the forgotten classes that there are images of
    embedding_weight: float = 0.0  # of the loss on class embeddings, for those there are none of
    tau: float = 0.07  # its temperature
    applies_to: str = "all"  # names that get the contexts; or "forgotten": the kept ones stay under the template
    position: str = "end"  # of the class name: behind the contexts; or "middle" of them; or in "front" of them
    serve: str = "as-is"  # what is done to answers under the prompt before they leave
    template: str = "a photo of a {}."
    stop_when_stalled: bool = False
    skip_bad_images: bool = False

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(Settings).items():
            object.__setattr__(self, name, _typed(name, getattr(self, name), hint))
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise InputError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in _ABOVE_ZERO:
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(unknown(name, getattr(self, name), known))
        if self.budget is not None and self.budget < 1:
            raise InputError(f"budget must be at least 1 candidate, not {self.budget}")
        least = _LEAST_POPULATION.get(self.search, 1)
        if self.population < least:
            raise InputError(f"population must be at least {least}, not {self.population}")
        if self.search == "gradient" and self.population != 1:
            raise InputError(f"search=gradient has one candidate per step: population must be 1, not {self.population}")
        if self.optimizer == "sgd" and self.search != "gradient":
            raise InputError("optimizer=sgd follows true slopes: use it with search=gradient")
        if self.parametrization == "none" and (self.batch or self.views):
            raise InputError(f"batch and views are for methods that tune a prompt; {self.method!r} tunes none")
        if not 0 <= self.with_images <= 1:
            raise InputError(f"with_images is a share between 0 and 1, not {self.with_images}")
        if self.applies_to != "all" and self.parametrization == "none":
            raise InputError(f"applies_to is about tuned prompts; method {self.method!r} tunes none")
        if self.goal != "entropy" and self.parametrization == "none":
            raise InputError(f"goal is about tuned prompts; method {self.method!r} tunes none")
        if self.position != "end" and self.parametrization == "none" and self.method != "coop-params":
            raise InputError(f"position is about tuned prompts; method {self.method!r} tunes none")
        if self.serve != "as-is" and self.parametrization == "none":
            raise InputError(f"serve is about tuned prompts; method {self.method!r} tunes none")
        if (self.goal == "constrained" or self.slack > 0) and self.validate == "loss":
            what = "goal=constrained" if self.goal == "constrained" else f"slack={self.slack:g}"
            raise InputError(f"{what} chooses by validation scores; it does not go with validate=loss")
        if self.goal in ("mask", "constrained") and (self.batch or self.views):
            raise InputError(
                f"goal={self.goal} compares with the plain prompt's answers to all shots; it needs batch=0 and views=0"
            )
        if self.goal == "constrained" and self.slack > 0:
            raise InputError("goal=constrained has its own way to choose; it does not go with slack")
        if self.slack > 0 and self.parametrization == "none":
            raise InputError(f"slack is about tuned prompts; method {self.method!r} tunes none")
        if self.merit not in ("h", "acc_mem"):
            raise InputError(f"merit is h or acc_mem, not {self.merit!r}")
        rule = self.validate
        number = int(rule) if rule.isascii() and rule.isdigit() else 0  # isdigit alone is also true of "²"
        if rule not in ("every", "generation", "first", "loss") and number < 1:
            raise InputError(
                f"validate is 'every', 'generation', 'first', 'loss' or a number of candidates, not {rule!r}"
            )
        if self.with_images == 0 and self.memorize_weight == 0 and rule != "loss":
            raise InputError("without any images to tune on, candidates are chosen by loss: use validate=loss")

    @property
    def limit(self) -> int:
        """The most candidates this run may try."""
        planned = self.iterations * self.population
        return planned if self.budget is None else min(planned, self.budget)

    def as_dict(self) -> dict[str, Value]:
        return dataclasses.asdict(self)


# Settings that were added after runs had been made: at these values a run is what it was before.
ADDED: dict[str, Value] = {"position": "end"}
SETTING_NAMES = tuple(field.name for field in dataclasses.fields(Settings))


def check_names(given: Mapping[str, Value]) -> None:
    """Refuses settings that do not exist."""
    for name in given:
        if name not in SETTING_NAMES:
            raise InputError(unknown("setting", name, sorted(SETTING_NAMES)))


def parse_settings(pairs: Mapping[str, str]) -> dict[str, Value]:
    """Settings given as text (`--set key=value`), in their own types."""
    hints = typing.get_type_hints(Settings)
    parsed: dict[str, Value] = {}
    check_names(pairs)
    for name, text in pairs.items():
        parsed[name] = _convert(name, text, hints[name])
    return parsed


def _convert(name: str, text: str, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        if text.lower() == "none":
            return None
        hint = _inner(hint)
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"setting {name} must be true or false, not {text!r}")
        return text.lower() == "true"
    try:
        return hint(text)
    except ValueError:
        raise InputError(f"setting {name} must be {_KINDS[hint]}, not {text!r}") from None


def _typed(name: str, value: Any, hint: Any) -> Any:
    """The value, if it is of the setting's type; whole numbers are numbers too."""
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = _inner(hint)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise InputError(f"setting {name} must be {_KINDS[hint]}, not {value!r}")
    if hint is float and not math.isfinite(value):
        raise InputError(f"setting {name} must be a finite number, not {value}")
    return value


def _inner(hint: Any) -> Any:
    return next(kind for kind in typing.get_args(hint) if kind is not type(None))
