"""A model of the answers: what the black box would answer to any candidate, from all of its answers so far.

A Gaussian process of the latents, whose values are tables of answers (images x classes) in the basis of an `ImageMap`.
Generations may be asked about different images. What was not asked of a candidate is inferred from the others, and
inferred again as more is known: block Gauss-Seidel, one generation a block, which converges to the exact posterior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from unsee.methods.image_map import ImageMap
from unsee.types import Doubles, Floats, Ints

KERNEL_LENGTH = 1.4  # of the kernel, in units of sqrt(dim): candidates N(0, I) are sqrt(2 dim) apart
NUGGET = 1e-4
ARCHIVE = 1500  # candidates it is made from, at most: the latest
SWEEP = 30  # earlier generations that are inferred again at each fit
LATEST = 3  # of the newest generations, which are inferred again at every fit
COEFFICIENTS = 256  # numbers that a table of answers is reduced to
SMALL = 1024  # a table of so many numbers or fewer is not reduced
RENEW = 10  # fits between two choices of this reduction
ROUNDING = 1e-6  # share of the largest variance below which a direction is rounding
EXACTLY = 50  # fits between two exact inverses; in between, rows are added and taken away


@dataclass(eq=False)
class Asked:
    """One generation in the archive: how many candidates, and which images they were asked about."""

    count: int
    rows: Ints | None = None  # None: all images
    answers: Floats | None = None  # (b, m, C), to these images


class AnswerModel:
    """Predicts tables of centred log-confidences from latents."""

    def __init__(self, dim: int, images: int, classes: int, rng: np.random.Generator) -> None:
        self.map = ImageMap(images)
        self._classes = classes
        self._scale = 2 * KERNEL_LENGTH**2 * dim
        self._rng = rng
        self._z = np.zeros((0, dim))
        self._tables = np.zeros((0, 0), dtype=np.float32)  # (n, r C): coefficients of each candidate's answers
        self._asked: list[Asked] = []
        self._fits = 0
        self._reduce: Floats | None = None  # (r C, q), where tables are large
        self._precision = np.zeros((0, 0))  # (n, n), inverse of the candidates' covariance

    def add_whole(self, z: Doubles, answers: Floats) -> None:
        """Adds candidates that were asked about all images. answers (b, n, C)."""
        self.map.learn(answers)
        self._add(z, self.map.basis.T.astype(np.float32) @ answers, Asked(len(z)))

    def add_some(self, z: Doubles, rows: Ints, answers: Floats) -> Floats:
        """Adds candidates that were asked about some images; the answers to all of them, inferred. -> (b, n, C)."""
        predicted = self.predict(z)
        error = answers - self.map.basis[rows].astype(np.float32) @ predicted
        tables = predicted + self.map.gain(rows).astype(np.float32) @ error
        self._add(z, tables, Asked(len(z), rows, answers))
        found: Floats = self.map.basis.astype(np.float32) @ tables
        return found

    def fit(self) -> None:
        """Makes ready to predict from everything in the archive."""
        self._pad()
        if self._fits % EXACTLY == 0:
            self._precision = _inverse(self._kernel(self._z, self._z) + NUGGET * np.eye(len(self._z)))
        precision = self._precision.astype(np.float32)  # (n, n)
        self._mean = self._tables.mean(axis=0)
        centred = self._tables - self._mean
        self._infer_again(precision, centred)
        if self._fits % RENEW == 0 or (self._reduce is not None and len(self._reduce) != centred.shape[1]):
            self._reduce = _principal(centred, self._rng)
        self._fits += 1
        self._weights = precision @ (centred if self._reduce is None else centred @ self._reduce)  # (n, q)
        self._points, self._norms = self._z.astype(np.float32), (self._z**2).sum(axis=1).astype(np.float32)

    def tables(self) -> tuple[Doubles, Floats]:
        """Candidates in the archive (n, dim), and the coefficients of their answers as they are known now (n, r, C)."""
        self._pad()
        return self._z, self._tables.reshape(len(self._z), -1, self._classes)

    def predict(self, z: Doubles) -> Floats:
        """Coefficients of the answers to candidates (b, dim). -> (b, r, C)."""
        at = z.astype(np.float32)
        near = np.exp((2 * at @ self._points.T - self._norms - (at**2).sum(axis=1)[:, None]) / np.float32(self._scale))
        found = near @ self._weights
        tables: Floats = self._mean + (found if self._reduce is None else found @ self._reduce.T)
        return tables.reshape(len(z), -1, self._classes)

    def descend(self, start: Doubles, radius: float, target: Floats, steps: int) -> tuple[Doubles, float]:
        """Where the loss of the predicted answers is least within `radius` of start, by Adam; and that loss.

        The loss is a cross-entropy: -sum(target * log p), target (t, C) for the first t images.
        """
        basis, mass = self.map.basis[: len(target)].astype(np.float32), target.sum(axis=1, keepdims=True)
        first = z = start.astype(np.float32)
        mean, square = np.zeros_like(z), np.zeros_like(z)
        for step in range(1, steps + 1):
            _, slope = self._loss(z, basis, target, mass)
            mean = 0.9 * mean + 0.1 * slope
            square = 0.999 * square + 0.001 * slope * slope
            rate = np.float32(radius / 20 / (1 - 0.9**step))
            z = z - rate * mean / (np.sqrt(square / np.float32(1 - 0.999**step)) + np.float32(1e-8))
            length = float(np.linalg.norm(z - first))
            if length > radius:
                z = first + (z - first) * np.float32(radius / length)
        return z.astype(np.float64), self._loss(z, basis, target, mass)[0]

    def _loss(self, z: Floats, basis: Floats, target: Floats, mass: Floats) -> tuple[float, Floats]:
        """Loss of the answers predicted at z (dim,), and its slope (dim,)."""
        near = np.exp((2 * (self._points @ z) - self._norms - z @ z) / np.float32(self._scale))
        found = near @ self._weights
        table = (self._mean + (found if self._reduce is None else self._reduce @ found)).reshape(-1, self._classes)
        x = basis @ table
        x -= x.max(axis=1, keepdims=True)
        odds = np.exp(x)
        total = odds.sum(axis=1, keepdims=True)
        loss = -float((target * (x - np.log(total))).sum(dtype=np.float64))
        back = (basis.T @ (odds * (mass / total) - target)).ravel()  # d loss / d table
        back = (self._weights @ (back if self._reduce is None else self._reduce.T @ back)) * near
        slope: Floats = (back @ self._points - z * back.sum()) * np.float32(2 / self._scale)
        return loss, slope

    def _add(self, z: Doubles, tables: Floats, asked: Asked) -> None:
        self._pad()
        if self._fits:
            self._precision = _with(
                self._precision, self._kernel(self._z, z), self._kernel(z, z) + NUGGET * np.eye(len(z))
            )
        self._z = np.concatenate([self._z, z])
        self._tables = np.concatenate([self._tables, tables.reshape(len(z), -1)])
        self._asked.append(asked)
        while len(self._z) > ARCHIVE:
            count = self._asked.pop(0).count
            self._z, self._tables = self._z[count:], self._tables[count:]
            self._precision = _without(self._precision, count)

    def _kernel(self, a: Doubles, b: Doubles) -> Doubles:
        """(p, dim), (q, dim) -> (p, q)."""
        distances = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        found: Doubles = np.exp(-np.maximum(distances, 0) / self._scale)
        return found

    def _pad(self) -> None:
        """Room for coefficients of directions that the basis has won."""
        missing = self.map.rank * self._classes - self._tables.shape[1]
        if missing > 0:
            self._tables = np.pad(self._tables, ((0, 0), (0, missing)))

    def _infer_again(self, precision: Floats, centred: Floats) -> None:
        """Infers what was not asked of some generations, from all others as they are known now.

        With the precision matrix P of the candidates, P_bb^-1 (P Y)_b is what a generation b differs by from its
        prediction by the others.
        """
        ends = np.cumsum([each.count for each in self._asked])
        partly = [i for i, each in enumerate(self._asked) if each.rows is not None]
        earlier = self._rng.permutation(partly[:-LATEST])[:SWEEP]
        gains = dict[bytes, tuple[Floats, Floats]]()
        for i in [*(int(i) for i in earlier), *partly[-LATEST:]]:
            each = self._asked[i]
            if each.rows is None or each.answers is None:
                continue
            block = slice(ends[i] - each.count, ends[i])
            key = each.rows.tobytes()
            if key not in gains:
                gains[key] = self.map.gain(each.rows).astype(np.float32), self.map.basis[each.rows].astype(np.float32)
            gain, basis = gains[key]
            surprise = np.linalg.inv(precision[block, block]) @ (precision[block] @ centred)
            predicted = (self._tables[block] - surprise).reshape(each.count, -1, self._classes)
            found = (predicted + gain @ (each.answers - basis @ predicted)).reshape(each.count, -1)
            centred[block] += found - self._tables[block]
            self._tables[block] = found


def _inverse(matrix: Doubles) -> Doubles:
    """Of a symmetric positive definite matrix."""
    factor, _ = dpotrf(matrix, lower=1)
    lower, _ = dpotri(factor, lower=1, overwrite_c=1)
    found: Doubles = np.tril(lower) + np.tril(lower, -1).T
    return found


def _with(inverse: Doubles, between: Doubles, own: Doubles) -> Doubles:
    """The inverse after rows were added: between (n, b) the old ones and the new, own (b, b)."""
    reached = inverse @ between  # (n, b)
    new = np.linalg.inv(own - between.T @ reached)
    new = (new + new.T) / 2
    across = -reached @ new
    return np.block([[inverse - across @ reached.T, across], [across.T, new]])


def _without(inverse: Doubles, count: int) -> Doubles:
    """The inverse after the first rows were taken away."""
    across = inverse[count:, :count]
    found: Doubles = inverse[count:, count:] - across @ np.linalg.solve(inverse[:count, :count], across.T)
    return found


def _principal(centred: Floats, rng: np.random.Generator) -> Floats | None:
    """Directions (r C, q) that hold nearly all of the tables' variance, randomised; None where tables are small."""
    count, size = centred.shape
    if size <= SMALL:
        return None
    if count <= COEFFICIENTS:  # from the smaller product: tables are far longer than they are many
        sizes, axes = np.linalg.eigh((centred @ centred.T).astype(np.float64))
        kept = sizes > ROUNDING * sizes[-1]
        found: Floats = (centred.T @ (axes[:, kept] / np.sqrt(sizes[kept])).astype(np.float32)).astype(np.float32)
        return found
    sketch = centred.T @ rng.standard_normal((count, COEFFICIENTS), dtype=np.float32)
    directions: Floats = np.linalg.qr(centred.T @ (centred @ sketch))[0]
    return directions
