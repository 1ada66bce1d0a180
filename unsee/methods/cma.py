"""CMA-ES over blocks of z: one search (pycma) per block, all told the same losses.

Joining the j-th samples of all blocks makes candidate j (paper sec. 3.3). The search knows nothing of
prompts; it sees block sizes. It takes its own random streams, reads and writes no file, and never
stops by itself. Its state is a function of the streams and the losses told, so a run is restored bit
for bit by telling a fresh search the recorded losses again, and nothing is ever unpickled.

Step sizes follow one of three rules (`STEP_SIZES`). The authors' code uses the defaults of pycma 3.3 or a little later.
pycma 4.5 has another rule and other constants, so those of 3.3 are written out here. VkD-CMA-ES has a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cma
import numpy as np
from cma.evolution_strategy import TPA_dimension
from cma.restricted_gaussian_sampler import GaussVkDSampler
from cma.sigma_adaptation import CMAAdaptSigmaCSA, CMAAdaptSigmaTPA
from cma.utilities.math import MathHelperFunctions

from unsee.errors import InputError, unknown
from unsee.methods.blas import one_blas_thread
from unsee.types import Doubles, Floats


class BlockSearch:
    """One CMA-ES for each block, all told the same losses. ask() -> (population, sum of blocks)."""

    def __init__(
        self,
        blocks: Sequence[int],
        streams: Sequence[np.random.Generator],
        *,
        kind: str = "full",
        population: int = 20,
        sigma0: float = 1.0,
        rank: int | None = None,
        step_size: str = "library",
    ) -> None:
        if kind not in KINDS:
            raise InputError(unknown("search", kind, KINDS))
        if step_size not in STEP_SIZES:
            raise InputError(unknown("step_size", step_size, STEP_SIZES))
        if len(streams) != len(blocks):
            raise InputError(f"{len(blocks)} blocks need as many random streams, not {len(streams)}")
        if population < 4:
            raise InputError(f"population must be at least 4, not {population}")
        if not sigma0 > 0:
            raise InputError(f"sigma0 must be above 0, not {sigma0}")
        self._cuts = np.cumsum(blocks)[:-1]
        with one_blas_thread():
            self._parts = [
                cma.CMAEvolutionStrategy(
                    np.zeros(size), sigma0, STEP_SIZES[step_size](size) | _options(kind, size, population, rng, rank)
                )
                for size, rng in zip(blocks, streams, strict=True)
            ]

    def ask(self) -> Doubles:
        """The next candidates, (population, dim)."""
        with one_blas_thread():
            return np.concatenate([np.asarray(part.ask()) for part in self._parts], axis=1)

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        """Learn from the losses (population,) of the candidates last asked for."""
        values = [float(loss) for loss in losses]
        with one_blas_thread():
            for part, block in zip(self._parts, np.split(z, self._cuts, axis=1), strict=True):
                part.tell(list(block), values)

    def stalled(self) -> bool:
        """Whether the library's own stop rules would end any block's search; asked only on request."""
        return any(bool(part.stop()) for part in self._parts)


def _options(kind: str, size: int, population: int, rng: np.random.Generator, rank: int | None) -> dict[str, Any]:
    def randn(*shape: int) -> Doubles:
        return rng.standard_normal(shape)

    options: dict[str, Any] = {
        "popsize": population,
        "randn": randn,
        "seed": np.nan,  # any number here would reseed NumPy's global generator
        "verbose": -10,
        "verb_log": 0,
        "signals_filename": "",  # else a file in the working directory may change settings
    }
    return KINDS[kind](options, size, randn, rank)


TPA_FROM = 300  # dimensions, in pycma 3.3


class QuietTPA(CMAAdaptSigmaTPA):  # type: ignore[misc]
    """Two-point adaptation without its self-check, which draws from NumPy's global generator."""

    def check_consistency(self, es: Any) -> None:
        pass


class PaperTPA(QuietTPA):
    """Two-point adaptation, damped as in pycma 3.3: 0.7 + ln N, where later releases have 0.7 + 2 ln N or more."""

    def initialize_settings(self, es: Any = None, reset: bool = False) -> None:
        super().initialize_settings(es, reset)
        self.sp.damp = 0.7 + np.log(self.dimension)


class PaperCSA(CMAAdaptSigmaCSA):  # type: ignore[misc]
    """Cumulative step-size adaptation with the constants of pycma 3.3.

    At a population of 20, pycma 4.5 adapts more slowly in blocks of 6 numbers or fewer (its `cs` is at most 1/2) and in
    blocks of 8 to 39 (its `damps` is up to 23 % larger). It also has a slightly different expected length of the path.
    """

    def initialize_settings(self, es: Any, reset: bool = False) -> None:
        super().initialize_settings(es, reset)
        n, mueff, mirrored = es.N, es.sp.weights.mueff, es.sp.lam_mirr / (0.159 * es.sp.popsize)
        few_dimensions = max(0.0, ((mueff - 1) / (n + 1)) ** 0.5 - 1)
        self.cs = (mueff + 2) / (n + mueff + 3)
        self.damps = 0.5 + 0.5 * min(1.0, (mirrored - 1) ** 2) + 2 * few_dimensions + self.cs

    def update2(self, es: Any, **_: Any) -> float:
        """The factor by which sigma changes."""
        self._update_ps(es)
        longer = np.sqrt(np.sum(np.square(self.ps))) / _expected_length(es.N) - 1
        factor = float(np.exp(np.clip(longer * (self.cs / self.damps), -1, 1)))
        self.delta *= factor
        return factor


def _expected_length(n: int) -> float:
    """The mean length of a standard normal vector of n numbers: exact up to 6, beyond that the approximation of 3.3."""
    exact: float = MathHelperFunctions.chiN(n)
    return exact if n <= 6 else float(n**0.5 * (1 - 1 / (4 * n) + 1 / (26 * n**2)))


def _csa(size: int) -> dict[str, Any]:
    return {"AdaptSigma": PaperCSA}


def _tpa(size: int) -> dict[str, Any]:
    return {"AdaptSigma": PaperTPA if size >= TPA_FROM else PaperCSA}


def _library(size: int) -> dict[str, Any]:
    return {"AdaptSigma": QuietTPA} if size >= TPA_dimension else {}


# pycma 3.3 has "tpa" for separable search and "csa" for all others. "library" is the default of the installed release.
STEP_SIZES: dict[str, Callable[[int], dict[str, Any]]] = {"csa": _csa, "tpa": _tpa, "library": _library}


Randn = Callable[..., Doubles]


def _full(options: dict[str, Any], size: int, randn: Randn, rank: int | None) -> dict[str, Any]:
    return options


def _separable(options: dict[str, Any], size: int, randn: Randn, rank: int | None) -> dict[str, Any]:
    return options | {"CMA_diagonal": True}


def _vkd(options: dict[str, Any], size: int, randn: Randn, rank: int | None) -> dict[str, Any]:
    """Covariance D (I + V V^T) D with V of fixed rank k; a block of k or fewer numbers has rank size - 1."""
    k = min(30 if rank is None else rank, size - 1)
    extended: dict[str, Any] = GaussVkDSampler.extend_cma_options(dict(options))
    return extended | {"CMA_sampler_options": {"randn": randn, "kadapt": False, "k_init": k}}


KINDS: dict[str, Callable[[dict[str, Any], int, Randn, int | None], dict[str, Any]]] = {
    "full": _full,
    "separable": _separable,
    "vkd": _vkd,
}
