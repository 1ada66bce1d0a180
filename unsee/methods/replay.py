"""Brings a fresh search to where a run's history ends, without asking the model.

A search is a function of its seed and of the losses (or answers) it was told, so it is told them again, and must
propose the candidates that the run had. It does if nothing has changed: the same code, pycma and NumPy, on the same
kind of processor. Each generation's record has one number to check this by: the sum of all entries of z, weighted by
cosines. It is compared to nine digits, not bit by bit. Another processor may round the last bits otherwise; candidates
that agree to nine digits are the same prompts, so a run may be moved to another machine, though from there on its bits
may differ. Where a difference grows (CMA-ES turns its axes by eigenvectors, which rounding can turn completely), the
check fails, and the run is refused rather than continued as another one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unsee.errors import RunError
from unsee.methods.search import Search
from unsee.types import Doubles, Generation

SUM_TOLERANCE = 1e-9  # of the sum, relative to that of the entries' sizes


def sum_of(z: Doubles) -> float:
    """One number that tells these candidates from others, also from the same ones in another order."""
    return float(np.sum(z.ravel() * np.cos(np.arange(z.size))))


def replay(search: Search, history: Iterable[Generation], changed: str = "") -> None:
    """Tells a fresh search the losses of a history; RunError if it proposes other candidates than the run had.

    changed: in which versions the libraries differ from those that made the history, in words.
    """
    for generation in history:
        z = search.ask()
        check_candidates(z, generation, changed)
        answers = None if generation.answers is None else generation.answers.astype(np.float32)
        search.tell(z, generation.losses, answers)


def check_candidates(z: Doubles, generation: Generation, changed: str = "") -> None:
    """Refuses a replay that proposes other candidates than the run had in this generation."""
    if generation.z_sum is None:
        raise RunError("the run cannot be continued: an earlier unsee made it, and kept too little for that")
    if abs(generation.z_sum - sum_of(z)) > SUM_TOLERANCE * float(np.abs(z).sum()):
        why = changed or "the versions are the same, so the processor or a mathematical library is another"
        raise RunError(
            f"the run cannot be continued here: its search, replayed, proposes other candidates in generation "
            f"{generation.number} than the run had ({why}). Resume it where it was made, or start a new run"
        )
