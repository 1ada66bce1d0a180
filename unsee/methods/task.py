"""Everything a run is a function of: settings, model, data, classes to forget, split.

A task makes the parts of a run by name: the parametrization of contexts, the search, the images to tune on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from unsee.answers.metrics import mask_confidences, scores, top_classes
from unsee.answers.rules import serve
from unsee.data.class_names import forget_mask
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.data.splits import Split, few_shot_split, largest_shots
from unsee.errors import InputError
from unsee.methods.contexts import (
    BbtContexts,
    IndependentContexts,
    LowRankContexts,
    Parametrization,
    SharedContexts,
    VanillaContexts,
    draw_projection,
    mean_origin,
    phrase_origin,
)
from unsee.methods.descent import DECAY, Adam, ForwardDifferences, GradientDescent, Optimizer, Sgd, Slope, TwoSided
from unsee.methods.losses import Goal, memorize_loss
from unsee.methods.plain import PlainPrompt
from unsee.methods.presets import resolve
from unsee.methods.registry import METHODS
from unsee.methods.search import RandomSearch, Search
from unsee.methods.shot_batches import ShotBatches
from unsee.models.black_box import BlackBox, BoundImages, LooksUpTokens, bind, safe_log
from unsee.seeds import stream
from unsee.settings import Settings, Value
from unsee.types import Card, Floats, Ints, Mask

LOW_RANK = 2  # of ZIP's matrix of latents


class Fitted(Protocol):
    """What a method found: something that answers images."""

    def confidences(self, images: BoundImages) -> Floats:
        """Answers (n, C), rows sum to 1."""


@dataclass(frozen=True, eq=False)
class TunedContexts:
    """The contexts with the best validation score, the names they apply to (None: all), and the rule for answers."""

    contexts: Floats  # (m, D)
    applies_to: tuple[str, ...] | None
    template: str  # of the other names
    forget: Mask  # (C,)
    rule: str = "as-is"
    position: str = "end"

    def confidences(self, images: BoundImages) -> Floats:
        """Answers under the contexts, before the rule: scores say what was tuned."""
        found: Floats = self.place(images).confidences(self.contexts[None])[0]
        return found

    def served(self, confidences: Floats) -> Floats:
        """What a caller sees of these answers."""
        return serve(confidences, self.forget, self.rule)

    def place(self, images: BoundImages) -> BoundImages:
        """Images bound to a model, with contexts where this prompt has them."""
        return images.at(self.position).apply_to(self.applies_to, self.template)


@dataclass(frozen=True, eq=False)
class Task:
    """Everything a run is a function of."""

    settings: Settings
    model: BlackBox
    data: Data
    forget: Mask
    split: Split

    @property
    def forgotten(self) -> tuple[str, ...]:
        return tuple(name for name, gone in zip(self.data.class_names, self.forget, strict=True) if gone)

    @property
    def applies_to(self) -> tuple[str, ...] | None:
        """The names that contexts are put before; None for all of them."""
        return self.forgotten if self.settings.applies_to == "forgotten" else None

    @cached_property
    def parametrization(self) -> Parametrization:
        return make_parametrization(self.settings, self.model)

    @cached_property
    def unseen(self) -> Mask:
        """The forgotten classes there are no images of: the last ones, as many as `with_images` leaves out. -> (C,).

        Of several forgotten classes, one at least has images, unless `with_images` is 0.
        """
        gone, share = np.flatnonzero(self.forget), self.settings.with_images
        least = 1 if share > 0 and len(gone) > 1 else 0
        unseen = np.zeros_like(self.forget)
        unseen[gone[max(least, round(share * len(gone))) :]] = True
        return unseen

    @property
    def none_seen(self) -> bool:
        """Whether there are no images of any forgotten class, so that H cannot be measured while tuning."""
        return bool((self.unseen == self.forget).all())

    @property
    def blind(self) -> bool:
        """Whether no image is tuned on at all; those to validate on are then for the record alone."""
        return self.settings.memorize_weight == 0 and self.none_seen

    @cached_property
    def split_rows(self) -> tuple[Ints, Ints]:
        """Rows of the training images to tune on and to validate on, without the classes there are no images of.

        Where candidates are chosen by loss for want of such images, those to validate on are for the record alone.
        """
        parts = self.split.train, self.split.valid
        if self.blind:
            return parts
        labels = self.data.train.labels
        train, valid = (part[~self.unseen[labels[part]]] for part in parts)
        return train, self.split.valid if self.none_seen and self.settings.validate == "loss" else valid

    @property
    def tuning_rows(self) -> Ints:
        return np.concatenate(self.split_rows)

    @property
    def tuning_images(self) -> tuple[Images, Images]:
        """Images to tune on and to validate on."""
        train, valid = (self.data.train.subset(rows) for rows in self.split_rows)
        return train, valid

    @property
    def asks_once(self) -> bool:
        """Whether one question serves both losses and validation."""
        return self.settings.validate == "every" and not self.blind and not self._in_batches

    @property
    def asked_rows(self) -> tuple[Ints, ...]:
        """Rows of the training images that the model is asked about together: to tune on, then to validate on."""
        train, valid = self.split_rows
        if self.blind:
            return (valid,)
        if self.asks_once:
            return (self.tuning_rows,)
        return (self.loss_rows if self._in_batches else train), valid

    @cached_property
    def bound(self) -> tuple[BoundImages, ...]:
        """The model bound to these, each once."""
        if self.batches is None:
            return tuple(self.bind_images(rows) for rows in self.asked_rows)
        return self.batches.shots, self.bind_images(self.asked_rows[-1])

    @cached_property
    def plain(self) -> PlainPrompt:
        """The plain prompt's answers to these, asked for when first needed."""
        return PlainPrompt(lambda: self.bound, self.settings.template)

    def bind_images(self, rows: Ints) -> BoundImages:
        """The model bound to these rows of the training images, contexts before the names they apply to."""
        return self._bind(self.data.train.subset(rows))

    def _bind(self, images: Images) -> BoundImages:
        return bind(self.model, images).at(self.settings.position).apply_to(self.applies_to, self.settings.template)

    @cached_property
    def loss_rows(self) -> Ints:
        """Rows of the training images that batches are made of: without a loss on forgotten ones, the kept ones."""
        rows, _ = self.split_rows
        return rows if self.settings.forget_weight else rows[~self.forget[self.data.train.labels[rows]]]

    @property
    def images_per_candidate(self) -> int:
        """How many images a candidate's loss is computed on."""
        if not self._in_batches:
            return len(self.split_rows[0])
        return min(self.settings.batch, len(self.loss_rows)) or len(self.loss_rows)

    @property
    def _in_batches(self) -> bool:
        return bool(self.settings.batch or self.settings.views)

    @cached_property
    def batches(self) -> ShotBatches | None:
        """The images of each step; None where every step uses all of them as they are."""
        s = self.settings
        if not self._in_batches:
            return None
        return ShotBatches(self.data.train.subset(self.loss_rows), self._bind, s.seed, s.batch, s.views)

    @cached_property
    def goal(self) -> Goal:
        """What is asked of answers to images to tune on; some goals are stated in the plain prompt's answers."""
        settings = self.settings
        if self.blind or settings.goal in ("entropy", "push"):
            return Goal(settings.goal)
        count = len(self.split_rows[0])
        found, labels = self.plain.confidences, self.plain.labels[:count]
        if found is None:
            raise InputError(f"goal={settings.goal} needs answers to a plain-text prompt; this model gives none")
        plain = found[:count]
        if settings.goal == "mask":
            return Goal("mask", target=mask_confidences(plain, self.forget))
        kept = ~self.forget[labels]
        plain_loss = memorize_loss(safe_log(plain[None, kept]), labels[kept])[0]
        return Goal("constrained", allowed=float(plain_loss) - float(np.log1p(-min(settings.keep_within, 0.99))))

    def plain_acc_mem(self) -> float:
        """Acc_mem of the plain prompt on the images to tune and to validate on."""
        plain = self.plain.confidences
        if plain is None:
            raise InputError("Acc_mem of the plain prompt is not known: this model answers no plain-text prompt")
        return scores(top_classes(plain), self.plain.labels, self.forget).acc_mem

    def search(self) -> Search:
        """A fresh search over the blocks of the parametrization."""
        s, blocks = self.settings, self.parametrization.blocks
        dim, streams = sum(blocks), [stream(s.seed, "search", i) for i in range(len(blocks))]
        match s.search:
            case "random":
                return RandomSearch(dim, streams[0], population=s.population, sigma0=s.sigma0)
            case "differences":
                return ForwardDifferences(
                    dim,
                    streams[0],
                    population=s.population,
                    rate=self._rate,
                    steps=s.iterations,
                    entry=s.difference * self.model.card.token_std,
                )
            case "two-sided":
                return TwoSided(dim, streams[0], population=s.population, rate=self._rate_of_z, steps=s.iterations)
            case "gradient":
                return GradientDescent(self._slope(), self._optimizer(dim))
            case kind:
                from unsee.methods.cma import BlockSearch  # imports pycma, which imports SciPy and matplotlib

                return BlockSearch(
                    blocks,
                    streams,
                    kind=kind,
                    population=s.population,
                    sigma0=s.sigma0,
                    rank=s.rank,
                    step_size=s.step_size,
                )

    def _slope(self) -> Slope:
        """The true gradient with respect to z, which is the contexts' entries themselves."""
        from unsee.methods.gradient import LossSlope  # torch is needed for gradients alone

        s = self.settings
        if s.parametrization != "vanilla":
            raise InputError("search=gradient moves the contexts themselves: use it with parametrization=vanilla")
        origin = make_origin(s, self.model)
        slope, start = LossSlope(self, (origin.shape[0], origin.shape[1])), origin.ravel()
        if s.optimizer == "sgd":
            return lambda z, step: slope(z + start, step) + DECAY * (z + start)
        return lambda z, step: slope(z + start, step)

    def _optimizer(self, dim: int) -> Optimizer:
        s, start = self.settings, np.zeros(dim)
        if s.optimizer == "sgd":
            return Sgd(start, self._rate, s.iterations, 1 if self.batches is None else self.batches.steps)
        return Adam(start, self._rate, np.inf, s.iterations)

    @property
    def _rate(self) -> float:
        s = self.settings
        return s.rate * self.model.card.token_std if s.rate_unit == "token-std" else s.rate

    @property
    def _rate_of_z(self) -> float:
        """The rate of a search whose z may be latents: these have the projection's unit, and no other."""
        s = self.settings
        if s.parametrization == "vanilla":
            return self._rate
        if s.rate_unit != "token-std":
            raise InputError(
                f"rate_unit={s.rate_unit} is for the contexts' own entries: search={s.search} steps in latents here. "
                "Leave it out, or use parametrization=vanilla"
            )
        return s.rate


def make_task(
    model: BlackBox, data: Data, forget: Sequence[str], method: str, preset: str, seed: int, given: Mapping[str, Value]
) -> Task:
    """The task these settings, classes and data make."""
    mask = forget_mask(data.class_names, forget)
    settings = resolve_settings(model, data, method, preset, seed, given, int(mask.sum()))
    split = few_shot_split(data.train, settings.shots, settings.seed, settings.skip_bad_images)
    task = Task(settings, model, data, mask, split)
    return replace(task, settings=_settings_to_choose_by(task))


def _settings_to_choose_by(task: Task) -> Settings:
    """The settings, with the choice by loss where no image of a forgotten class is there: H is then 0 for all."""
    s = task.settings
    if METHODS[s.method].untuned or s.merit != "h" or not task.none_seen:
        return s
    if s.embedding_weight == 0 or s.search == "gradient" or METHODS[s.method].trains_weights:
        raise InputError(
            f"with_images={s.with_images:g} leaves no image of a forgotten class to learn from, and {s.method} has "
            "no loss on class embeddings: use c-emb or lcs+c-emb, or a larger with_images"
        )
    return replace(s, validate="loss")


def resolve_settings(
    model: BlackBox,
    data: Data,
    method: str,
    preset: str,
    seed: int,
    given: Mapping[str, Value],
    forgotten: int = 0,
) -> Settings:
    """A run's settings on this model and data, after all defaults; forgotten is the number of classes to forget."""
    return resolve(
        given,
        method=method,
        preset=preset,
        seed=seed,
        data=data.name,
        width=model.card.width,
        classes=len(data.class_names),
        shots=largest_shots(data.train, skip_bad_images="shots" not in given and bool(given.get("skip_bad_images"))),
        forgotten=forgotten,
    )


def make_parametrization(settings: Settings, model: BlackBox) -> Parametrization:
    """The contexts' parametrization, its projection drawn from the run's seed."""
    origin = make_origin(settings, model)
    rng = stream(settings.seed, "projection")

    def projection(dim: int) -> Floats:
        return draw_projection(rng, dim, model.card, settings.projection)

    match settings.parametrization:
        case "shared":
            return SharedContexts(origin, projection(settings.shared + settings.own), settings.shared)
        case "bbt":
            return BbtContexts(origin, projection(settings.dim))
        case "independent":
            return IndependentContexts(origin, projection(settings.dim))
        case "vanilla":
            return VanillaContexts(origin)
        case "low-rank":
            dim, factors = settings.dim, stream(settings.seed, "factors")
            rank = min(LOW_RANK, dim, len(origin))
            left = factors.standard_normal((len(origin), rank)) / np.sqrt(rank)
            return LowRankContexts(origin, projection(dim), left, factors.standard_normal((rank, dim)))
        case _:
            raise InputError(f"method {settings.method!r} tunes no prompt")


def make_origin(settings: Settings, model: BlackBox) -> Floats:
    """What is added to the contexts: the mean token embedding, or the tokens of a phrase. -> (m, D)."""
    card: Card = model.card
    if settings.contexts > card.token_limit - 2:
        raise InputError(
            f"{settings.contexts} contexts are more than the model's {card.token_limit} tokens allow "
            f"({card.token_limit - 2} beside start and end)"
        )
    if settings.origin == "mean":
        return mean_origin(card, settings.contexts)
    if not isinstance(model, LooksUpTokens):
        raise InputError(f"this model does not publish the token embeddings of {settings.origin!r}; use origin=mean")
    return phrase_origin(card, settings.contexts, model.embed(settings.origin), settings.origin)
