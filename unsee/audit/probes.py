"""Attackers that see answers alone: small classifiers on confidences, trained on a few labelled images.

If a probe recovers the forgotten classes on images it was not trained on, the answers leak them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsee.answers.intervals import Estimate, accuracy_of_trials, auroc_of
from unsee.methods.blas import one_blas_thread
from unsee.types import Doubles, Floats, Ints, Mask

SHOTS = (1, 4, 16)
PROTOTYPE_SHOTS = (1, 5)
TRIALS = 20  # choices of the labelled images: enough to see how much they matter
HELD_OUT = 4000  # images to test a probe on, at most
FLOOR = 1e-12  # confidences below count as this
Fit = Callable[[Doubles, Ints], Callable[[Doubles], Doubles]]  # features, labels -> features -> a score per class


@dataclass(frozen=True, eq=False)
class Probe:
    """How often a probe was right on held-out images, and by chance would be."""

    shots: int
    right: Doubles  # (trials, n) per image: right, wrong, or NaN where it was trained on
    classes: int

    @property
    def accuracy(self) -> float:
        return self.estimate.value

    @property
    def estimate(self) -> Estimate:
        """Its accuracy, with an interval over other shots and other images."""
        shown = self.shots * self.classes / self.right.shape[1]
        return accuracy_of_trials(self.right, shown, self.classes)

    @property
    def chance(self) -> float:
        return 1 / self.classes


def k_shot_probe(
    confidences: Floats,
    labels: Ints,
    shots: int,
    rng: np.random.Generator,
    trials: int = TRIALS,
    fit: Fit | None = None,
) -> Probe | None:
    """A classifier on the logs of the confidences of forgotten images, `shots` of each class labelled.

    Logistic regression, unless another one is given. None if a class has fewer than twice as many images as shots, so
    that there would be fewer to test on than to learn from, or if there are fewer than two classes to tell apart.
    """
    present, counts = np.unique(labels, return_counts=True)
    if len(present) < 2 or counts.min() < 2 * shots:
        return None
    features = _features(confidences)
    right = np.full((trials, len(labels)), np.nan)
    for trial in range(trials):
        shown = np.concatenate([rng.permutation(np.flatnonzero(labels == c))[:shots] for c in present])
        hidden = np.setdiff1d(np.arange(len(labels)), shown)
        hidden = np.sort(rng.permutation(hidden)[:HELD_OUT])
        found = (fit or _fit)(features[shown], labels[shown])(features[hidden])
        right[trial, hidden] = found.argmax(axis=1) == np.searchsorted(present, labels[hidden])
    return Probe(shots, right, len(present))


def guess_each(
    confidences: Floats, labels: Ints, shots: int, rng: np.random.Generator, fit: Fit | None = None
) -> Ints | None:
    """The class that a k-shot probe gives each image, in each case one that was not shown the image. -> (n,).

    Two probes are trained, on labelled images of their own; the second judges what the first was shown. None if a class
    has fewer than twice as many images as shots, or if there are fewer than two classes to tell apart.
    """
    present, counts = np.unique(labels, return_counts=True)
    if len(present) < 2 or counts.min() < 2 * shots:
        return None
    features, found = _features(confidences), np.zeros(len(labels), dtype=np.int64)
    drawn = np.stack([rng.permutation(np.flatnonzero(labels == c))[: 2 * shots] for c in present])
    first, second = drawn[:, :shots].ravel(), drawn[:, shots:].ravel()
    rest = np.setdiff1d(np.arange(len(labels)), first)
    for shown, judged in ((first, rest), (second, first)):
        found[judged] = present[(fit or _fit)(features[shown], labels[shown])(features[judged]).argmax(axis=1)]
    return found


@dataclass(frozen=True, eq=False)
class Halves:
    """How sure a probe is that each image is a forgotten one; each half of the images is judged by the other half's."""

    sure: Doubles  # (n,)
    half: Mask  # (n,) which one

    def auroc(self, gone: Mask) -> Estimate:
        """How well forgotten images are told from kept ones; only images that one probe has judged are compared."""
        return auroc_of(self.sure, gone, self.half.astype(np.int64), crossed=True)


def forgotten_probe(confidences: Floats, gone: Mask, rng: np.random.Generator) -> Halves | None:
    """Logistic regression that tells forgotten images from kept ones, trained on one half, judging the other.

    None if either half has images of one side only.
    """
    half = np.zeros(len(gone), dtype=np.bool_)
    for side in (gone, ~gone):  # as many of each side in both halves
        rows = rng.permutation(np.flatnonzero(side))
        half[rows[: len(rows) // 2]] = True
    if any(len(np.unique(gone[part])) < 2 for part in (half, ~half)):
        return None
    features, sure = _features(confidences), np.zeros(len(gone))
    for part in (half, ~half):
        sure[~part] = _fit(features[part], gone[part].astype(np.int64))(features[~part])[:, 1]
    return Halves(sure, half)


class Prototypes:
    """Nearest class mean of the logs of confidences, each image's own mean taken off.

    The distance is Euclidean: a prompt adds much the same to all answers, which a distance between them does not see,
    while it would turn all of them to one side, and angles would hardly differ.
    """

    def __init__(self, features: Doubles, labels: Ints) -> None:
        centred = self._centre(features)
        self._means = np.stack([centred[labels == c].mean(axis=0) for c in np.unique(labels)])

    def __call__(self, features: Doubles) -> Doubles:
        """Highest for the nearest class mean: minus its squared distance, up to what all have. -> (n, classes)."""
        found: Doubles = 2 * self._centre(features) @ self._means.T - (self._means**2).sum(axis=1)
        return found

    @staticmethod
    def _centre(features: Doubles) -> Doubles:
        centred: Doubles = features - features.mean(axis=1, keepdims=True)
        return centred


class _Classifier:
    """Logistic regression on centred features of unit size.

    All features are divided by one number: one of their own each would make the noise of a feature that tells nothing
    as large as the signal of one that does, and of few shots its size could not be known.
    """

    def __init__(self, features: Doubles, labels: Ints) -> None:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        self._mean = features.mean(axis=0)
        self._spread = float((features - self._mean).std()) or 1.0
        self._model = LogisticRegression(max_iter=200)
        with warnings.catch_warnings(), one_blas_thread():  # more would only wait
            warnings.simplefilter("ignore", ConvergenceWarning)  # the last digits of a probe do not matter
            warnings.filterwarnings("ignore", "The number of unique classes")  # as many as shots, with one shot
            self._model.fit(self._scale(features), labels)

    def __call__(self, features: Doubles) -> Doubles:
        found: Doubles = self._model.predict_proba(self._scale(features))
        return found

    def _scale(self, features: Doubles) -> Doubles:
        scaled: Doubles = (features - self._mean) / self._spread
        return scaled


def _fit(features: Doubles, labels: Ints) -> _Classifier:
    return _Classifier(features, labels)


def _features(confidences: Floats) -> Doubles:
    """Logs of confidences, the natural scale of a softmax's answers.

    A confidence of 0 counts as half the smallest one that there is: how far it is below tells nothing, and a far lower
    number would drown all others, so that rounded answers would look safer than they are.
    """
    p = confidences.astype(np.float64)
    lowest = float(p[p > 0].min(initial=1.0))
    logs: Doubles = np.log(np.maximum(p, max(FLOOR, lowest / 2)))
    return logs
