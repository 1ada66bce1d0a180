"""A search that learns from the answers, not from the loss alone.

CMA-ES uses one number of what the model says about a candidate. But an answer is a whole table, images x classes, and
the loss is a known function of it. So the search models the table (`AnswerModel`), finds the latents whose predicted
answers have the least loss, near the best candidate so far, and asks about them. Most candidates are asked about a few
images only; the model of the answers infers the rest. Now and then the most promising ones are asked about all images:
those answers are true, and only they decide which prompt is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsee.answers.metrics import scores
from unsee.methods.answer_model import AnswerModel
from unsee.methods.blas import one_blas_thread
from unsee.methods.inherited import KnownAnswers
from unsee.methods.presets import FIRST_CANDIDATES, LEAST_IMAGES
from unsee.types import Doubles, Floats, Ints, Mask

DESCENT_STEPS = 60  # of the descent on predicted losses
FIRST_RADIUS, WIDEST, NARROWEST, AGAIN = 0.5, 4.0, 0.08, 0.4  # of the trust region, in units of sqrt(dim)
WIDER, NARROWER = 1.3, 0.7  # what a good step makes of it, and one that gains nothing
FIRST_SPREAD, LEAST_SPREAD, SPREAD_AGAIN, CALMER = 0.5, 0.1, 0.3, 0.95  # of candidates around the predicted optimum
ON_THE_WAY = 0.5  # share of the candidates that lie between the best and the predicted optimum
VARIANCE = 0.99  # of the first answers: a candidate is asked about as many images as it has dimensions
NEARLY_ALL = 0.7  # share of the images beyond which all are asked
MORE = 1.25  # times as many images are asked after a check that found nothing better
CHECKED = 2  # candidates asked about all images at once
CHECKS = 1 / 3  # what such questions may cost, as a share of the others
FITTED = 5  # inherited generations between two fits
GAIN = 1e-4  # a loss that falls by less has not fallen
TRUSTED = 0.3  # share of the predicted gain with which a step counts as good


class GuidedSearch:
    """Latents by a model of the answers; `rows` says which images the next candidates are asked about."""

    def __init__(
        self,
        dim: int,
        rng: np.random.Generator,
        target: Floats,
        labels: Ints,
        forget: Mask,
        *,
        population: int = 10,
        whole: bool = False,
        inherited: Sequence[KnownAnswers] = (),
    ) -> None:
        """target (t, C): weights of the log-confidences of the images to tune on, which come first in labels (n,).

        whole: ask about all images always. inherited: answers of an earlier run, which it starts from.
        """
        self._dim, self._rng, self._population = dim, rng, population
        self._target, self._labels, self._forget = target, labels, forget
        self._model = AnswerModel(dim, len(labels), len(forget), rng)
        self._unit = np.sqrt(dim)
        self._radius, self._spread = FIRST_RADIUS * self._unit, FIRST_SPREAD
        self._best, self._loss, self._predicted = np.zeros(dim), np.inf, np.inf
        self._true = np.inf  # the least loss of those asked about all images
        self._chosen: Ints | None = None  # the few images
        self._count = np.inf if whole else float(LEAST_IMAGES)  # how many they are
        self._since = 0  # generations since candidates were last checked
        self._checked: set[bytes] = set()
        self._inherited = inherited
        self.rows: Ints | None = None
        self.known: Floats | None = None
        self.losses = np.zeros(0)  # of the last candidates, inferred where not all images were asked

    def ask(self) -> Doubles:
        """The next candidates. -> (b, dim)."""
        if not self._checked and self._inherited:
            whole = [each for each in self._inherited if each.rows is None]
            self.known = np.concatenate([each.answers for each in whole])
            return np.concatenate([each.z for each in whole])
        self.known = None
        if not self._checked:
            return self._rng.standard_normal((FIRST_CANDIDATES, self._dim)).astype(np.float32).astype(np.float64)
        self.rows = self._chosen
        if self.rows is not None and self._since >= cycle_of(len(self._labels), len(self.rows), self._population):
            self.rows = None
            return self._promising()
        return self._propose()

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        """Learns from the answers (b, m, C) to the images in `rows`; losses (b,) count where these are all images."""
        if answers is None:
            raise ValueError("this search learns from answers")
        centred = as_kept(answers)
        centred -= centred.mean(axis=2, keepdims=True)
        with one_blas_thread():
            if self.rows is None:
                self._model.add_whole(z, centred)
                self._checked |= {each.tobytes() for each in z}
                self.losses = losses
            else:
                self.losses = self._losses(self._model.add_some(z, self.rows, centred))
            if self.rows is None and (len(self._checked) == len(z) or self._chosen is not None):
                first = not np.isfinite(self._true)
                self._check(z)
                if first:
                    self._take_over()
            else:
                self._move(z)

    def _take_over(self) -> None:
        """Learns from the inherited answers to some of the images, and starts from the best of these candidates."""
        for number, each in enumerate(each for each in self._inherited if each.rows is not None):
            if each.rows is None:
                continue
            if number % FITTED == 0:
                self._model.fit()
            centred = each.answers - each.answers.mean(axis=2, keepdims=True)
            losses = self._losses(self._model.add_some(each.z, each.rows, centred))
            if losses.min() < self._loss:
                self._loss, self._best = float(losses.min()), each.z[int(losses.argmin())]

    def _propose(self) -> Doubles:
        """Candidates on the way to the predicted optimum, and around it."""
        with one_blas_thread():
            self._model.fit()
            found, self._predicted = self._model.descend(self._best, self._radius, self._target, DESCENT_STEPS)
        on_the_way = int(ON_THE_WAY * self._population)
        shares = np.linspace(0.3, 1.2, on_the_way)[:, None]
        noise = self._spread * self._rng.standard_normal((self._population, self._dim))
        line = self._best + shares * (found - self._best) + 0.1 * noise[:on_the_way]
        z = np.concatenate([line, found + noise[on_the_way:]])
        return z.astype(np.float32).astype(np.float64)

    def _promising(self) -> Doubles:
        """Candidates not yet asked about all images: the best so far, and the one of the highest H, as inferred now."""
        z, tables = self._model.tables()
        new = [i for i in range(len(z)) if z[i].tobytes() not in self._checked]
        answers = self._model.map.basis.astype(np.float32) @ tables[new]
        losses = self._losses(answers)
        merits = [scores(table.argmax(axis=1), self._labels, self._forget).h for table in answers]
        first = next((i for i, row in enumerate(new) if (z[row] == self._best).all()), int(losses.argmin()))
        second = max((i for i in range(len(new)) if i != first), key=lambda i: (merits[i], -losses[i]))
        return z[[new[first], new[second]]]

    def _check(self, z: Doubles) -> None:
        """Takes the true losses of candidates that were asked about all images."""
        self._since = 0
        for one, loss in zip(z, self.losses.tolist(), strict=True):
            if loss < self._loss or (one == self._best).all():
                self._loss, self._best = loss, one
        least = float(self.losses.min())
        if not np.isfinite(self._true):
            self._count = max(self._count, self._model.map.dimensions(VARIANCE))
        elif least > self._true - GAIN:  # what is inferred is not true enough to go on by
            self._count *= MORE
        self._true = min(self._true, least)
        self._choose()

    def _move(self, z: Doubles) -> None:
        """Takes the best of these candidates, and widens or narrows the region that is searched."""
        before, planned, best = self._loss, self._loss - self._predicted, int(self.losses.argmin())
        if self.losses[best] < self._loss:
            self._loss, self._best = float(self.losses[best]), z[best]
        self._since += 1
        if before - self._loss > GAIN:
            if before - self._loss > TRUSTED * planned:
                self._radius = min(self._radius * WIDER, WIDEST * self._unit)
        else:
            self._radius *= NARROWER
            self._spread = max(LEAST_SPREAD, self._spread * CALMER)
        if self._radius < NARROWEST * self._unit:
            self._radius, self._spread = AGAIN * self._unit, max(self._spread, SPREAD_AGAIN)

    def _choose(self) -> None:
        """Chooses the few images; None of them where that would be nearly all."""
        many = self._count > NEARLY_ALL * len(self._labels)
        self._chosen = None if many else self._model.map.choose(round(self._count))

    def _losses(self, answers: Floats) -> Doubles:
        """Losses of centred log-confidences (b, n, C). -> (b,)."""
        x = answers[:, : len(self._target)].astype(np.float64)
        x = x - x.max(axis=2, keepdims=True)
        log_p = x - np.log(np.exp(x).sum(axis=2, keepdims=True))
        found: Doubles = -np.einsum("btc,tc->b", log_p, self._target)
        return found


def expected_cost(generation: int, images: int, population: int) -> tuple[int, int]:
    """About how many candidates a generation (from 0) has, and how many images each is asked about."""
    if generation == 0:
        return FIRST_CANDIDATES, images
    few = 2 * LEAST_IMAGES  # they become more as the search gets nearer
    if NEARLY_ALL * images < few:
        return population, images
    return (CHECKED, images) if generation % (cycle_of(images, few, population) + 1) == 0 else (population, few)


def cycle_of(images: int, few: int, population: int) -> int:
    """Generations between two checks, so that these cost the share that they may."""
    return max(1, round(CHECKED * images / (CHECKS * population * few)))


def as_kept(answers: Floats) -> Floats:
    """Answers with the precision in which a run folder keeps them, so that a replay sees the same."""
    return answers.astype(np.float16).astype(np.float32)
