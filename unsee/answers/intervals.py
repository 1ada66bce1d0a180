"""95 % intervals, one method per kind of measure: pure functions. `benchmarks/interval_coverage.py` checks them.

An interval is about the images that these were drawn from: of 100 audits on other images of the same kind, about 95
intervals hold the true value.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr
from scipy.stats import t as student

from unsee.types import Doubles, Ints, Mask

Z = 1.959963984540054  # 97.5 % of a standard normal distribution
ONE_SIDED = 1.6448536269514722  # 95 %: where one end alone can miss
TAIL = 0.025
STEPS = 25  # of a search by halves: to seven digits
FEW = 0.5  # pairs of images in the wrong order, about, at which an AUROC's own variance counts as much as the model's
BEND = (
    0.8  # skewness times reach, at most: at 1 Hall's transformation is vertical, and a long end would be far too long
)
LEARNED = 30.0  # squared standard errors above chance, about, at which two halves begin to have less in common
TOGETHER = 0.91  # of the variance of trials: its parts do not quite always go together
LEAN = (0.4, 0.5)  # at chance: logarithms of how much smaller it is at the lower end, and larger at the upper one
CLEAR = 10.0  # squared standard errors above chance at which half of these are left


@dataclass(frozen=True)
class Estimate:
    """A measure with its 95 % interval; NaN where there are no images."""

    value: float
    low: float
    high: float


NOTHING = Estimate(math.nan, math.nan, math.nan)


def wilson(share: float, images: float, z: float = Z) -> Estimate:
    """A share of images: Wilson's score interval.

    It is never without width, not even for 0 of 20, and covers 95 % on average over all true shares. `images` may be an
    effective number: of how many independent images the share is as certain as it is.
    """
    if not images:
        return NOTHING
    weight = z * z / images
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / images + weight / (4 * images)) / (1 + weight)
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)))


def share_of(right: Mask) -> Estimate:
    """The share of images for which something holds. right (n,)."""
    return wilson(float(right.mean()), len(right)) if len(right) else NOTHING


def paired_difference(before: Mask, after: Mask) -> Estimate:
    """The share after minus the share before, of the same images: Agresti and Min's interval.

    Only images whose answer changed matter; half an image more of each kind gives it a width in all cases.
    """
    n = len(before)
    if n == 0:
        return NOTHING
    gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
    up, down = (gained + 0.5) / (n + 2), (lost + 0.5) / (n + 2)
    value, half = (gained - lost) / n, Z * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return Estimate(value, max(-1.0, min(value, up - down - half)), min(1.0, max(value, up - down + half)))


def mean_of(values: Doubles, least: float, most: float) -> Estimate:
    """The mean of values between two bounds: Student's t, corrected for skewness by Hall's transformation.

    Entropies pile up at an end, where t alone, BCa and percentiles cover 90 to 93 % with 20 images. The skewness of few
    values says little if it is large, so it counts up to a limit. Where all values are equal, images with another one
    could have been missed: as large a share as no sign of them allows.
    """
    n = len(values)
    if n == 0:
        return NOTHING
    mean, spread = float(values.mean()), float(values.std(ddof=1)) if n > 1 else 0.0
    if spread <= 1e-9 * (most - least):
        missed = wilson(0.0, n).high
        return Estimate(mean, mean - missed * (mean - least), mean + missed * (most - mean))
    reach = float(student.ppf(1 - TAIL, n - 1)) / math.sqrt(n)
    skew = float(np.clip(((values - mean) ** 3).mean() / values.std() ** 3, -BEND / reach, BEND / reach))

    def unskewed(y: float) -> float:
        return 3 / skew * (math.cbrt(1 + skew * (y - skew / (6 * n))) - 1) if abs(skew) > 1e-6 else y

    low, high = mean - spread * unskewed(reach), mean - spread * unskewed(-reach)
    return Estimate(mean, max(least, min(mean, low)), min(most, max(mean, high)))


def auroc_of(values: Doubles, positive: Mask, strata: Ints | None = None, crossed: bool = False) -> Estimate:
    """The chance that a positive image has the higher value, ties counted half: 0.5 by chance.

    DeLong's variance as an effective number of images in Wilson's interval, which stays within 0 and 1 and has a width
    where all pairs are in order. There DeLong's variance is 0: with few pairs out of order, Hanley and McNeil's
    takes its place. With strata only images of the same one are compared. values, positive, strata (n,).

    Even with all pairs in order the lower end is below 1: no sample can put it above a truth beyond that. So there the
    upper end may be too low in 5 % of samples, not 2.5; near 0 it is the other way round.

    crossed: values of each of two strata come from a classifier that learned from the other. Near chance both are right
    by the same coincidence, so that two halves are worth one; the surer it is that they learned something, the less
    they have in common.
    """
    groups = [np.ones(len(values), dtype=np.bool_)] if strata is None else [strata == s for s in np.unique(strata)]
    found = [_delong(values[g & positive], values[g & ~positive]) for g in groups]
    parts = [part for part in found if part is not None]
    total = sum(part.positives for part in parts)
    if not total:
        return NOTHING
    weights = [part.positives / total for part in parts]
    value = sum(w * part.value for w, part in zip(weights, parts, strict=True))
    variance = sum(w * w * part.variance for w, part in zip(weights, parts, strict=True))
    spread = value * (1 - value)
    effective = _usual_size(value, weights, parts)
    if variance > 0 and spread > 0:
        out_of_order = spread * sum(min(part.positives, part.negatives) for part in parts)
        own = out_of_order / (out_of_order + FEW)
        effective = math.exp(own * math.log(spread / variance) + (1 - own) * math.log(effective))
    in_order = _usual_size(1.0, weights, parts)
    if crossed:
        chance = _usual_size(0.5, weights, parts)
        effective /= _in_common(value, chance)
        in_order /= _in_common(1.0, chance)
    return _one_end_alone(value, effective, in_order)


def _in_common(value: float, chance: float) -> float:
    """How many crossed halves are worth one: two where this AUROC could be chance, with so many effective images."""
    return 1 + 1 / math.sqrt(1 + (value - 0.5) ** 2 * 4 * chance / LEARNED)


def _one_end_alone(value: float, images: float, in_order: float) -> Estimate:
    """Wilson's interval; beyond the end that it has with all pairs in order, the other end is tested at 5 %."""
    both, alone = wilson(value, images), wilson(value, images, ONE_SIDED)
    last = wilson(1.0, in_order).low
    low, high = max(both.low, 1 - last), min(both.high, last)
    return Estimate(value, min(low, alone.low), max(high, alone.high))


@dataclass(frozen=True)
class _Apart:
    value: float
    variance: float
    positives: int
    negatives: int


def _delong(up: Doubles, down: Doubles) -> _Apart | None:
    m, n = len(up), len(down)
    if m == 0 or n == 0:
        return None
    above, below = _places(up, down), 1 - _places(down, up)
    variance = sum(float(x.var(ddof=1)) / len(x) if len(x) > 1 else 0.25 for x in (above, below))
    return _Apart(float(above.mean()), variance, m, n)


def _places(values: Doubles, among: Doubles) -> Doubles:
    """Which share of the others each value is above, ties counted half."""
    ordered = np.sort(among)
    found: Doubles = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2
    return found / len(among)


def _usual_size(value: float, weights: list[float], parts: list[_Apart]) -> float:
    """The effective number of images by Hanley and McNeil: of this AUROC between two exponential distributions."""
    alike = (1 - value) / (2 - value) + value / (1 + value)
    sizes = [(part.positives, part.negatives) for part in parts]
    return 1 / sum(w * w * (1 + ((m + n) / 2 - 1) * alike) / (m * n) for w, (m, n) in zip(weights, sizes, strict=True))


def largest_share(top: Ints, classes: int) -> Estimate:
    """The share of images that land on the class most of them land on. top (n,).

    The largest of many counts is too high where shares are alike and images few. So value and ends are the largest
    shares under which as large a count comes by chance in 50, 2.5 and 97.5 % of samples; the other shares stay as they
    are as far as they can. Where few or no samples would have their upper end too low, the lower end may be too high in
    as many more, up to 5 %: with few images near 1/C. Nothing is below 1/C, so that end itself is tested one-sided.
    """
    n = len(top)
    if n == 0:
        return NOTHING
    counts = np.bincount(top, minlength=classes)
    shares, most = (counts + 1 / classes) / (n + 1), int(counts.max())

    def above(largest: float) -> float:
        """How often the largest count is above this one; half of those that are equal count."""
        return _chance_above(most, n, _with_largest(shares, largest))

    def either(largest: float) -> float:
        """The same, and how often the upper end would be below this share."""
        p = _with_largest(shares, largest)
        fewest = bisect_left(range(n), True, key=lambda count: _chance_above(count, n, p) <= 1 - TAIL)
        return _chance_above(most, n, p) + float(np.prod(bdtr(fewest - 1, n, p)) if fewest else 0)

    ends = [_by_halves(either, 2 * TAIL, 1 / classes, 1.0)]
    ends += [_by_halves(above, level, 1 / classes, 1.0) for level in (0.5, 1 - TAIL)]
    if above(1 / classes) > 2 * TAIL:
        ends[0] = 1 / classes
    else:
        ends[0] = max(ends[0], np.nextafter(1 / classes, 1))
    low, value, high = ends
    return Estimate(max(low, value), low, high)


def _chance_above(count: int, n: int, p: Doubles) -> float:
    """How often the largest of these counts of n images is above this one; half of those that are equal count."""
    return 1 - (float(np.prod(bdtr(count, n, p))) + float(np.prod(bdtr(count - 1, n, p)) if count else 0)) / 2


def _with_largest(shares: Doubles, largest: float) -> Doubles:
    """These shares, the first of the largest made so large, the others scaled to what is left and never larger."""
    found = shares.copy()
    capped = np.zeros(len(shares), dtype=np.bool_)
    capped[int(shares.argmax())] = True
    while not capped.all():
        left = 1 - largest * int(capped.sum())
        found[~capped] = shares[~capped] * max(0.0, left) / shares[~capped].sum()
        over = ~capped & (found > largest)
        if not over.any():
            break
        capped |= over
    found[capped] = largest
    return found


def _by_halves(rising: Callable[[float], float], level: float, low: float, high: float) -> float:
    """Where a rising function reaches this level; the nearer end where it does not."""
    if rising(high) < level:
        return high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) >= level else (middle, high)
    return high


def accuracy_of_trials(right: Doubles, shown: float, classes: int) -> Estimate:
    """How often classifiers trained on a few of these images are right on the others. right (trials, n), NaN if shown.

    Other images would have given other shots and other images to test on, so the variance has three parts: of images
    over their means, of trials over theirs, and, as trials share images, of what their shots have in common: where
    a share `shown` of all images are shots, trials correlate by about as much. An image that is easy to recognise is
    also a good example, so the first and the last add up nearly as if they always went together. Wilson's interval with
    as many effective images, and Student's quantile; images have two roles, so each counts as half a degree of freedom.

    Near chance what makes images resemble others of their class raises both accuracy and variance. So where accuracy is
    too low by chance, so is the variance: the upper end has a larger one, the lower end a smaller one.
    """
    seen = ~np.isnan(right)
    often, images = seen.sum(axis=1), seen.any(axis=0)
    if right.size == 0 or not often.all():
        return NOTHING
    value = float(np.nanmean(right))
    by_trial, by_image = np.nanmean(right, axis=1), np.nanmean(right[:, images], axis=0)
    trials, n, tested = len(right), int(images.sum()), float(often.mean())
    left = right[:, images] - by_trial[:, None] - by_image + value
    noise = float(np.nanmean(left**2)) * n * trials / max(1, (n - 1) * (trials - 1))
    between = float(by_trial.var(ddof=1)) if trials > 1 else 0.0
    shots = max(0.0, between - noise / tested)
    common = shots * shown / (1 - shown)
    variance = (math.sqrt(by_image.var(ddof=1) / n if n > 1 else 0.25) + math.sqrt(common)) ** 2 + shots / trials
    variance *= TOGETHER
    spread, z = value * (1 - value), float(student.ppf(1 - TAIL, max(1.0, (n - classes) / 2)))
    if variance == 0 or spread == 0:
        return wilson(value, n, z)
    near = 1 / (1 + max(0.0, value - 1 / classes) ** 2 / variance / CLEAR)
    less, more = (spread / variance * math.exp(lean * near) for lean in (LEAN[0], -LEAN[1]))
    return Estimate(value, wilson(value, less, z).low, wilson(value, more, z).high)


def images_needed(found: Estimate, ceiling: float, images: int) -> int | None:
    """How many images would bring the upper end of a share or an AUROC down to this ceiling if its value stays.

    None if the value itself is above. From Wilson's interval: h is its upper end if n = Z² h (1 - h) / (h - p)².
    """
    if found.value >= ceiling:
        return None
    now = found.high * (1 - found.high) / max(found.high - found.value, 1e-9) ** 2
    then = ceiling * (1 - ceiling) / (ceiling - found.value) ** 2
    return math.ceil(images * then / max(now, 1e-9))
