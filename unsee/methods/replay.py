"""Whether a search that is told a run's losses again proposes the candidates that the run had.

It does if nothing has changed: the same code, pycma and NumPy, on the same kind of processor. Each generation's record
has one number to check this by: the sum of all entries of z, weighted by cosines. It is compared to nine digits, not
bit by bit. Another processor may round the last bits otherwise; candidates that agree to nine digits are the same
prompts, so a run may be moved to another machine, though from there on its bits may differ. Where a difference grows
(CMA-ES turns its axes by eigenvectors, which rounding can turn completely), the check fails, and the run is refused
rather than continued as another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unsee.errors import RunError
from unsee.types import Doubles, Floats, Generation

DIGITS = 1e-9  # of the sum, relative to that of the entries' sizes
CONTEXT_DIGITS = 1e-5  # of contexts, which are kept in single precision


def sum_of(z: Doubles) -> float:
    """One number that tells these candidates from others, also from the same ones in another order."""
    return float(np.sum(z.ravel() * np.cos(np.arange(z.size))))


class ReplayCheck:
    """Refuses a replay that proposes other candidates than the run had.

    Runs from before the sums were kept are checked by the contexts of their Pareto front.
    """

    def __init__(self, contexts_of: Callable[[Doubles], Floats], changed: str) -> None:
        self._contexts_of = contexts_of
        self._changed = changed
        self._checked = 0

    def same(self, generation: Generation, z: Doubles) -> None:
        """Refuses these candidates for a generation that had others."""
        if generation.z_sum is not None:
            fits = abs(generation.z_sum - sum_of(z)) <= DIGITS * float(np.abs(z).sum())
        elif generation.entered:
            then = np.stack([candidate.contexts for candidate in generation.entered])
            now = self._contexts_of(z)[[candidate.index for candidate in generation.entered]]
            fits = bool(np.abs(now - then).max() <= CONTEXT_DIGITS * np.abs(then).max())
        else:
            return
        self._checked += 1
        if not fits:
            why = self._changed or "the versions are the same, so the processor or a mathematical library is another"
            raise RunError(
                f"the run cannot be continued here: its search, replayed, proposes other candidates in generation "
                f"{generation.number} than the run had ({why}). Resume it where it was made, or start a new run"
            )

    def enough(self, history: Sequence[Generation]) -> None:
        """Refuses an old run that kept nothing to check by, if versions differ."""
        if history and not self._checked and self._changed:
            raise RunError(
                f"the run cannot be continued with other versions than it was made with ({self._changed}): it is from "
                "an earlier unsee, which kept nothing to check them by"
            )
