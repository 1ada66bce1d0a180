"""The border between tuning and a model: everything that crosses it is defined here.

A model publishes a `card`, is bound to images and class names, and answers contexts with
confidences. `Metered` wraps any bound model, checks its answers and keeps the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from unsee.errors import InputError, ModelError
from unsee.images import Anything
from unsee.records import Card, Floats, Ledger
from unsee.scores import safe_log


class Bound(Protocol):
    """A model bound to n images and C class names."""

    def confidences(self, contexts: Floats) -> Floats:
        """(b, m, D) -> (b, n, C); rows sum to 1."""

    def zero_shot(self, template: str) -> Floats:
        """Confidences under a plain-text prompt such as "a photo of a {}.". -> (n, C)."""


class BlackBox(Protocol):
    """A vision-language model whose inside is not seen."""

    @property
    def card(self) -> Card: ...
    def bind(self, images: Anything, class_names: Sequence[str]) -> Bound: ...


@runtime_checkable
class TellsLogs(Protocol):
    """A bound model that also gives the logs of its confidences, exact where confidences round to 0."""

    def log_confidences(self, contexts: Floats) -> Floats: ...


@runtime_checkable
class LooksUpTokens(Protocol):
    """A model that tells the embeddings of a phrase's tokens, (k, D)."""

    def embed(self, phrase: str) -> Floats: ...


class Metered:
    """A bound model with its answers checked and counted."""

    def __init__(self, bound: Bound, images: int, classes: int, ledger: Ledger) -> None:
        self._bound = bound
        self._shape = (images, classes)
        self.ledger = ledger
        ledger.images_encoded += getattr(bound, "images_encoded", 0)
        ledger.images_from_cache += getattr(bound, "images_from_cache", 0)

    def check_room(self, m: int) -> None:
        """Refuses more contexts than fit, where the model says how many do."""
        room = getattr(self._bound, "room", None)
        if room is not None and m > room:
            raise InputError(f"{m} contexts do not fit in front of the longest class name; at most {room} do")

    def log_confidences(self, contexts: Floats) -> Floats:
        """Logs of the confidences, all finite. (b, m, D) -> (b, n, C)."""
        bound = self._bound
        logs = bound.log_confidences(contexts) if isinstance(bound, TellsLogs) else self._logs(bound, contexts)
        n, c = self._shape
        if logs.shape != (len(contexts), n, c):
            raise ModelError(f"the model answered with shape {logs.shape}, not {(len(contexts), n, c)}")
        if not np.isfinite(logs).all():
            raise ModelError("the model answered with NaN or infinite confidences; nothing can be learned from them")
        self.ledger.prompts_encoded += len(contexts) * c
        self.ledger.image_queries += len(contexts) * n
        return logs

    def zero_shot(self, template: str) -> Floats:
        """Confidences under a plain-text prompt, (n, C); not counted as a candidate."""
        return self._bound.zero_shot(template)

    @staticmethod
    def _logs(bound: Bound, contexts: Floats) -> Floats:
        return safe_log(np.asarray(bound.confidences(contexts), dtype=np.float32))
