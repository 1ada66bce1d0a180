"""Do the audit's 95 % intervals hold the true value in 95 % of trials? Samples from populations whose truth is known.

    python -m benchmarks.interval_coverage
    python -m benchmarks.interval_coverage --sizes 20 80 --trials 1000 --only "bits of the label, 0.3"

n is the number of images of forgotten classes; kept images are half as many again. A row is one measure at one truth,
or over a spread of truths and of shapes that are drawn anew in every trial. All rows take about ten minutes of
processor time, eight of them for probes and bits, which have fewer trials for that reason. Counted coverage is off by
as much as "+-" says, one standard error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import norm

from unsee.answers.intervals import Estimate, auroc_of, largest_share, mean_of, paired_difference, share_of
from unsee.audit.information import mutual_information
from unsee.audit.probes import _features, _fit, forgotten_probe, k_shot_probe
from unsee.types import Doubles, Floats, Ints, Mask

SIZES = (20, 80, 400)
TRIALS = 5000
FEWER = {"probe": 400, "bits": 400, "largest": 1000}  # by a word of the measure: those that take long
CLASSES = 10
FORGOTTEN = 4
Rng = np.random.Generator
Trial = Callable[[Rng, int], tuple[float, Estimate]]  # generator, n -> the truth, and what a sample says of it


@dataclass(frozen=True)
class Row:
    """How often an interval held the truth."""

    measure: str
    truth: str
    n: int
    trials: int
    coverage: float
    width: float  # on average
    inside: bool  # every value was in its own interval


def a_share(rng: Rng, n: int) -> tuple[float, Estimate]:
    """A share of images, any true one."""
    p = rng.uniform(0.01, 0.99)
    return p, share_of(rng.random(n) < p)


def a_difference(rng: Rng, n: int) -> tuple[float, Estimate]:
    """Accuracy after minus before: most images keep their answer."""
    up, down = rng.uniform(0.01, 0.2, 2)
    change = rng.random(n)
    before = np.where(change < up, False, np.where(change < up + down, True, rng.random(n) < 0.9))
    after = np.where(change < up, True, np.where(change < up + down, False, before))
    return up - down, paired_difference(before, after)


def a_mean(draw: Callable[[Rng, int], Doubles], truth: float) -> Trial:
    """A mean of values between 0 and 1, as entropies are."""
    return lambda rng, n: (truth, mean_of(draw(rng, n), 0, 1))


def two_humps(rng: Rng, n: int) -> Doubles:
    """One answer in five far surer than the others."""
    return np.where(rng.random(n) < 0.2, rng.beta(3, 6, n), rng.beta(20, 2, n))


def an_auroc(truth: float) -> Trial:
    """Two normal distributions as far apart as that, one up to four times as wide; in every third trial with ties."""

    def trial(rng: Rng, n: int) -> tuple[float, Estimate]:
        width, tied = rng.uniform(0.25, 1), rng.random() < 1 / 3
        shift = norm.ppf(truth) * np.sqrt(1 + width**2)
        values = np.concatenate([shift + width * rng.standard_normal(n), rng.standard_normal(3 * n // 2)])
        positive = np.arange(len(values)) < n
        if not tied:
            return truth, auroc_of(values, positive)
        return tied_truth(shift, width), auroc_of(np.round(values * 2) / 2, positive)

    return trial


def tied_truth(shift: float, width: float) -> float:
    """The AUROC of both distributions rounded to halves."""
    steps = np.arange(-12, 30) / 2
    edges = np.append(steps - 0.25, np.inf)
    ups, downs = np.diff(norm.cdf((edges - shift) / width)), np.diff(norm.cdf(edges))
    return float(ups @ (np.cumsum(downs) - downs / 2))


def a_membership(truth: float) -> Trial:
    """Shots against five times as many other images, class by class, each class at a level of its own."""

    def trial(rng: Rng, n: int) -> tuple[float, Estimate]:
        member = np.arange(6 * n) < n
        classes = np.arange(6 * n) % FORGOTTEN
        values = 5 * rng.random(FORGOTTEN)[classes] + rng.standard_normal(6 * n) + member * norm.ppf(truth) * np.sqrt(2)
        return truth, auroc_of(values, member, classes)

    return trial


def a_largest_share(even: bool) -> Trial:
    """All classes alike, or one that any share of images lands on."""

    def trial(rng: Rng, n: int) -> tuple[float, Estimate]:
        shares = np.full(CLASSES, 1 / CLASSES)
        if not even:
            first = rng.uniform(0.15, 0.95)
            shares = np.concatenate([[first], (1 - first) * rng.dirichlet(np.ones(CLASSES - 1))])
        return float(shares.max()), largest_share(rng.choice(CLASSES, n, p=shares), CLASSES)

    return trial


@cache
def channels(bits: float) -> tuple[Doubles, ...]:
    """Ways in which classes land on labels that leak so many bits: on one each, two each, one for two, or mixed.

    None in which every class always lands on one label: all samples would be the same, and coverage 0 or 100 %.
    """
    even, skewed = np.full(CLASSES, 1 / CLASSES), 0.6 ** np.arange(CLASSES)
    one, two = np.eye(CLASSES)[:FORGOTTEN], 0.6 * np.eye(CLASSES)[:FORGOTTEN] + 0.4 * np.eye(CLASSES)[1 : FORGOTTEN + 1]
    shared = np.eye(CLASSES)[np.arange(FORGOTTEN) // 2]
    found = []
    for base, own in ((even, one), (skewed, one), (skewed, two), (even, shared)):
        low, high = 0.0, 1.0
        for _ in range(40):
            part = (low + high) / 2
            rows = (1 - part) * base / base.sum() + part * own
            low, high = (part, high) if information(rows) < bits else (low, part)
        if abs(information(rows) - bits) < 1e-3 and rows.max(axis=1).min() < 0.999:
            found.append(rows)
    return tuple(found)


def information(rows: Doubles) -> float:
    """Bits of a label about the class, all classes being as frequent. rows (classes, labels)."""
    ratio = np.where(rows > 0, rows / rows.mean(axis=0), 1)
    return float((rows * np.log2(ratio)).sum() / len(rows))


def bits_of_label(truth: float) -> Trial:
    """Labels drawn for balanced classes."""

    def trial(rng: Rng, n: int) -> tuple[float, Estimate]:
        ways = channels(truth)
        labels = np.arange(n) % FORGOTTEN
        rows = ways[rng.integers(len(ways))][labels].cumsum(axis=1)
        top = (rng.random((n, 1)) > rows).sum(axis=1).clip(0, CLASSES - 1)
        return truth, mutual_information(labels, top, rng)

    return trial


def answers_of(rng: Rng, labels: Ints, strength: float) -> Floats:
    """Confidences that know the class more or less: softmax of a centre per class and noise."""
    centres = np.random.default_rng(0).standard_normal((FORGOTTEN + 1, CLASSES))
    logits = strength * centres[labels] + rng.standard_normal((len(labels), CLASSES))
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Floats = (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)
    return found


@cache
def probe_truth(shots: int, strength: float, classes: int) -> float:
    """Accuracy of such a probe, on average over very many shots and images."""
    if strength == 0:
        return 1 / classes
    rng, right = np.random.default_rng(1), []
    labels = np.repeat(np.arange(classes), shots + 100)
    for _ in range(600):
        found = k_shot_probe(answers_of(rng, labels, strength), labels, shots, rng, trials=1)
        right.append(found.accuracy if found is not None else np.nan)
    return float(np.mean(right))


def a_probe(shots: int, strength: float, classes: int) -> Trial:
    """A k-shot probe on the images there are."""

    def trial(rng: Rng, n: int) -> tuple[float, Estimate]:
        labels = np.arange(n) % classes
        found = k_shot_probe(answers_of(rng, labels, strength), labels, shots, rng)
        none = Estimate(np.nan, np.nan, np.nan)
        return probe_truth(shots, strength, classes), none if found is None else found.estimate

    return trial


@cache
def halves_truth(strength: float, n: int) -> float:
    """AUROC of a probe that was trained on half of so many images, on average over very many halves and images."""
    if strength == 0:
        return 0.5
    rng, found = np.random.default_rng(2), []
    for _ in range(300):
        labels = sides(2000 + n // 2)
        p = answers_of(rng, labels, strength)
        found.append(forgotten_probe_once(p, labels == 0, n // 2, rng))
    return float(np.mean(found))


def sides(n: int) -> Ints:
    """n images of one class, half as many again of another."""
    return (np.arange(n + 3 * n // 2) >= n).astype(np.int64)


def forgotten_probe_once(p: Floats, gone: Mask, n: int, rng: Rng) -> float:
    """AUROC on all but n of the forgotten images, and half as many again of the kept ones, that it is trained on."""
    shown = np.concatenate(
        [rng.permutation(np.flatnonzero(gone))[:n], rng.permutation(np.flatnonzero(~gone))[: 3 * n // 2]]
    )
    hidden = np.setdiff1d(np.arange(len(gone)), shown)
    sure = _fit(_features(p[shown]), gone[shown].astype(np.int64))(_features(p[hidden]))[:, 1]
    return auroc_of(sure, gone[hidden]).value


def a_halves_probe(strength: float) -> Trial:
    """The probe that tells forgotten images from kept ones, cross-fitted."""

    def trial(rng: Rng, n: int) -> tuple[float, Estimate]:
        labels = sides(n)
        found = forgotten_probe(answers_of(rng, labels, strength), labels == 0, rng)
        none = Estimate(np.nan, np.nan, np.nan)
        return halves_truth(strength, n), none if found is None else found.auroc(labels == 0)

    return trial


CASES: dict[tuple[str, str], Trial] = {
    ("share", "0.01 to 0.99"): a_share,
    ("paired difference", "-0.2 to 0.2"): a_difference,
    ("mean", "0.95, skewed"): a_mean(lambda rng, n: rng.beta(20, 1, n), 20 / 21),
    ("mean", "0.80"): a_mean(lambda rng, n: rng.beta(8, 2, n), 0.8),
    ("mean", "0.79, two humps"): a_mean(two_humps, 0.2 / 3 + 0.8 * 20 / 22),
    ("mean", "0.09, skewed"): a_mean(lambda rng, n: rng.beta(1, 10, n), 1 / 11),
    ("AUROC", "0.50"): an_auroc(0.5),
    ("AUROC", "0.70"): an_auroc(0.7),
    ("AUROC", "0.90"): an_auroc(0.9),
    ("AUROC", "0.97"): an_auroc(0.97),
    ("AUROC by class", "0.50"): a_membership(0.5),
    ("AUROC by class", "0.80"): a_membership(0.8),
    ("largest share", "0.10, all alike"): a_largest_share(even=True),
    ("largest share", "0.15 to 0.95"): a_largest_share(even=False),
    ("bits of the label", "0"): bits_of_label(0),
    ("bits of the label", "0.3"): bits_of_label(0.3),
    ("bits of the label", "1.0"): bits_of_label(1.0),
    ("AUROC of a probe", "0.50"): a_halves_probe(0.0),
    ("AUROC of a probe", "above"): a_halves_probe(0.5),
    ("1-shot probe", "chance"): a_probe(1, 0.0, FORGOTTEN),
    ("1-shot probe", "above"): a_probe(1, 0.7, FORGOTTEN),
    ("4-shot probe", "chance"): a_probe(4, 0.0, 2),
    ("4-shot probe", "above"): a_probe(4, 0.5, 2),
    ("16-shot probe", "above"): a_probe(16, 0.3, 2),
}


def trials_of(measure: str) -> int:
    """In how many trials the coverage of this measure is counted."""
    return next((trials for word, trials in FEWER.items() if word in measure), TRIALS)


def cover(measure: str, truth: str, n: int, trials: int | None = None, seed: int = 0) -> Row | None:
    """How often this interval holds the truth; None where so few images give none."""
    rng, found = np.random.default_rng([seed, n]), []
    trials = trials or trials_of(measure)
    for _ in range(trials):
        true, e = CASES[measure, truth](rng, n)
        if np.isnan(e.value):
            return None
        found.append((e.low - 1e-9 <= true <= e.high + 1e-9, e.high - e.low, e.low <= e.value <= e.high))
    held, widths, inside = (np.array(column) for column in zip(*found, strict=True))
    return Row(measure, truth, n, trials, float(held.mean()), float(widths.mean()), bool(inside.all()))


def cover_all(
    sizes: tuple[int, ...] = SIZES, trials: int | None = None, only: str = "", seed: int = 0
) -> Iterator[Row]:
    """A row for every measure, truth and size."""
    for measure, truth in CASES:
        for n in sizes:
            if only in f"{measure}, {truth}" and (row := cover(measure, truth, n, trials, seed)) is not None:
                yield row


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--trials", type=int, help=f"default: {TRIALS}, and fewer for {FEWER}")
    parser.add_argument("--only", default="", help="rows whose 'measure, truth' holds this")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"{'measure':20} {'truth':18} {'n':>5} {'trials':>6} {'coverage, %':>12} {'+-':>4} {'width':>7}")
    for row in cover_all(tuple(given.sizes), given.trials, given.only, given.seed):
        odd = "" if row.inside else "  value outside its own interval"
        off = 100 * np.sqrt(row.coverage * (1 - row.coverage) / row.trials)
        told = f"{row.measure:20} {row.truth:18} {row.n:5} {row.trials:6}"
        print(f"{told} {100 * row.coverage:12.1f} {off:4.1f} {row.width:7.3f}{odd}", flush=True)


if __name__ == "__main__":
    main()
