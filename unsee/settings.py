"""Every setting of a run: its type, bounds and meaning, beside its name. Defaults by method and data are in `methods/`.

`--set`, `unsee settings` and the table in the docs are made of these fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from unsee.errors import InputError, unknown

Value = int | float | str | bool | None  # of a setting
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]

Projection = Literal["token-std", "unit", "normalized"]
# How a search learns: from losses (CMA-ES, or not at all), from answers, along measured slopes, or along true ones.
SearchName = Literal["full", "separable", "vkd", "random", "guided", "differences", "cbbt", "two-sided", "gradient"]
StepSize = Literal["csa", "tpa", "library"]
ParametrizationName = Literal["shared", "bbt", "independent", "vanilla", "low-rank", "none"]
OptimizerName = Literal["adam", "sgd"]
RateUnit = Literal["token-std", "absolute"]
AppliesTo = Literal["all", "forgotten"]
Position = Literal["end", "middle", "front"]
GoalName = Literal["entropy", "mask", "push", "constrained"]
Merit = Literal["h", "h-all", "acc_mem"]
RuleName = Literal[
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
]
PRECISIONS = ("float32", "float16", "bfloat16")  # of a model, as torch calls them
TRACKER_NAMES = ("mlflow", "tensorboard", "wandb")  # the trackers are in `runs/trackers.py`
CMA_KINDS = ("full", "separable", "vkd")
POSITIONS: tuple[str, ...] = get_args(Position)
GOALS: tuple[str, ...] = get_args(GoalName)
SERVED_AS: tuple[str, ...] = get_args(RuleName)  # the rules are in `answers/rules.py`
# A run may be continued with more of these; all other settings say what the run is.
EXTENDABLE = ("iterations", "budget", "image_queries")
# CMA-ES ranks its candidates; differences compare one with the point itself; two sides make a pair.
_LEAST_POPULATION = {**dict.fromkeys(CMA_KINDS, 4), "guided": 2, "differences": 2, "cbbt": 2, "two-sided": 2}


@dataclass(frozen=True, config=ConfigDict(strict=True, allow_inf_nan=False))
class Settings:
    """A run's settings after all defaults. Make them with `check_settings`, which says in one line what is wrong."""

    method: str = Field(description="name of the method")
    preset: str = Field(description="where the other defaults come from: tuned or paper")
    seed: Whole = Field(description="of all random numbers of the run")
    parametrization: ParametrizationName = Field(description="how latents become contexts")
    shots: Count = Field(description="images per class to tune on, and as many others to validate on")
    iterations: Count = Field(description="generations at most")
    contexts: Count = Field(description="number of context tokens, m")
    shared: Whole = Field(description="shared latents of LCS, d_s")
    own: Count = Field(description="latents of each context's own in LCS, d_u")
    dim: Count = Field(description="latents per context of BBT and of independent contexts, d")
    rank: Count = Field(description="rank k of VkD-CMA-ES")
    population: Count = Field(20, description="candidates per generation")
    budget: Count | None = Field(None, description="candidates at most; only whole generations are asked")
    image_queries: Count | None = Field(None, description="image queries at most; only whole generations are asked")
    search: SearchName = Field("full", description="the search: a kind of CMA-ES, random, guided, or along slopes")
    sigma0: Rate = Field(1.0, description="first step size of CMA-ES and random search")
    step_size: StepSize = Field(
        "library", description="step-size rule of CMA-ES: csa; tpa in blocks of 300 and more; or pycma's default"
    )
    projection: Projection = Field("token-std", description="scale of the random projection")
    origin: str = Field(
        "mean",
        description="added to the contexts: the mean token, or a phrase such as a photo of a (repeated if ... follows)",
    )
    memorize_weight: Weight = Field(1.0, description="weight of the loss on kept classes")
    forget_weight: Weight = Field(1.0, description="weight of the loss on forgotten classes")
    goal: GoalName = Field(
        "entropy",
        description="what answers to forgotten images should be: uniform (entropy, the paper's), as a label mask makes "
        "them, anything but the true class (push), or uniform as far as the kept classes allow (constrained)",
    )
    keep_within: Weight = Field(0.02, description="goal=constrained: Acc_mem may be this much below the plain prompt's")
    slack: Weight = Field(0.0, description="H that may be given up for answers that leak less of forgotten images")
    validate: str = Field(
        "every", description="which candidates: every, generation (its best), first, every k-th (a number), loss (none)"
    )
    merit: Merit = Field(
        "h",
        description="what to choose by: H on the images to validate on, or on these and those to tune on (h-all); "
        "acc_mem for methods that do not forget",
    )
    rate: Rate = Field(0.1, description="step size of descents")
    rate_unit: RateUnit = Field(
        "token-std", description="its unit: standard deviations of token embeddings, or absolute"
    )
    optimizer: OptimizerName = Field("adam", description="of descents; sgd as CoOp has it")
    difference: Weight = Field(0.125, description="how far measured slopes move an entry; 0: as little as CBBT")
    batch: Whole = Field(0, description="images per step; 0: all")
    views: Whole = Field(0, description="random crops and flips per image to tune on, one per epoch; 0: none")
    smallest_crop: Annotated[float, Field(gt=0, le=1)] = Field(
        0.08, description="share of an image in a view, at least"
    )
    weight_rate: Rate = Field(1e-4, description="learning rate of methods that train weights")
    weights: str = Field("", description="folder of pretrained weights for the from-scratch classifiers")
    image_size: Whole = Field(0, description="side of their images in pixels; 0: by weights or images, at most 224")
    save_weights: bool = Field(False, description="keep the trained copy in the run folder")
    with_images: Share = Field(1.0, description="share of the forgotten classes that there are images of")
    embedding_weight: Weight = Field(0.0, description="weight of the loss on class embeddings, for the others")
    tau: Rate = Field(0.07, description="temperature of that loss")
    applies_to: AppliesTo = Field("all", description="names that get the contexts; the others stay under the template")
    position: Position = Field(
        "end", description="of the class name: behind, in the middle or in front of the contexts"
    )
    serve: RuleName = Field("as-is", description="rule applied to answers under the prompt before a caller sees them")
    template: str = Field("a photo of a {}.", description="the plain prompt; several, joined by ' | ', are averaged")
    stop_when_stalled: bool = Field(False, description="stop when the search makes no more progress")
    skip_bad_images: bool = Field(False, description="leave unreadable images out instead of stopping")

    def __post_init__(self) -> None:
        self._check_lengths()
        self._check_prompt()
        self._check_choice()

    def _check_lengths(self) -> None:
        least = _LEAST_POPULATION.get(self.search, 1)
        if self.population < least:
            raise ValueError(f"population must be at least {least}, not {self.population}")
        if self.budget is not None and self.budget < self.population:
            raise ValueError(
                f"budget must be at least one generation, which is {self.population} candidates (population), "
                f"not {self.budget}"
            )
        if self.search == "two-sided" and self.population % 2:
            raise ValueError(f"search=two-sided asks in pairs: population must be even, not {self.population}")
        if self.search == "gradient" and self.population != 1:
            raise ValueError(f"search=gradient has one candidate per step: population must be 1, not {self.population}")
        if self.search == "guided":
            self._check_guided()
        if self.optimizer == "sgd" and self.search != "gradient":
            raise ValueError("optimizer=sgd follows true slopes: use it with search=gradient")

    def _check_guided(self) -> None:
        """Refuses losses that are no cross-entropy of answers to all images, which is what this search models."""
        for name, allowed in {
            "goal": ("entropy", "mask"),
            "validate": ("every",),
            "batch": (0,),
            "views": (0,),
        }.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"search=guided needs {name}={' or '.join(map(str, allowed))}: use search=full")
        if self.embedding_weight:
            raise ValueError("search=guided sees answers alone: use search=full with embedding_weight")

    def _check_prompt(self) -> None:
        """Refuses settings of tuned prompts for a method that tunes none."""
        if self.parametrization != "none":
            return
        if (self.batch or self.views) and self.method != "coop-params":
            raise ValueError(f"batch and views are for methods that tune a prompt; {self.method!r} tunes none")
        for name, value in {"applies_to": "all", "goal": "entropy", "serve": "as-is", "slack": 0.0}.items():
            if getattr(self, name) != value:
                raise ValueError(f"{name} is about tuned prompts; method {self.method!r} tunes none")
        if self.position != "end" and self.method != "coop-params":
            raise ValueError(f"position is about tuned prompts; method {self.method!r} tunes none")

    def _check_choice(self) -> None:
        """Refuses goals and ways to choose that do not go together."""
        rule = self.validate
        number = int(rule) if rule.isascii() and rule.isdigit() else 0  # isdigit alone is also true of "²"
        if rule not in ("every", "generation", "first", "loss") and number < 1:
            raise ValueError(
                f"validate is 'every', 'generation', 'first', 'loss' or a number of candidates, not {rule!r}"
            )
        if (self.goal == "constrained" or self.slack > 0) and rule == "loss":
            what = "goal=constrained" if self.goal == "constrained" else f"slack={self.slack:g}"
            raise ValueError(f"{what} chooses by validation scores; it does not go with validate=loss")
        if self.goal in ("mask", "constrained") and (self.batch or self.views):
            raise ValueError(
                f"goal={self.goal} compares with the plain prompt's answers to all shots; it needs batch=0 and views=0"
            )
        if self.goal == "constrained" and self.slack > 0:
            raise ValueError("goal=constrained has its own way to choose; it does not go with slack")
        if self.with_images == 0 and self.memorize_weight == 0 and rule != "loss":
            raise ValueError("without any images to tune on, candidates are chosen by loss: use validate=loss")

    @property
    def generations(self) -> int:
        """How many the iterations and the budget allow: a generation that does not fit is not asked.

        Those of a guided search differ in size; whether the next one fits is seen when it is asked.
        """
        return (
            self.iterations
            if self.budget is None or self.search == "guided"
            else min(self.iterations, self.budget // self.population)
        )

    @property
    def limit(self) -> int:
        """The most candidates this run may try."""
        return self.generations * self.population

    def as_dict(self) -> dict[str, Value]:
        return dataclasses.asdict(self)


class GivenSettings(TypedDict, total=False):
    """The settings that `PromptTuner` takes by name, so that editors complete them; a test holds them to `Settings`."""

    parametrization: ParametrizationName
    shots: Count
    iterations: Count
    contexts: Count
    shared: Whole
    own: Count
    dim: Count
    rank: Count
    population: Count
    budget: Count | None
    image_queries: Count | None
    search: SearchName
    sigma0: Rate
    step_size: StepSize
    projection: Projection
    origin: str
    memorize_weight: Weight
    forget_weight: Weight
    goal: GoalName
    keep_within: Weight
    slack: Weight
    validate: str
    merit: Merit
    rate: Rate
    rate_unit: RateUnit
    optimizer: OptimizerName
    difference: Weight
    batch: Whole
    views: Whole
    smallest_crop: Annotated[float, Field(gt=0, le=1)]
    weight_rate: Rate
    weights: str
    image_size: Whole
    save_weights: bool
    with_images: Share
    embedding_weight: Weight
    tau: Rate
    applies_to: AppliesTo
    position: Position
    serve: RuleName
    template: str
    stop_when_stalled: bool
    skip_bad_images: bool


# Settings that were added after runs had been made: at these values a run is what it was before.
ADDED: dict[str, Value] = {"position": "end", "smallest_crop": 0.08}
FIELDS: Mapping[str, FieldInfo] = Settings.__pydantic_fields__  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class SettingFacts:
    """One setting, for people: `unsee settings`, the docs, a form."""

    name: str
    kind: str  # what may be given
    default: str  # "by preset" where it depends on method, model and data
    about: str


def list_settings() -> list[SettingFacts]:
    """All settings, in the order of the fields."""
    return [
        SettingFacts(name, _kind(field), _default(field), field.description or "") for name, field in FIELDS.items()
    ]


def check_names(given: Mapping[str, Value]) -> None:
    """Refuses settings that do not exist."""
    for name in given:
        if name not in FIELDS:
            raise InputError(unknown("setting", name, sorted(FIELDS)))


def check_settings(given: Mapping[str, Any]) -> Settings:
    """Settings of these values; InputError says in one line which does not fit."""
    check_names(given)
    try:
        return Settings(**given)
    except ValidationError as error:
        raise _refusal(error) from None


def parse_settings(pairs: Mapping[str, str]) -> dict[str, Value]:
    """Settings given as text (`--set key=value`), in their own types."""
    check_names(pairs)
    return {name: _parse(name, text) for name, text in pairs.items()}


def _parse(name: str, text: str) -> Value:
    if name in ("budget", "image_queries") and text.lower() == "none":
        return None
    try:
        found: Value = _adapter(name).validate_strings(text)
    except ValidationError as error:
        raise _refusal(error, name) from None
    return found


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field: Any = FIELDS[name]
    return TypeAdapter(Annotated[field.annotation, field])


_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "string": "text"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most"}
_BROKEN = {"greater_than_equal": "ge", "greater_than": "gt", "less_than_equal": "le"}


def _refusal(error: ValidationError, name: str = "") -> InputError:
    """What is wrong with the first setting that does not fit."""
    first = error.errors()[0]
    name = name or next((part for part in first["loc"] if isinstance(part, str) and part in FIELDS), "")
    kind, given, facts = first["type"], first["input"], first.get("ctx", {})
    if kind == "value_error":
        return InputError(str(facts["error"]))
    if kind in _BROKEN:
        bound = _BROKEN[kind]
        return InputError(f"{name} must be {_BOUNDS[bound]} {facts[bound]:g}, not {given}")
    if kind == "literal_error":
        return InputError(unknown(name, str(given), _choices(FIELDS[name])))
    if kind == "finite_number":
        return InputError(f"setting {name} must be a finite number, not {given}")
    wanted = _KINDS.get(kind.partition("_")[0], "another kind of value")
    return InputError(f"setting {name} must be {wanted}, not {given!r}")


def _choices(field: FieldInfo) -> tuple[str, ...]:
    return get_args(field.annotation) if isinstance(get_args(field.annotation)[0], str) else ()


def _kind(field: FieldInfo) -> str:
    hint = field.annotation
    if hint is not None and getattr(hint, "__origin__", None) is Literal:
        return ", ".join(_choices(field))
    inner = next((kind for kind in (bool, int, float) if kind is hint or kind in _flat(hint)), str)
    word = _KINDS["string" if inner is str else inner.__name__]
    bounds = [f"{_BOUNDS[n]} {getattr(m, n):g}" for m in _bounds(field) for n in _BOUNDS if hasattr(m, n)]
    return " ".join([word, " and ".join(bounds)]).strip()


def _flat(hint: Any) -> list[Any]:
    """A type and all that it is made of."""
    return [hint, *(inner for part in get_args(hint) for inner in _flat(part))]


def _bounds(field: FieldInfo) -> list[Any]:
    return [m for part in [*field.metadata, *_flat(field.annotation)] for m in getattr(part, "metadata", [part])]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "by preset"
    return (
        "none"
        if field.default in (None, "")
        else str(field.default).lower()
        if isinstance(field.default, bool)
        else str(field.default)
    )
