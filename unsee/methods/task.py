"""Everything a run is a function of: settings, model, data, classes to forget, split.

A task is a plain record. What is made from it by name is in `build.py`; the model bound to its images in `asked.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unsee.data.class_names import forget_mask
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.data.splits import Split, few_shot_split, largest_shots
from unsee.errors import InputError
from unsee.methods.inherited import Inherited
from unsee.methods.presets import (
    FIRST_CANDIDATES,
    LEAST_CANDIDATES,
    LEAST_IMAGES,
    SAVING,
    reference_candidates,
    resolve,
)
from unsee.methods.registry import METHODS
from unsee.models.black_box import BlackBox
from unsee.settings import Settings, Value, check_settings
from unsee.types import Ints, Mask


@dataclass(frozen=True, eq=False)
class Task:
    """Everything a run is a function of, and which images that means."""

    settings: Settings
    model: BlackBox
    data: Data
    forget: Mask
    split: Split
    inherited: Inherited | None = None  # answers of an earlier run about the same images

    @property
    def forgotten(self) -> tuple[str, ...]:
        return tuple(name for name, gone in zip(self.data.class_names, self.forget, strict=True) if gone)

    @property
    def applies_to(self) -> tuple[str, ...] | None:
        """The names that contexts are put before; None for all of them."""
        return self.forgotten if self.settings.applies_to == "forgotten" else None

    @property
    def in_batches(self) -> bool:
        """Whether each step has images of its own: a batch of the shots, or views of them."""
        return bool(self.settings.batch or self.settings.views)

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
    def tuning_images(self) -> tuple[Images, Images]:
        """Images to tune on and to validate on."""
        train, valid = (self.data.train.subset(rows) for rows in self.split_rows)
        return train, valid

    @cached_property
    def loss_rows(self) -> Ints:
        """Rows of the training images that batches are made of: without a loss on forgotten ones, the kept ones."""
        rows, _ = self.split_rows
        return rows if self.settings.forget_weight else rows[~self.forget[self.data.train.labels[rows]]]

    @property
    def asks_once(self) -> bool:
        """Whether one question serves both losses and validation."""
        return self.settings.validate == "every" and not self.blind and not self.in_batches

    @property
    def asked_rows(self) -> tuple[Ints, ...]:
        """Rows of the training images that the model is asked about together: to tune on, then to validate on."""
        train, valid = self.split_rows
        if self.blind:
            return (valid,)
        if self.asks_once:
            return (np.concatenate([train, valid]),)
        return (self.loss_rows if self.in_batches else train), valid

    @property
    def images_per_candidate(self) -> int:
        """How many images a candidate's loss is computed on."""
        if not self.in_batches:
            return len(self.split_rows[0])
        return min(self.settings.batch, len(self.loss_rows)) or len(self.loss_rows)


def make_task(
    model: BlackBox, data: Data, forget: Sequence[str], method: str, preset: str, seed: int, given: Mapping[str, Value]
) -> Task:
    """The task these settings, classes and data make."""
    mask = forget_mask(data.class_names, forget)
    settings = resolve_settings(model, data, method, preset, seed, given, int(mask.sum()))
    split = few_shot_split(data.train, settings.shots, settings.seed, settings.skip_bad_images)
    task = Task(settings, model, data, mask, split)
    if settings.search == "guided" and not {"iterations", "budget", "image_queries"} & {
        k for k, v in given.items() if v
    }:
        images = len(split.train) + len(split.valid)
        limit = max(
            reference_candidates(data.name, len(data.class_names)) * images // SAVING,
            FIRST_CANDIDATES * images + LEAST_CANDIDATES * min(LEAST_IMAGES, images),  # few images save less
        )
        task = replace(task, settings=check_settings({**settings.as_dict(), "image_queries": limit}))
    return replace(task, settings=_settings_to_choose_by(task))


def check_lengths(task: Task) -> None:
    """Refuses budgets that end before a guided search has begun."""
    s, images = task.settings, sum(map(len, task.split_rows))
    if s.search != "guided" or task.inherited is not None:
        return
    for name, given, least in (
        ("budget", s.budget, FIRST_CANDIDATES),
        ("image_queries", s.image_queries, (FIRST_CANDIDATES + 1) * images),
    ):
        if given is not None and given < least:
            raise InputError(
                f"{name} must be at least {least:,} for a guided search, not {given:,}: it begins with "
                f"{FIRST_CANDIDATES} candidates on all {images} images. Use --method lcs for less"
            )


def _settings_to_choose_by(task: Task) -> Settings:
    """The settings, with the choice by loss where no image of a forgotten class is there: H is then 0 for all."""
    s = task.settings
    if METHODS[s.method].untuned or s.merit == "acc_mem" or not task.none_seen:
        return s
    if s.embedding_weight == 0 or s.search in ("gradient", "guided") or METHODS[s.method].trains_weights:
        raise InputError(
            f"with_images={s.with_images:g} leaves no image of a forgotten class to learn from, and {s.method} has "
            "no loss on class embeddings: use c-emb or lcs+c-emb, or a larger with_images"
        )
    return check_settings({**s.as_dict(), "validate": "loss"})


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
