"""Ask/tell search over blocks of z: one CMA-ES (pycma) a block, all told the same losses.

Joining the j-th samples of all blocks makes candidate j (paper sec. 3.3). The search knows nothing of
prompts; it sees block sizes. It takes its own random streams, reads and writes no file, and never
stops by itself. Its state is a function of the streams and the losses told, so a run is restored bit
for bit by telling a fresh search the recorded losses again, and nothing is ever unpickled.

Step sizes follow the library's default rule: CSA below 300 dimensions, TPA from there on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from threadpoolctl import ThreadpoolController

from unsee.errors import InputError, unknown
from unsee.records import Doubles

with warnings.catch_warnings():  # pycma warns where matplotlib, for plots of its own, is missing
    warnings.simplefilter("ignore")
    import cma
    from cma.evolution_strategy import TPA_dimension
    from cma.restricted_gaussian_sampler import GaussVkDSampler
    from cma.sigma_adaptation import CMAAdaptSigmaTPA


class Search(Protocol):
    """Proposes candidates and learns from their losses; lower is better."""

    def ask(self) -> Doubles: ...
    def tell(self, z: Doubles, losses: Doubles) -> None: ...


@runtime_checkable
class Stateful(Protocol):
    """A search that is no function of losses alone, and so must be saved."""

    def state(self) -> dict[str, Doubles]: ...
    def restore(self, state: dict[str, Doubles]) -> None: ...


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
    ) -> None:
        if kind not in KINDS:
            raise InputError(unknown("search", kind, KINDS))
        if len(streams) != len(blocks):
            raise InputError(f"{len(blocks)} blocks need as many random streams, not {len(streams)}")
        if population < 4:
            raise InputError(f"population must be at least 4, not {population}")
        if not sigma0 > 0:
            raise InputError(f"sigma0 must be above 0, not {sigma0}")
        self._cuts = np.cumsum(blocks)[:-1]
        with _one_blas_thread():
            self._parts = [
                cma.CMAEvolutionStrategy(np.zeros(size), sigma0, _options(kind, size, population, rng, rank))
                for size, rng in zip(blocks, streams, strict=True)
            ]

    def ask(self) -> Doubles:
        """The next candidates, (population, dim)."""
        with _one_blas_thread():
            return np.concatenate([np.asarray(part.ask()) for part in self._parts], axis=1)

    def tell(self, z: Doubles, losses: Doubles) -> None:
        """Learn from the losses (population,) of the candidates last asked for."""
        values = [float(loss) for loss in losses]
        with _one_blas_thread():
            for part, block in zip(self._parts, np.split(z, self._cuts, axis=1), strict=True):
                part.tell(list(block), values)

    def stalled(self) -> bool:
        """Whether the library's own stop rules would end any block's search; asked only on request."""
        return any(bool(part.stop()) for part in self._parts)


class RandomSearch:
    """As many draws from N(0, sigma0) as there are candidates; it learns nothing."""

    def __init__(self, dim: int, rng: np.random.Generator, *, population: int = 20, sigma0: float = 1.0) -> None:
        self._dim = dim
        self._rng = rng
        self._population = population
        self._sigma0 = sigma0

    def ask(self) -> Doubles:
        return self._sigma0 * self._rng.standard_normal((self._population, self._dim))

    def tell(self, z: Doubles, losses: Doubles) -> None:
        """Nothing to learn."""


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
    if size >= TPA_dimension:
        options["AdaptSigma"] = QuietTPA
    return KINDS[kind](options, size, randn, rank)


class QuietTPA(CMAAdaptSigmaTPA):  # type: ignore[misc]
    """The library's step-size rule without its self-check, which draws from NumPy's global generator."""

    def check_consistency(self, es: Any) -> None:
        pass


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


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _one_blas_thread() -> Any:
    """Small matrices: with all threads the searches of a CIFAR-100 run are ten times slower."""
    return _controller().limit(limits=1, user_api="blas")
