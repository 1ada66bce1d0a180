"""Default sizes: by preset, then by the model's width, then by the number of classes.

`paper` holds the sizes that the paper states for each of its data sets, the step-size rule of the authors' pycma,
CoOp's own configuration and, for classifiers from scratch, the image size of the authors' loaders (`tuned`: the images'
own). Other data has the sizes of the paper's set with about as many classes.
`tuned` asks first how wide the model's contexts are. The paper's sizes were chosen for CLIP, whose contexts have 512
numbers or more. For narrow models, such as the embedded one, sizes were chosen on held-out photos of several sets
(docs/results.md). They are the same for folders, named data sets and served models. It also has the step-size rule of
the installed pycma, and the rule for answers that leaks least.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unsee.errors import InputError, unknown
from unsee.methods.registry import METHODS
from unsee.settings import Settings, Value, check_names, check_settings

_SMALL = {"contexts": 4, "shared": 20, "own": 5, "dim": 10, "rank": 30, "iterations": 400, "shots": 16}
_LARGE = {"contexts": 16, "shared": 400, "own": 100, "dim": 125, "rank": 1500, "iterations": 800}
PAPER: dict[str, dict[str, int]] = {
    "cifar10": _SMALL,
    "demo": _SMALL,
    "cifar10-batch5": _SMALL,
    "cifar100": _LARGE | {"shots": 4},
    "cifar100-tenth": _LARGE | {"shots": 4},
    "cub200": _LARGE | {"shots": 1},
    "cub200-half": _LARGE | {"shots": 1},
    "imagenet30": _LARGE | {"shots": 16, "iterations": 400},
    "imagenet": _LARGE | {"shots": 1},
    "imagenet30-six": _LARGE | {"shots": 1, "iterations": 400},  # ImageNet30's, but for the shots
    "imagenet-six": _LARGE | {"shots": 1},
    "tiny30": _LARGE | {"shots": 16, "iterations": 400},  # ImageNet30's
    "tiny200": _LARGE | {"shots": 1},  # CUB's
}
FEW_CLASSES = 20  # up to here data counts as the paper's small set, beyond as its large ones
NARROW = 256  # numbers in a context, at most; CLIP's smallest models have 512
_NARROW_FEW = {"contexts": 8, "shared": 20, "own": 120, "dim": 60}
_NARROW_FEW_OF = {"bbt": {"dim": 120}}  # one search over all latents does best with more of them
_NARROW_MANY = {"contexts": 16, "shared": 80, "own": 120, "dim": 125}
SERVE = "mask-top-digit"  # leaked least at equal H on held-out photos: docs/audit.md
PRESETS = ("tuned", "paper")
NOT_GUIDED = {"search", "goal", "validate", "batch", "views", "embedding_weight", "merit"}  # settings of other searches
POPULATION = 20
FIRST_CANDIDATES = 20  # of a guided search: drawn from N(0, I) and asked about all images
LEAST_IMAGES = 16  # that each further one is asked about, at least
LEAST_CANDIDATES = 800  # that it is given, however few the images
SAVING = 20  # a guided search is given this part of the image queries that the paper's search has
IMAGE_SIZE = 224  # what the authors' loaders resize every image to


def default_method(preset: str, given: Mapping[str, Any], classes: int) -> str:
    """The method of a run that names none: guided, where that was measured to be as good and can be had; else lcs."""
    if classes > FEW_CLASSES:
        return "lcs"
    chosen = {name for name, value in given.items() if value not in (None, 0, "entropy", "every", "mask")}
    return "lcs" if preset == "paper" or chosen & NOT_GUIDED else "guided"


def resolve(
    given: Mapping[str, Value],
    *,
    method: str,
    preset: str,
    seed: int,
    data: str,
    width: int,
    classes: int,
    shots: int,
    forgotten: int = 0,
) -> Settings:
    """Settings from what was given, the method, and the preset's sizes for this width of contexts and these classes.

    Data that the paper does not have takes `shots`, as many as its smallest class allows. `forgotten` is the number of
    classes to forget.
    """
    if method not in METHODS:
        raise InputError(unknown("method", method, METHODS))
    if preset not in PRESETS:
        raise InputError(unknown("preset", preset, PRESETS))
    check_names(given)
    for name in ("method", "preset", "seed"):
        if name in given:
            raise InputError(f"{name} is not one of the further settings; give it by itself, as {name}=…")
    wanted = {name: value for name, value in given.items() if value is not None}
    sizes = _paper_sizes(data, classes, shots)
    if preset == "tuned":
        sizes |= _tuned_sizes(width, classes, METHODS[method].settings.get("parametrization", ""))
    merged: dict[str, Any] = {**sizes, **METHODS[method].settings, "method": method, "preset": preset, "seed": seed}
    if preset == "paper":
        merged |= METHODS[method].paper
    if merged.get("search") == "guided" and classes > FEW_CLASSES:
        merged["population"] = POPULATION
    if not METHODS[method].own_schedule and not {"iterations", "population"} & set(wanted):
        merged |= _as_many_questions(sizes["iterations"] * POPULATION, merged)
    if preset == "tuned" and METHODS[method].tunes_prompt and merged.get("merit", "h") != "acc_mem":
        merged["serve"] = SERVE
    merged |= wanted
    if METHODS[method].epochs and merged.get("batch", 0) and "iterations" not in wanted:
        used = classes if merged.get("forget_weight", 1) else classes - forgotten
        merged["iterations"] = _steps(METHODS[method].epochs, merged["shots"], used, merged["batch"])
    if preset == "paper":
        merged.setdefault("step_size", _step_size_of_pycma_3(merged.get("search")))
        if METHODS[method].sees == "nothing":
            merged.setdefault("image_size", IMAGE_SIZE)
    return check_settings(merged)


def reference_candidates(data: str, classes: int) -> int:
    """How many candidates the paper's search tries on such data, each of them on all images."""
    return _paper_sizes(data, classes, 1)["iterations"] * POPULATION


def sizes_in_words(settings: Settings, width: int, classes: int) -> str:
    """The sizes of a run's prompt and where they come from; "" for a method that tunes none."""
    s = settings
    match s.parametrization:
        case "shared":
            sizes = f"{s.contexts} contexts of {s.shared} shared + {s.own} own numbers"
        case "vanilla":
            sizes = f"{s.contexts} contexts of {width} numbers"
        case "none":
            return ""
        case _:
            sizes = f"{s.contexts} contexts of {s.dim} numbers"
    if s.preset == "paper":
        return f"{sizes} (preset paper)"
    kind = f"contexts up to {NARROW} wide" if width <= NARROW else "wider contexts, as in the paper"
    many = f"up to {FEW_CLASSES} classes" if classes <= FEW_CLASSES else f"more than {FEW_CLASSES} classes"
    return f"{sizes} (preset tuned: {kind}, {many})"


def _paper_sizes(data: str, classes: int, shots: int) -> dict[str, int]:
    if data in PAPER:
        return dict(PAPER[data])
    return PAPER["cifar10" if classes <= FEW_CLASSES else "cifar100"] | {"shots": shots}


def _tuned_sizes(width: int, classes: int, parametrization: str) -> dict[str, int]:
    """What differs from the paper's sizes."""
    if width > NARROW:
        return {}
    few = _NARROW_FEW | _NARROW_FEW_OF.get(parametrization, {})
    sizes = few if classes <= FEW_CLASSES else _NARROW_MANY
    return sizes | {name: min(sizes[name], width) for name in ("own", "dim")}  # more could not reach further


def _step_size_of_pycma_3(search: str | None) -> str:
    """The authors' release adapts step sizes by CSA; separable search alone by TPA, from 300 dimensions on."""
    return "tpa" if search == "separable" else "csa"


def _steps(epochs: Mapping[int, int], shots: int, classes: int, batch: int) -> int:
    """Steps of a schedule in epochs, which may be fewer with few shots."""
    from unsee.methods.shot_batches import steps_per_epoch  # here: it imports numpy, which --help does not need

    passes = next(passes for at_most, passes in sorted(epochs.items()) if shots <= at_most)
    return passes * steps_per_epoch(shots * classes, batch)


def _as_many_questions(candidates: int, merged: Mapping[str, Any]) -> dict[str, int]:
    """Iterations for at most as many image queries as these candidates, if each is validated, as LCS's are.

    There are as many images to validate on as to tune on, so validating a candidate costs as much as its loss.
    """
    population = merged.get("population", POPULATION)
    once = merged.get("validate") in ("first", "generation")
    return {"iterations": max(1, 2 * candidates // (population + (1 if once else population)))}
