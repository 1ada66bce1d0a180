"""The parts of a run, made by the names in its settings: parametrization, search, goal, learner. One dict each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unsee.answers.rules import mask_confidences
from unsee.errors import InputError
from unsee.methods.asked import AskedImages
from unsee.methods.contexts import (
    BbtContexts,
    IndependentContexts,
    LowRankContexts,
    Parametrization,
    SharedContexts,
    VanillaContexts,
    draw_projection,
    make_origin,
)
from unsee.methods.descent import (
    DECAY,
    Adam,
    ForwardDifferences,
    GradientDescent,
    Optimizer,
    Sgd,
    Slope,
    TwoSided,
    UnitDifferences,
)
from unsee.methods.losses import Goal, memorize_loss
from unsee.methods.search import RandomSearch, Search
from unsee.methods.task import Task
from unsee.models.black_box import BlackBox, safe_log
from unsee.seeds import stream
from unsee.settings import CMA_KINDS, Settings
from unsee.types import Floats, Ints, Mask

if TYPE_CHECKING:
    from unsee.methods.learners import Learner

LOW_RANK = 2  # of ZIP's matrix of latents
Project = Callable[[int], Floats]  # dimension of latents -> a random projection (dim, D)


@dataclass(frozen=True, eq=False)
class SearchParts:
    """What a search is made of."""

    task: Task
    asked: AskedImages
    goal: Callable[[], Goal]
    blocks: tuple[int, ...]  # of z

    @property
    def dim(self) -> int:
        return sum(self.blocks)

    @property
    def streams(self) -> list[np.random.Generator]:
        return [stream(self.task.settings.seed, "search", i) for i in range(len(self.blocks))]


def make_parametrization(settings: Settings, model: BlackBox) -> Parametrization:
    """The contexts' parametrization, its projection drawn from the run's seed."""
    if settings.parametrization not in PARAMETRIZATIONS:
        raise InputError(f"method {settings.method!r} tunes no prompt")
    rng = stream(settings.seed, "projection")

    def project(dim: int) -> Floats:
        return draw_projection(rng, dim, model.card, settings.projection)

    return PARAMETRIZATIONS[settings.parametrization](settings, make_origin(settings, model), project)


def make_search(task: Task, asked: AskedImages, goal: Callable[[], Goal], blocks: tuple[int, ...]) -> Search:
    """A fresh search over these blocks of z."""
    return SEARCHES[task.settings.search](SearchParts(task, asked, goal, blocks))


def make_goal(task: Task, asked: AskedImages) -> Goal:
    """What is asked of answers to images to tune on; some goals are stated in the plain prompt's answers."""
    name = task.settings.goal
    if task.blind or name not in GOAL_MAKERS:
        return Goal(name)
    count = len(task.split_rows[0])
    plain = asked.plain.confidences
    if plain is None:
        raise InputError(f"goal={name} needs answers to a plain-text prompt; this model gives none")
    return GOAL_MAKERS[name](task, plain[:count], asked.plain.labels[:count])


def make_learner(task: Task) -> Learner:
    """The learner of a method that trains weights."""
    if task.settings.method not in LEARNERS:
        raise InputError(f"method {task.settings.method!r} trains no weights")
    return LEARNERS[task.settings.method](task)


def _shared(s: Settings, origin: Floats, project: Project) -> Parametrization:
    return SharedContexts(origin, project(s.shared + s.own), s.shared)


def _low_rank(s: Settings, origin: Floats, project: Project) -> Parametrization:
    factors, rank = stream(s.seed, "factors"), min(LOW_RANK, s.dim, len(origin))
    left = factors.standard_normal((len(origin), rank)) / np.sqrt(rank)
    return LowRankContexts(origin, project(s.dim), left, factors.standard_normal((rank, s.dim)))


PARAMETRIZATIONS: Mapping[str, Callable[[Settings, Floats, Project], Parametrization]] = {
    "shared": _shared,
    "bbt": lambda s, origin, project: BbtContexts(origin, project(s.dim)),
    "independent": lambda s, origin, project: IndependentContexts(origin, project(s.dim)),
    "vanilla": lambda s, origin, project: VanillaContexts(origin),
    "low-rank": _low_rank,
}


def _cma(parts: SearchParts) -> Search:
    from unsee.methods.cma import BlockSearch  # imports pycma, which imports SciPy and matplotlib

    s = parts.task.settings
    return BlockSearch(
        parts.blocks,
        parts.streams,
        kind=s.search,
        population=s.population,
        sigma0=s.sigma0,
        rank=s.rank,
        step_size=s.step_size,
    )


def _random(parts: SearchParts) -> Search:
    s = parts.task.settings
    return RandomSearch(parts.dim, parts.streams[0], population=s.population, sigma0=s.sigma0)


def _guided(parts: SearchParts) -> Search:
    from unsee.methods.guided import GuidedSearch  # imports SciPy

    task, (train, valid) = parts.task, parts.task.split_rows
    labels = task.data.train.labels[np.concatenate([train, valid])]
    target = target_weights(labels[: len(train)], task.forget, task.settings, parts.goal().target)
    # Answers that are cut or rounded are not linear in an image's features: all images are asked then.
    whole = getattr(task.model, "answers", "all") != "all"
    return GuidedSearch(
        parts.dim,
        parts.streams[0],
        target,
        labels,
        task.forget,
        population=task.settings.population,
        whole=whole,
        inherited=() if task.inherited is None else task.inherited.known,
    )


def target_weights(labels: Ints, forget: Mask, settings: Settings, target: Floats | None = None) -> Floats:
    """Weights of log-confidences (n, C) whose negative sum is the loss: a cross-entropy, for goals that are one."""
    gone, weights = forget[labels], np.zeros((len(labels), len(forget)), dtype=np.float32)
    kept = np.flatnonzero(~gone)
    weights[kept, labels[kept]] = settings.memorize_weight / max(1, len(kept))
    flat = np.full((len(labels), len(forget)), 1 / len(forget)) if target is None else target
    weights[gone] = settings.forget_weight * flat[gone] / max(1, gone.sum())
    return weights


def _differences(parts: SearchParts) -> Search:
    s = parts.task.settings
    return ForwardDifferences(
        parts.dim,
        parts.streams[0],
        population=s.population,
        rate=_rate(parts.task),
        steps=s.iterations,
        entry=s.difference * parts.task.model.card.token_std,
    )


def _unit_differences(parts: SearchParts) -> Search:
    s, batches = parts.task.settings, parts.asked.batches
    if s.parametrization != "vanilla":
        raise InputError("search=cbbt moves the contexts themselves: use it with parametrization=vanilla")
    return UnitDifferences(
        make_origin(s, parts.task.model).ravel().astype(np.float64),
        parts.streams[0],
        population=s.population,
        rate=_rate(parts.task),
        steps=s.iterations,
        per_epoch=1 if batches is None else batches.steps,
    )


def _two_sided(parts: SearchParts) -> Search:
    s = parts.task.settings
    rate = _rate_of_z(parts.task)
    return TwoSided(parts.dim, parts.streams[0], population=s.population, rate=rate, steps=s.iterations)


def _gradient(parts: SearchParts) -> Search:
    return GradientDescent(_slope(parts), _optimizer(parts))


SEARCHES: Mapping[str, Callable[[SearchParts], Search]] = {
    **dict.fromkeys(CMA_KINDS, _cma),
    "random": _random,
    "guided": _guided,
    "differences": _differences,
    "cbbt": _unit_differences,
    "two-sided": _two_sided,
    "gradient": _gradient,
}


def _slope(parts: SearchParts) -> Slope:
    """The true gradient with respect to z, which is the contexts' entries themselves."""
    from unsee.methods.gradient import LossSlope  # torch is needed for gradients alone

    s = parts.task.settings
    if s.parametrization != "vanilla":
        raise InputError("search=gradient moves the contexts themselves: use it with parametrization=vanilla")
    origin = make_origin(s, parts.task.model)
    slope, start = LossSlope(parts.asked, parts.goal, (origin.shape[0], origin.shape[1])), origin.ravel()
    if s.optimizer == "sgd":
        return lambda z, step: slope(z + start, step) + DECAY * (z + start)
    return lambda z, step: slope(z + start, step)


def _optimizer(parts: SearchParts) -> Optimizer:
    s, start, batches = parts.task.settings, np.zeros(parts.dim), parts.asked.batches
    if s.optimizer == "sgd":
        return Sgd(start, _rate(parts.task), s.iterations, 1 if batches is None else batches.steps)
    return Adam(start, _rate(parts.task), np.inf, s.iterations)


def _rate(task: Task) -> float:
    s = task.settings
    return s.rate * task.model.card.token_std if s.rate_unit == "token-std" else s.rate


def _rate_of_z(task: Task) -> float:
    """The rate of a search whose z may be latents: these have the projection's unit, and no other."""
    s = task.settings
    if s.parametrization == "vanilla":
        return _rate(task)
    if s.rate_unit != "token-std":
        raise InputError(
            f"rate_unit={s.rate_unit} is for the contexts' own entries: search={s.search} steps in latents here. "
            "Leave it out, or use parametrization=vanilla"
        )
    return s.rate


def _mask_goal(task: Task, plain: Floats, labels: Ints) -> Goal:
    return Goal("mask", target=mask_confidences(plain, task.forget))


def _constrained_goal(task: Task, plain: Floats, labels: Ints) -> Goal:
    kept = ~task.forget[labels]
    plain_loss = memorize_loss(safe_log(plain[None, kept]), labels[kept])[0]
    return Goal("constrained", allowed=float(plain_loss) - float(np.log1p(-min(task.settings.keep_within, 0.99))))


# Those stated in the plain prompt's answers (n, C) to the images to tune on, and their labels; the others are names.
GOAL_MAKERS: Mapping[str, Callable[[Task, Floats, Ints], Goal]] = {"mask": _mask_goal, "constrained": _constrained_goal}


def _copy(task: Task) -> Learner:
    from unsee.methods.learners import CopyLearner  # imports torch

    return CopyLearner(task)


def _scratch(task: Task) -> Learner:
    from unsee.methods.classifiers import ScratchLearner  # imports torch

    return ScratchLearner(task)


LEARNERS: Mapping[str, Callable[[Task], Learner]] = {
    "coop-params": _copy,
    "finetune": _copy,
    "scratch-resnet18": _scratch,
    "scratch-vit": _scratch,
}
