"""Mutual information between the true class and the top label, in bits: what the labels leak above chance.

Counted from few images it is too high: even shuffled labels seem to leak. So what shuffling gives on average is taken
off (Vinh, Epps and Bailey's adjustment for chance), and the interval comes from tables drawn under known information.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from unsee.answers.intervals import NOTHING, TAIL, Estimate
from unsee.types import Doubles, Ints

DRAWS = 200  # tables per amount of information
CELLS = 5_000_000  # of all these tables together, about: fewer draws where there are many classes
# How much of what sets classes apart is left: below 1 answers are mixed with those of no class, above 1 ratios to these
# are raised to this power.
STRENGTHS = np.concatenate([np.linspace(0, 1, 9), [1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]])
FINER = 8  # steps between two of them, around each end of the interval
CHANCE = 2.0  # variances by chance that a count must be off by for half of its deviation to count
UNSEEN = 0.02  # images, of all, that count as if each class had landed on a label of its own


def mutual_information(labels: Ints, top: Ints, rng: np.random.Generator) -> Estimate:
    """Bits that the top label leaks about the true class. labels, top (n,).

    The value is what was counted minus its mean over all shufflings of the labels. The interval holds the amounts of
    information under which as much comes by chance in 2.5 to 97.5 % of samples: answers weakened towards
    independence, and strengthened. Nothing is below 0, so 0 itself is tested one-sided, at 5 %, by shuffling: where
    that cannot tell, the interval starts at 0. Few samples can have their lower end too high near that of the clearest
    sample there is: the closer to it, and the farther it is from all the information there is, the more may, up to 5 %.
    """
    if len(labels) == 0:
        return NOTHING
    (rows, labels), (columns, top) = (np.unique(x, return_inverse=True) for x in (labels, top))
    table = _tables(labels, top[None], len(rows), len(columns))[0]
    images, above = table.sum(axis=1), _above_shuffled(table.sum(axis=1))
    value, steps = float(above(table)), len(STRENGTHS) + 2 * (FINER - 1)
    draws = int(np.clip(CELLS / (steps * len(rows) * (len(rows) + len(columns))), 40, DRAWS))

    def exceeds(found: Doubles) -> Doubles:
        """Which share of samples is above what was found, half of those that are equal. (..., draws) -> (...)."""
        higher: Doubles = ((found > value + 1e-9).mean(axis=-1) + (found >= value - 1e-9).mean(axis=-1)) / 2
        return higher

    def sample(strengths: Doubles) -> tuple[Doubles, Doubles]:
        """Bits, and the share of samples above what was found, at each strength."""
        channels = _channels(table, strengths)
        size = (len(channels), draws, len(rows))
        spread = np.broadcast_to(channels[:, None], (*size, channels.shape[2]))
        drawn = rng.multinomial(np.broadcast_to(images, size), spread)
        return _information(channels * (images / images.sum())[:, None]), exceeds(above(drawn))

    bits, share = sample(STRENGTHS)
    shuffled = _tables(labels, rng.permuted(np.tile(top, (draws, 1)), axis=1), len(rows), len(columns))
    share[0] = exceeds(above(shuffled))
    clearest, most = _clearest(images), float(_information(np.diag(images)))

    def more(bits: Doubles) -> Doubles:
        """How much more often than in 2.5 % of samples the lower end may be too high: 1 to 2."""
        found: Doubles = 1 + np.minimum(1, (bits / max(clearest, 1e-9)) ** 2 + (1 - clearest / max(most, 1e-9)) ** 2)
        return found

    def sample_low(strengths: Doubles) -> tuple[Doubles, Doubles]:
        inner_bits, inner_share = sample(strengths)
        return inner_bits, inner_share / more(inner_bits)

    low = _where(sample_low, bits, share / more(bits), TAIL)
    low = 0.0 if share[0] > 2 * TAIL else max(low, float(bits[1]) / FINER)
    high = max(low, _where(sample, bits, share, 1 - TAIL))
    return Estimate(min(max(value, low), high), low, high)


def _where(sample: Callable[[Doubles], tuple[Doubles, Doubles]], bits: Doubles, share: Doubles, level: float) -> float:
    """The bits at which this share of samples is above what was found; looks closer at where that is passed."""
    i = int(np.searchsorted(np.maximum.accumulate(share), level))
    if i in (0, len(share)):
        return float(bits[min(i, len(bits) - 1)])
    inner_bits, inner_share = sample(np.linspace(STRENGTHS[i - 1], STRENGTHS[i], FINER + 1)[1:-1])
    near = np.concatenate([bits[i - 1 : i], inner_bits, bits[i : i + 1]])
    rising = np.maximum.accumulate(np.concatenate([share[i - 1 : i], inner_share, share[i : i + 1]]))
    return float(np.interp(level, rising, near))


def _clearest(images: Ints) -> float:
    """The lower end, in bits, for so many images of each class that all land on their class's own label.

    At this end such a sample comes in 5 % of cases, half of which count: errors are spread over the other labels.
    """
    classes, right = len(images), (2 * TAIL) ** (1 / images.sum())
    rows = np.full((classes, classes), (1 - right) / max(1, classes - 1))
    np.fill_diagonal(rows, right)
    return float(_information(rows * images[:, None]))


def _channels(table: Ints, strengths: Doubles) -> Doubles:
    """How each class's images land on labels: not by class at all at strength 0, as they do here at 1.

    (strengths, classes, labels). A count that is off by no more than chance makes it is taken back to what all classes
    have: otherwise information would seem spread over many labels, where it varies less from sample to sample than that
    of few. There is one more label per class, its own, hardly used at 1: it lets information grow even where all images
    land on one label.
    """
    classes, n = len(table), table.sum()
    overall = table.sum(axis=0) / n
    usual = table.sum(axis=1, keepdims=True) * overall
    off = table - usual
    counts = usual + off**3 / (off**2 + CHANCE * usual)
    found = counts / counts.sum(axis=1, keepdims=True)
    own = UNSEEN / n
    seen = np.concatenate([(1 - own) * found, own * np.eye(classes)], axis=1)
    mixed = np.concatenate([(1 - own) * overall, np.full(classes, own / classes)])
    t = strengths[:, None, None]
    ratio = np.divide(seen, mixed, out=np.zeros_like(seen), where=mixed > 0)
    channels = np.where(t <= 1, (1 - t) * mixed + t * seen, mixed * ratio ** np.maximum(t, 1))
    shares: Doubles = channels / channels.sum(axis=2, keepdims=True)
    return shares


def _information(joint: Doubles) -> Doubles:
    """Mutual information of tables of shares or counts, in bits. (..., classes, labels) -> (...)."""
    p = joint / joint.sum(axis=(-2, -1), keepdims=True)
    product = p.sum(axis=-1, keepdims=True) * p.sum(axis=-2, keepdims=True)
    some = p > 0
    terms = np.log2(np.divide(p, product, out=np.ones_like(p), where=some), out=np.zeros_like(p), where=some)
    bits: Doubles = (p * terms).sum(axis=(-2, -1))
    return bits


@dataclass(frozen=True, eq=False)
class _AboveShuffled:
    """Information of tables minus its mean over all shufflings, for so many images of each class."""

    by_count: Doubles  # of a label that so many images land on, the mean over shufflings: (n + 1,)

    def __call__(self, tables: Ints) -> Doubles:
        found: Doubles = _information(tables.astype(np.float64)) - self.by_count[tables.sum(axis=-2)].sum(axis=-1)
        return found


def _above_shuffled(images: Ints) -> _AboveShuffled:
    n, mean = int(images.sum()), np.zeros(int(images.sum()) + 1)
    for size, classes in zip(*np.unique(images, return_counts=True), strict=True):
        mean += classes * _shuffled(int(size), n)
    return _AboveShuffled(mean)


def _shuffled(a: int, n: int) -> Doubles:
    """Mean information of a cell over shufflings: `a` of n images in the class, 0 to n on the label. -> (n + 1,)."""
    b, k = np.arange(n + 1)[:, None], np.arange(1, a + 1)[None]
    possible = (k <= b) & (a - k <= n - b)
    kk, bb = (np.where(possible, x, y) for x, y in ((k, 1), (b, 1)))
    rest = np.where(possible, n - a - bb + kk, 0)
    logs = gammaln(a + 1) - gammaln(kk + 1) - gammaln(a - kk + 1) + gammaln(n - a + 1) - gammaln(bb - kk + 1)
    logs += gammaln(bb + 1) + gammaln(n - bb + 1) - gammaln(n + 1) - gammaln(rest + 1)
    terms = np.where(possible, np.exp(np.where(possible, logs, 0)) * kk / n * np.log2(n * kk / (a * bb)), 0.0)
    mean: Doubles = terms.sum(axis=1)
    return mean


def _tables(labels: Ints, tops: Ints, classes: int, names: int) -> Ints:
    """Counts by class and label of each row of top labels. labels (n,), tops (draws, n) -> (draws, classes, names)."""
    cells = (np.arange(len(tops))[:, None] * classes + labels) * names + tops
    return np.bincount(cells.ravel(), minlength=len(tops) * classes * names).reshape(len(tops), classes, names)
