"""Records that pass between the stages: a model's card, scores, cost, one generation of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
HalfFloats = NDArray[np.float16]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Say = Callable[[str], None]  # takes lines for a person to read while work goes on
State = dict[str, Doubles]  # named arrays that a checkpoint keeps


@dataclass(frozen=True)
class Card:
    """What the provider of a model publishes: all that tuning may know of it beforehand."""

    name: str
    fingerprint: str
    width: int  # D, of one token embedding
    token_mean: Floats = field(repr=False)  # (D,)
    token_std: float  # over every entry of the token table
    token_limit: int  # positions, start and end tokens included
    address: str | None = None  # of the service that answers for the model

    @property
    def summary(self) -> str:
        """The card in a few words."""
        return f"{self.name!r}, width {self.width}, {self.token_limit} tokens, {self.fingerprint[:12]}"


@dataclass(frozen=True)
class Scores:
    """H, Err_for and Acc_mem as fractions in [0, 1]."""

    h: float
    err_for: float
    acc_mem: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass
class Ledger:
    """What a run has cost the provider of the model so far."""

    candidates: int = 0  # prompts tried on all images
    generations: int = 0
    prompts_encoded: int = 0  # texts through the text tower: candidates x classes
    image_queries: int = 0  # one image scored under one prompt
    images_encoded: int = 0  # forward passes of the image tower
    images_from_cache: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def reset(self, facts: Mapping[str, int]) -> None:
        """Counts from these figures on: those of an interrupted run."""
        for name, number in (asdict(Ledger()) | dict(facts)).items():
            setattr(self, name, number)


@dataclass(frozen=True)
class TradeOff:
    """What a candidate forgets and keeps, on the images to tune and to validate on together.

    These are twice as many as the images to validate on alone, and tell more reliably what is kept on test images.
    """

    err_for: float
    acc_mem: float
    entropy: float  # of answers to forgotten images, 1 = uniform


@dataclass(frozen=True, eq=False)
class Candidate:
    """A prompt that was tried and validated, for the Pareto front."""

    generation: int
    index: int  # in its generation
    loss: float
    valid: Scores  # on the validation images alone
    trade_off: TradeOff
    contexts: Floats  # (m, D)


@dataclass(frozen=True)
class Generation:
    """One step of a run: enough to replay the search without asking the model again."""

    number: int  # from 1
    losses: Doubles  # (b,)
    candidates: int  # so far
    chosen: int | None = None  # index of the candidate that became the best so far
    valid: Scores | None = None  # best validation scores so far
    entered: tuple[Candidate, ...] = field(default=(), compare=False)  # the Pareto front, in this generation
    ledger: dict[str, int] = field(default_factory=dict)
    z_sum: float | None = None  # one number by which a replay checks its candidates; None for a trainer
    best: Floats | None = field(default=None, compare=False)  # (m, D), contexts of the chosen candidate, if any
    answers: NDArray[np.float16] | None = field(
        default=None, compare=False
    )  # (b, n, C), if the search learns from them
    warnings: tuple[str, ...] = ()  # said during this generation
    seconds: float = field(default=0.0, compare=False)  # of the run so far, earlier parts included
