"""What was found of a generation's candidates, and the best candidate so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unsee.answers.metrics import harmonic_mean
from unsee.types import Doubles, Floats, Generation, Scores, TradeOff


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Losses of a generation's candidates, and validation scores of those that were validated."""

    losses: Doubles  # (b,)
    valid: Mapping[int, Scores] = field(default_factory=dict)
    trade_offs: Mapping[int, TradeOff] = field(default_factory=dict)  # of the same candidates
    answers: Floats | None = None  # (b, n, C), log-confidences of the images asked; None where they are too large
    kept: bool = False  # whether the answers are needed to replay the search


@dataclass
class BestSoFar:
    """The best candidate: by a validation score, or by loss where there is nothing to validate on.

    The first of equals stays, as in the paper.
    """

    by: str  # "h", "h-all", "acc_mem" or "loss"
    scores: Scores | None = None
    merit: float = -np.inf
    kept: Any = None  # the candidate's contexts, or a trainer's weights

    def offer(self, evaluated: Evaluated) -> int | None:
        """Which of these candidates, if any, is the new best."""
        found = None
        numbers = range(len(evaluated.losses)) if self.by == "loss" else sorted(evaluated.valid)
        for i in numbers:
            merit = self._merit(float(evaluated.losses[i]), evaluated.valid.get(i), evaluated.trade_offs.get(i))
            if merit > self.merit:
                self.merit, self.scores, found = merit, evaluated.valid.get(i), i
        return found

    def recall(self, generation: Generation) -> None:
        """Takes what a recorded generation chose."""
        if generation.chosen is not None:
            weighed = next((c.trade_off for c in generation.entered if c.index == generation.chosen), None)
            self.merit = self._merit(float(generation.losses[generation.chosen]), generation.valid, weighed)
            self.scores = generation.valid
            self.kept = generation.best

    def _merit(self, loss: float, scores: Scores | None, weighed: TradeOff | None) -> float:
        if self.by == "loss" or scores is None:
            return -loss
        if self.by == "h-all" and weighed is not None:  # what is best by it is always on the front
            return harmonic_mean(weighed.err_for, weighed.acc_mem)
        return scores.acc_mem if self.by == "acc_mem" else scores.h
