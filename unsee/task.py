"""Everything a run is a function of: settings, model, data, classes to forget, split.

A task makes the parts of a run by name, and brings them back to where a recorded run stood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unsee import provenance
from unsee.contexts import (
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
from unsee.descent import ForwardDifferences, GradientDescent, Slope, TwoSided
from unsee.errors import InputError, RunError
from unsee.evaluation import Made
from unsee.models import BlackBox
from unsee.models.border import LooksUpTokens
from unsee.models.whitebox import LossSlope, open_box
from unsee.records import Card, Data, Floats, Ledger, Mask, Scores, forget_mask
from unsee.runs import Run
from unsee.search import BlockSearch, RandomSearch, Search
from unsee.seeds import stream
from unsee.settings import Settings, resolve
from unsee.split import Split, few_shot_split, largest_shots

LOW_RANK = 2  # of ZIP's matrix of latents


@dataclass(frozen=True, eq=False)
class Task:
    """Everything a run is a function of."""

    settings: Settings
    model: BlackBox
    data: Data
    forget: Mask
    split: Split

    @cached_property
    def parametrization(self) -> Parametrization:
        return make_parametrization(self.settings, self.model)

    def search(self) -> Search:
        """A fresh search over the blocks of the parametrization."""
        s, blocks = self.settings, self.parametrization.blocks
        dim, streams = sum(blocks), [stream(s.seed, "search", i) for i in range(len(blocks))]
        match s.search:
            case "random":
                return RandomSearch(dim, streams[0], population=s.population, sigma0=s.sigma0)
            case "differences":
                rate = s.rate * self.model.card.token_std
                return ForwardDifferences(dim, streams[0], population=s.population, rate=rate, steps=s.iterations)
            case "two-sided":
                return TwoSided(dim, streams[0], population=s.population, rate=s.rate, steps=s.iterations)
            case "gradient":
                rate = s.rate * self.model.card.token_std
                return GradientDescent(dim, self._slope(), rate=rate, steps=s.iterations)
            case kind:
                return BlockSearch(blocks, streams, kind=kind, population=s.population, sigma0=s.sigma0, rank=s.rank)

    def _slope(self) -> Slope:
        """The true gradient with respect to z, of the contexts' entries themselves."""
        s = self.settings
        if s.parametrization != "vanilla":
            raise InputError("search=gradient moves the contexts themselves: use it with parametrization=vanilla")
        origin = make_origin(s, self.model)
        slope = LossSlope(
            open_box(self.model, s.method, "gradients"),
            self.data.train.subset(self.split.train),
            self.forget,
            (s.memorize_weight, s.forget_weight),
            (origin.shape[0], origin.shape[1]),
        )
        return lambda z: slope(z + origin.ravel())

    @property
    def forgotten(self) -> tuple[str, ...]:
        return tuple(name for name, gone in zip(self.data.class_names, self.forget, strict=True) if gone)

    def made(self, valid: Scores, ledger: Ledger) -> Made:
        """What a result of this task is of."""
        s = self.settings
        names = self.data.class_names
        return Made(
            s.method, s.preset, s.seed, self.model.card.name, self.data.name, self.forgotten, names, valid, ledger
        )

    def config(self) -> dict[str, Any]:
        """What `config.json` holds."""
        split = {"train": self.split.train.tolist(), "valid": self.split.valid.tolist()}
        used = self.data.train.subset(np.concatenate([self.split.train, self.split.valid]))
        return {
            "unsee": provenance.version(),
            "settings": self.settings.as_dict(),
            "forget": list(self.forgotten),
            "class_names": list(self.data.class_names),
            "model": {"name": self.model.card.name, "fingerprint": self.model.card.fingerprint},
            "data": {
                "name": self.data.name,
                "fingerprint": self.data.fingerprint,
                "split_fingerprint": used.content_digest(),
            },
            "split": split,
            "skipped_images": [error.name for error in self.split.skipped],
            "versions": provenance.versions(),
        }

    def check_same(self, run: Run) -> None:
        """Refuses to go on with another model, other data or other settings than the run began with."""
        now, then = self.config(), run.config
        for part, key in (("model", "fingerprint"), ("data", "fingerprint"), ("data", "split_fingerprint")):
            try:
                known = then[part][key]
            except (KeyError, TypeError):
                raise RunError(f"{run.folder}/config.json: {part}.{key} is missing") from None
            if now[part][key] != known:
                raise RunError(
                    f"{run.folder} was begun with another {part}: {then[part].get('name')!r} was {known[:12]}, "
                    f"now it is {now[part][key][:12]}"
                )


def make_task(
    model: BlackBox,
    data: Data,
    forget: Sequence[str],
    method: str,
    preset: str,
    seed: int,
    given: Mapping[str, Any],
) -> Task:
    """The task these settings, classes and data make."""
    settings = settle(data, method, preset, seed, given)
    mask = forget_mask(data.class_names, forget)
    split = few_shot_split(data.train, settings.shots, settings.seed, settings.skip_bad_images)
    return Task(settings, model, data, mask, split)


def settle(data: Data, method: str, preset: str, seed: int, given: Mapping[str, Any]) -> Settings:
    """A run's settings on this data, after all defaults."""
    return resolve(
        given,
        method=method,
        preset=preset,
        seed=seed,
        data=data.name,
        classes=len(data.class_names),
        shots=largest_shots(data.train),
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
        case "none":
            raise InputError(f"method {settings.method!r} tunes no prompt")
        case other:
            raise InputError(f"unknown parametrization {other!r}; it is shared, bbt, independent, vanilla or low-rank")


def make_origin(settings: Settings, model: BlackBox) -> Floats:
    """What lies under the contexts: the mean token embedding, or the tokens of a phrase. -> (m, D)."""
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
