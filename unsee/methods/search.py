"""The interface of all searches (ask for candidates, tell their losses), and random search."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from unsee.types import Doubles, Floats, Ints, State


class Search(Protocol):
    """Proposes candidates and learns from what the model answered to them."""

    def ask(self) -> Doubles:
        """The next candidates. -> (b, dim)."""

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        """Learns from the losses (b,) of these candidates; lower is better.

        answers (b, n, C) are the log-confidences behind them. They are None where they are too large to keep, and in
        a replay of a search that does not learn from them.
        """


@runtime_checkable
class AsksSome(Protocol):
    """A search that learns from answers, and may ask about some of the images only."""

    rows: Ints | None  # those of the images that the candidates of the last `ask` are about; None: all
    known: Floats | None  # what the model answered to them in an earlier run: they are not asked again
    losses: Doubles  # of the last candidates, after `tell`: inferred where not all images were asked


@runtime_checkable
class Stateful(Protocol):
    """A search whose state is saved: the losses it was told are not enough to restore it."""

    def state(self) -> State: ...
    def restore(self, state: State) -> None: ...


@runtime_checkable
class Stalls(Protocol):
    """A search that can tell that it makes no more progress."""

    def stalled(self) -> bool: ...


class RandomSearch:
    """As many draws from N(0, sigma0) as there are candidates; it learns nothing."""

    def __init__(self, dim: int, rng: np.random.Generator, *, population: int = 20, sigma0: float = 1.0) -> None:
        self._dim = dim
        self._rng = rng
        self._population = population
        self._sigma0 = sigma0

    def ask(self) -> Doubles:
        return self._sigma0 * self._rng.standard_normal((self._population, self._dim))

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        """Nothing to learn."""
