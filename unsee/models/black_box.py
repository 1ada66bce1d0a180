"""The border between tuning and a model: everything that crosses it is defined here.

A model publishes a `card`, is bound to images and class names, and answers contexts with
confidences. `Metered` wraps any bound model, checks its answers and keeps the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from unsee.data.images import Anything, Images
from unsee.errors import InputError, ModelError
from unsee.types import Card, Floats, Ints, Ledger

# The log of the smallest normal float32: what a confidence of exactly 0 counts as. Only providers
# that round their confidences to 0 ever reach it; log-softmax itself does not.
LOG_FLOOR = float(np.log(np.finfo(np.float32).tiny))


class Bound(Protocol):
    """A model bound to n images and C class names."""

    def confidences(self, contexts: Floats) -> Floats:
        """(b, m, D) -> (b, n, C); rows sum to 1."""


@runtime_checkable
class AnswersText(Protocol):
    """A bound model that also answers plain-text prompts."""

    def zero_shot(self, template: str) -> Floats:
        """Confidences under a plain-text prompt such as "a photo of a {}.". -> (n, C)."""


class BlackBox(Protocol):
    """A vision-language model that is used without looking inside."""

    @property
    def card(self) -> Card: ...
    def bind(self, images: Anything, class_names: Sequence[str]) -> Bound: ...


@runtime_checkable
class TellsLogs(Protocol):
    """A bound model in this process: gives the logs of its confidences, exact where confidences round to 0."""

    def log_confidences(self, contexts: Floats) -> Floats: ...


@runtime_checkable
class SendsLogs(Protocol):
    """A bound model elsewhere that sends the logs of its confidences. Asking has a price."""

    def sent_logs(self, contexts: Floats) -> Floats: ...


@runtime_checkable
class LooksUpTokens(Protocol):
    """A model that also gives the embeddings of a phrase's tokens, (k, D)."""

    def embed(self, phrase: str) -> Floats: ...


@runtime_checkable
class TakesPrompts(Protocol):
    """A model elsewhere that keeps prompts and classifies with them; card is the text of prompt.json."""

    def deploy(self, name: str, contexts: Floats, card: str) -> None: ...


@runtime_checkable
class MixesPrompts(Protocol):
    """A bound model that can put contexts before some names and leave the others under a plain-text prompt."""

    def apply_to(self, names: Sequence[str], template: str) -> Bound:
        """The same images, contexts before these names only; the others stay under the template."""


@runtime_checkable
class PlacesNames(Protocol):
    """A bound model that can also put class names in the middle or in front of the contexts."""

    def at(self, position: str) -> Bound:
        """The same images and names, with names at this position."""


@runtime_checkable
class Selects(Protocol):
    """A bound model that can be asked about some of its images."""

    def confidences(self, contexts: Floats) -> Floats: ...
    def select(self, rows: Ints) -> Selects:
        """Bound to these of its images alone."""


@runtime_checkable
class Rebinds(Selects, Protocol):
    """A bound model that keeps its class names for other images, or for some of its own."""

    images_encoded: int
    images_from_cache: int

    def other_images(self, images: Images) -> Rebinds: ...
    def select(self, rows: Ints) -> Rebinds: ...


@runtime_checkable
class TakesOtherNames(Protocol):
    """A bound model that keeps its images for other class names."""

    def other_names(self, class_names: Sequence[str]) -> Bound: ...


@dataclass(frozen=True, eq=False)
class BoundImages:
    """Images with their labels, and a model bound to them."""

    images: Images
    bound: Bound
    class_names: tuple[str, ...]

    @property
    def labels(self) -> Ints:
        return self.images.labels

    def confidences(self, contexts: Floats) -> Floats:
        """(b, m, D) -> (b, n, C); rows sum to 1."""
        return self.bound.confidences(contexts)

    def zero_shot(self, template: str) -> Floats | None:
        """Confidences under a plain-text prompt (n, C); None if the model answers none."""
        return self.bound.zero_shot(template) if isinstance(self.bound, AnswersText) else None

    def apply_to(self, names: Sequence[str] | None, template: str) -> BoundImages:
        """The same images, contexts before these names only (None: before all), the others under the template."""
        if names is None:
            return self
        if not isinstance(self.bound, MixesPrompts):
            raise InputError(
                f"contexts for {len(names)} of {len(self.class_names)} names need a model in this process; "
                "this one answers under one prompt for all names only"
            )
        return replace(self, bound=self.bound.apply_to(names, template))

    def at(self, position: str) -> BoundImages:
        """The same images, with class names at this position among the contexts."""
        if position == "end":
            return self
        if not isinstance(self.bound, PlacesNames):
            raise InputError(f"position={position} needs a model in this process; this one puts names at the end")
        return replace(self, bound=self.bound.at(position))

    def select(self, rows: Ints) -> BoundImages:
        """Some of the images; the model must be one that can be asked about some."""
        if not isinstance(self.bound, Selects):
            raise InputError("this model is bound to its images for good")
        return replace(self, images=self.images.subset(rows), bound=self.bound.select(rows))


def bind(model: BlackBox, images: Images, class_names: Sequence[str] | None = None) -> BoundImages:
    """The model bound to these images, and to their own class names unless others are given."""
    names = tuple(images.class_names if class_names is None else class_names)
    return BoundImages(images, model.bind(images, names), names)


def rebind(model: BlackBox, bound: BoundImages, class_names: Sequence[str]) -> BoundImages:
    """The same images under other class names; they are not encoded or sent again if the model can keep them."""
    if not isinstance(bound.bound, TakesOtherNames):
        return bind(model, bound.images, class_names)
    return replace(bound, bound=bound.bound.other_names(class_names), class_names=tuple(class_names))


class Metered:
    """A bound model with its answers checked and counted."""

    def __init__(self, bound: BoundImages, ledger: Ledger) -> None:
        self.bound = bound
        self.ledger = ledger
        ledger.images_encoded += getattr(bound.bound, "images_encoded", 0)
        ledger.images_from_cache += getattr(bound.bound, "images_from_cache", 0)

    def check_room(self, m: int) -> None:
        """Raises InputError for more contexts than fit, if the model says how many do."""
        room = getattr(self.bound.bound, "room", None)
        if room is not None and m > room:
            raise InputError(f"{m} contexts do not fit in front of the longest class name; at most {room} do")

    def log_confidences(self, contexts: Floats) -> Floats:
        """Logs of the confidences under contexts (b, m, D), all finite. -> (b, n, C)."""
        bound, wanted = self.bound.bound, len(contexts)
        if isinstance(bound, TellsLogs):
            logs = bound.log_confidences(contexts)
        elif isinstance(bound, SendsLogs):
            logs = np.asarray(bound.sent_logs(contexts), dtype=np.float32)
        else:
            logs = safe_log(np.asarray(bound.confidences(contexts), dtype=np.float32))
        n, c = len(self.bound.images), len(self.bound.class_names)
        if logs.shape != (wanted, n, c):
            raise ModelError(f"the model answered with shape {logs.shape}, not {(wanted, n, c)}")
        if not np.isfinite(logs).all():
            raise ModelError("the model answered with NaN or infinite confidences; nothing can be learned from them")
        self.ledger.prompts_encoded += wanted * c
        self.ledger.image_queries += wanted * n
        return logs


def safe_log(confidences: Floats) -> Floats:
    """Logs of confidences, floored at LOG_FLOOR; NaN stays NaN, to be found by the caller."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(confidences)
    return np.maximum(logs, np.float32(LOG_FLOOR), out=logs)
