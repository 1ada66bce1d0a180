"""Every setting of a run, its default by method, preset and data set, and its checks.

Presets are plain tables: `paper` holds the sizes the paper states for each of its data sets, `tuned` those chosen
on validation images for the embedded model, and the paper's for everything else.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unsee.contexts import PROJECTIONS
from unsee.errors import InputError, unknown
from unsee.search import KINDS

# How a search learns: from losses (CMA-ES, or not at all), along measured slopes, or along true ones.
SEARCHES = (*KINDS, "random", "differences", "two-sided", "gradient")

# Sizes that a method turns into contexts and a search. The paper's, by data set.
_SMALL = {"contexts": 4, "shared": 20, "own": 5, "dim": 10, "rank": 30, "iterations": 400, "shots": 16}
_LARGE = {"contexts": 16, "shared": 400, "own": 100, "dim": 125, "rank": 1500, "iterations": 800}
_PAPER: dict[str, dict[str, int]] = {
    "cifar10": _SMALL,
    "demo": _SMALL,
    "cifar10-batch5": _SMALL,
    "cifar100": _LARGE | {"shots": 4},
    "cub200": _LARGE | {"shots": 1},
    "imagenet30": _LARGE | {"shots": 16, "iterations": 400},
    "imagenet": _LARGE | {"shots": 1},
}
_MINI = _SMALL | {"shared": 80, "own": 20, "dim": 40}
PRESETS: dict[str, dict[str, dict[str, int]]] = {
    "paper": _PAPER,
    "tuned": _PAPER | {"demo": _MINI, "cifar10-batch5": _MINI},
}

_SLOPE: dict[str, Any] = {"parametrization": "vanilla", "origin": "a photo of a"}
_COOP = _SLOPE | {"search": "gradient", "population": 1, "iterations": 800, "rate": 0.3}
_SCRATCH = {"parametrization": "none", "population": 1, "search": "gradient", "iterations": 100, "merit": "acc_mem"}
_UNTUNED = {"parametrization": "none", "population": 1, "search": "gradient", "iterations": 1}
# What a method name means: a parametrization of contexts and the kind of search over it.
METHODS: dict[str, dict[str, Any]] = {
    "zero-shot": _UNTUNED,
    "label-mask": _UNTUNED,
    "uniform-gate": _UNTUNED,
    "lcs": {"parametrization": "shared"},
    "independent": {"parametrization": "independent"},
    "bbt": {"parametrization": "bbt"},
    "vanilla": {"parametrization": "vanilla"},
    "bbt-sep": {"parametrization": "bbt", "search": "separable"},
    "bbt-vkd": {"parametrization": "bbt", "search": "vkd"},
    "lcs-acc": {"parametrization": "shared", "memorize_weight": 3.0},
    "random-search": {"parametrization": "shared", "search": "random"},
    "cbbt": _SLOPE | {"search": "differences", "population": 257, "iterations": 31, "rate": 0.5},
    "zip": {"parametrization": "low-rank", "search": "two-sided", "rate": 0.1},
    "coop": _COOP,
    # Few small steps: it gains what there is to gain on the kept classes, and long walks forget by drifting off.
    "coop-memorize": _COOP | {"forget_weight": 0.0, "merit": "acc_mem", "iterations": 100, "rate": 0.03},
    "c-emb": {"parametrization": "shared", "with_images": 0.0, "embedding_weight": 1.0, "memorize_weight": 0.0}
    | {"validate": "loss"},
    "lcs+c-emb": {"parametrization": "shared", "with_images": 0.5, "embedding_weight": 1.0},
    "coop-params": _SLOPE | _SCRATCH | {"iterations": 200, "rate": 0.3, "merit": "h"},
    "finetune": _SLOPE | _SCRATCH | {"forget_weight": 0.0},
    "scratch-resnet18": _SCRATCH,
    "scratch-vit": _SCRATCH | {"iterations": 30},
}


# What a method must be able to see of the model, beyond its card.
ACCESS = {
    "coop": "gradients",
    "coop-memorize": "gradients",
    "coop-params": "weights",
    "finetune": "weights",
    "c-emb": "class embeddings",
    "lcs+c-emb": "class embeddings",
    "label-mask": "label list",
    "scratch-resnet18": "nothing",
    "scratch-vit": "nothing",
}


@dataclass(frozen=True)
class Settings:
    """A run's settings after all defaults."""

    method: str
    preset: str
    seed: int
    parametrization: str
    shots: int
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
    projection: str = "token-std"
    origin: str = "mean"  # or a phrase such as "a photo of a"
    memorize_weight: float = 1.0
    forget_weight: float = 1.0
    validate: str = "every"  # candidate; or "generation" (its best); or k (every k-th); or "loss" (never: by loss)
    merit: str = "h"  # validation score to choose by; "acc_mem" for methods that do not try to forget
    rate: float = 0.1  # of descents, in standard deviations of the token embeddings
    weight_rate: float = 1e-4  # of methods that train weights
    weights: str = ""  # a folder with pretrained weights for the from-scratch classifiers to start from
    save_weights: bool = False  # keep the trained copy in the run folder
    with_images: float = 1.0  # share of the forgotten classes that there are images of
    embedding_weight: float = 0.0  # of the loss on class embeddings, for those there are none of
    tau: float = 0.07  # its temperature
    template: str = "a photo of a {}."
    stop_when_stalled: bool = False
    skip_bad_images: bool = False

    def __post_init__(self) -> None:
        for name in ("shots", "iterations", "contexts", "own", "dim", "rank"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.shared < 0 or self.seed < 0:
            raise InputError("shared and seed must not be negative")
        if self.budget is not None and self.budget < 1:
            raise InputError(f"budget must be at least 1 candidate, not {self.budget}")
        if self.population < (4 if self.search in KINDS else 1):
            raise InputError(f"population must be at least 4, not {self.population}")
        if self.search == "gradient" and self.population != 1:
            raise InputError(f"search=gradient has one candidate a step: population must be 1, not {self.population}")
        if not 0 <= self.with_images <= 1:
            raise InputError(f"with_images is a share between 0 and 1, not {self.with_images}")
        for name in ("sigma0", "rate", "weight_rate", "tau"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        if min(self.memorize_weight, self.forget_weight, self.embedding_weight) < 0:
            raise InputError("the weights of losses must not be negative")
        if self.projection not in PROJECTIONS:
            raise InputError(unknown("projection", self.projection, PROJECTIONS))
        if self.merit not in ("h", "acc_mem"):
            raise InputError(f"merit is h or acc_mem, not {self.merit!r}")
        if self.search not in SEARCHES:
            raise InputError(unknown("search", self.search, SEARCHES))
        if self.validate not in ("every", "generation", "loss") and not (
            self.validate.isdigit() and int(self.validate) > 0
        ):
            raise InputError(f"validate is 'every', 'generation' or a number of candidates, not {self.validate!r}")

        if self.with_images == 0 and self.memorize_weight == 0 and self.validate != "loss":
            raise InputError("without any images to tune on, candidates are chosen by loss: use validate=loss")

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def limit(self) -> int:
        """The most candidates this run may try."""
        planned = self.iterations * self.population
        return planned if self.budget is None else min(planned, self.budget)


def resolve(
    given: Mapping[str, Any], *, method: str, preset: str, seed: int, data: str, classes: int, shots: int
) -> Settings:
    """Settings from what was given, the method, and the preset's entry for this data set.

    Data the preset does not know takes the sizes of the paper's set with about as many classes, and
    `shots`, as many as its smallest class allows.
    """
    if method not in METHODS:
        raise InputError(unknown("method", method, METHODS))
    if preset not in PRESETS:
        raise InputError(unknown("preset", preset, PRESETS))
    known = {f.name for f in dataclasses.fields(Settings)}
    for name in given:
        if name not in known:
            raise InputError(unknown("setting", name, sorted(known)))
    table = PRESETS[preset]
    sizes = table[data] if data in table else table["cifar10" if classes <= 20 else "cifar100"] | {"shots": shots}
    merged: dict[str, Any] = {**sizes, **METHODS[method], "method": method, "preset": preset, "seed": seed}
    merged.update({name: value for name, value in given.items() if value is not None})
    return Settings(**merged)


def parse(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Settings given as text (`--set key=value`), in their own types."""
    hints = typing.get_type_hints(Settings)
    parsed: dict[str, Any] = {}
    for name, text in pairs.items():
        if name not in hints:
            raise InputError(unknown("setting", name, sorted(hints)))
        parsed[name] = _convert(name, text, hints[name])
    return parsed


def _convert(name: str, text: str, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        if text.lower() == "none":
            return None
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    if hint is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"setting {name} is true or false, not {text!r}")
        return text.lower() == "true"
    try:
        return hint(text)
    except ValueError:
        raise InputError(f"setting {name} must be {hint.__name__}, not {text!r}") from None
