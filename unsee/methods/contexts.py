"""From latents z to contexts: the parametrizations of paper sec. 3.1 (LCS, BBT, w/o LCS, the entries themselves).

Each takes z (b, dim) and returns contexts (b, m, D), and declares the blocks of z that are searched
separately. All add an origin (m, D) to the contexts and are linear in z.

| name        | z                             | blocks              |
|-------------|-------------------------------|---------------------|
| vanilla     | the m x D context entries     | one of m D          |
| bbt         | m latents of `dim`            | one of m dim        |
| independent | m latents of `dim`            | m of dim            |
| shared      | one shared, m own             | one of shared, m of own |
| low-rank    | a shared latent, and factors of a low-rank matrix of latents (ZIP) | one |

The last is not in the paper, and is not linear in z.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsee.errors import InputError, unknown
from unsee.models.black_box import BlackBox, LooksUpTokens
from unsee.settings import Settings
from unsee.types import Card, Doubles, Floats

REPEATED = "..."  # at the end of an origin


class Parametrization(Protocol):
    """z (b, dim) -> contexts (b, m, D)."""

    @property
    def blocks(self) -> tuple[int, ...]: ...
    def contexts(self, z: Doubles) -> Floats: ...


@dataclass(frozen=True, eq=False)
class VanillaContexts:
    """The context entries themselves: z is (b, m * D)."""

    origin: Floats  # (m, D)

    @property
    def blocks(self) -> tuple[int, ...]:
        return (self.origin.size,)

    def contexts(self, z: Doubles) -> Floats:
        _check(z, self.blocks)
        return (z.reshape(-1, *self.origin.shape) + self.origin).astype(np.float32)


@dataclass(frozen=True, eq=False)
class BbtContexts:
    """Black-Box Tuning: m latents in one search, each through the same projection. z is (b, m * d)."""

    origin: Floats  # (m, D)
    projection: Floats  # (d, D)

    @property
    def blocks(self) -> tuple[int, ...]:
        return (len(self.origin) * len(self.projection),)

    def contexts(self, z: Doubles) -> Floats:
        _check(z, self.blocks)
        return _project(z.reshape(len(z), len(self.origin), -1), self.projection, self.origin)


@dataclass(frozen=True, eq=False)
class IndependentContexts:
    """The paper's "w/o LCS": as BBT, but each latent has its own search. z is (b, m * d)."""

    origin: Floats  # (m, D)
    projection: Floats  # (d, D)

    @property
    def blocks(self) -> tuple[int, ...]:
        return (len(self.projection),) * len(self.origin)

    def contexts(self, z: Doubles) -> Floats:
        _check(z, self.blocks)
        return _project(z.reshape(len(z), len(self.origin), -1), self.projection, self.origin)


@dataclass(frozen=True, eq=False)
class SharedContexts:
    """Latent Context Sharing: every context is [shared | own], projected once (sec. 3.1 ii).

    z is (b, shared + m * own).
    """

    origin: Floats  # (m, D)
    projection: Floats  # (shared + own, D)
    shared: int

    @property
    def blocks(self) -> tuple[int, ...]:
        own = len(self.projection) - self.shared
        return tuple(size for size in (self.shared, *(own,) * len(self.origin)) if size)

    def contexts(self, z: Doubles) -> Floats:
        _check(z, self.blocks)
        b, m = len(z), len(self.origin)
        shared = np.broadcast_to(z[:, None, : self.shared], (b, m, self.shared))
        own = z[:, self.shared :].reshape(b, m, -1)
        return _project(np.concatenate([shared, own], axis=2), self.projection, self.origin)


@dataclass(frozen=True, eq=False)
class LowRankContexts:
    """After ZIP: latents (m, d) are a shared row plus U diag(s) V of rank r; factors start from fixed random ones.

    z is (b, d + r + r (m + d)): the shared row, s, then what U and V differ by.
    """

    origin: Floats  # (m, D)
    projection: Floats  # (d, D)
    left: Doubles  # (m, r)
    right: Doubles  # (r, d)

    @property
    def blocks(self) -> tuple[int, ...]:
        return (len(self.projection) + self.left.shape[1] + self.left.size + self.right.size,)

    def contexts(self, z: Doubles) -> Floats:
        _check(z, self.blocks)
        d, r = len(self.projection), self.left.shape[1]
        shared, scale, left, right = np.split(z, np.cumsum([d, r, self.left.size]), axis=1)
        left = left.reshape(-1, *self.left.shape) + self.left
        right = right.reshape(-1, *self.right.shape) + self.right
        return _project(shared[:, None] + (left * scale[:, None]) @ right, self.projection, self.origin)


def draw_projection(rng: np.random.Generator, dim: int, card: Card, kind: str = "token-std") -> Floats:
    """A random projection (dim, D); its rows are the directions in which latents move a context."""
    if kind not in SCALES:
        raise InputError(unknown("projection", kind, SCALES))
    scale = SCALES[kind](card, dim)
    return (rng.standard_normal((dim, card.width)) * scale).astype(np.float32)


SCALES: dict[str, Callable[[Card, int], float]] = {
    "token-std": lambda card, dim: card.token_std,  # the paper's: N(0, s)
    "unit": lambda card, dim: 1.0,  # its ablation: N(0, 1)
    "normalized": lambda card, dim: card.token_std / float(np.sqrt(dim)),  # contexts as spread as tokens are
}


def make_origin(settings: Settings, model: BlackBox) -> Floats:
    """What is added to the contexts: the mean token embedding, or the tokens of a phrase. -> (m, D)."""
    card = model.card
    if settings.contexts > card.token_limit - 2:
        raise InputError(
            f"{settings.contexts} contexts are more than the model's {card.token_limit} tokens allow "
            f"({card.token_limit - 2} beside start and end)"
        )
    if settings.origin == "mean":
        return mean_origin(card, settings.contexts)
    if not isinstance(model, LooksUpTokens):
        raise InputError(f"this model does not publish the token embeddings of {settings.origin!r}; use origin=mean")
    return phrase_origin(card, settings.contexts, model.embed(settings.origin.removesuffix(REPEATED)), settings.origin)


def mean_origin(card: Card, m: int) -> Floats:
    """p0 of the paper: the mean token embedding under every context. -> (m, D)."""
    return np.tile(card.token_mean.astype(np.float32), (m, 1))


def phrase_origin(card: Card, m: int, tokens: Floats, phrase: str) -> Floats:
    """The tokens of a phrase, nearest to the class name; mean embeddings before it where m is longer.

    A phrase that ends in three dots is repeated from the first context to the last.
    """
    if phrase.endswith(REPEATED):
        return np.resize(tokens.astype(np.float32), (m, tokens.shape[1]))
    if len(tokens) > m:
        raise InputError(f"the origin {phrase!r} is {len(tokens)} tokens long, more than the {m} contexts")
    return np.concatenate([mean_origin(card, m - len(tokens)), tokens.astype(np.float32)])


def _project(latents: Doubles, projection: Floats, origin: Floats) -> Floats:
    """(b, m, d) -> (b, m, D); in double precision, so that the result does not depend on the batch."""
    return (latents @ projection.astype(np.float64) + origin).astype(np.float32)


def _check(z: Doubles, blocks: tuple[int, ...]) -> None:
    if z.ndim != 2 or z.shape[1] != sum(blocks):
        raise InputError(f"z must be (b, {sum(blocks)}), not {z.shape}")
