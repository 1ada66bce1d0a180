"""Answers to all images from answers to a few.

The log-odds of a dual encoder are linear in an image's features, so the answers to n images, as columns of n numbers,
lie in a space of far fewer dimensions. Its basis is learned from candidates that were asked about every image; then a
few well-chosen images say most of what the others would.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from unsee.types import Doubles, Floats, Ints

LOST = 1e-5  # share of the answers' variance that the basis may leave out
JITTER = 1e-7  # of a covariance's mean variance, so that it can be inverted
LEAST_NOISE = 1e-6


class ImageMap:
    """A basis of the answers to n images, and how they vary in it."""

    def __init__(self, images: int) -> None:
        self.basis = np.zeros((images, 0))  # (n, r), orthonormal; it only ever grows
        self.noise = LEAST_NOISE  # variance of one answer outside the basis
        self._covariance = np.zeros((0, 0))  # (r, r)
        self._sum = np.zeros((images, images))
        self._columns = 0

    @property
    def rank(self) -> int:
        return self.basis.shape[1]

    def learn(self, answers: Floats) -> None:
        """Learns from answers (b, n, C) to all images, centred over classes."""
        columns = np.moveaxis(answers, 0, 1).reshape(len(self.basis), -1).astype(np.float64)
        self._sum += columns @ columns.T
        self._columns += columns.shape[1]
        rest = columns - self.basis @ (self.basis.T @ columns)
        rest -= self.basis @ (self.basis.T @ rest)  # again: rounding leaves a little of the basis
        directions, sizes, _ = np.linalg.svd(rest, full_matrices=False)
        variance = np.trace(self._sum) / self._columns
        beyond = np.cumsum((sizes**2)[::-1])[::-1]  # what is lost without this direction and those behind it
        new = int((beyond > LOST * variance * columns.shape[1]).sum())
        self.basis = np.hstack([self.basis, directions[:, :new]])
        self._covariance = self.basis.T @ self._sum @ self.basis / self._columns
        self.noise = max((variance - np.trace(self._covariance)) / len(self.basis), LEAST_NOISE)

    def choose(self, count: int) -> Ints:
        """The images that say most of the others, in order of their rows. -> (count,)."""
        sizes, axes = np.linalg.eigh(self._covariance)
        weighted = self.basis @ (axes * np.sqrt(np.maximum(sizes, 0)))
        order = qr(weighted.T, mode="r", pivoting=True)[1]
        return np.sort(order[:count]).astype(np.int64)

    def dimensions(self, share: float) -> int:
        """In how many dimensions this share of the answers' variance lies."""
        sizes = np.linalg.eigvalsh(self._covariance)[::-1]
        return min(len(sizes), 1 + int(np.searchsorted(np.cumsum(sizes), share * sizes.sum())))

    def gain(self, rows: Ints) -> Doubles:
        """What an error of 1 in the answers to these images says of the coefficients. -> (r, m)."""
        seen = self.basis[rows] @ self._covariance  # (m, r)
        variance = seen @ self.basis[rows].T
        variance[np.diag_indices(len(rows))] += self.noise + JITTER * np.trace(variance) / len(rows)
        return np.asarray(np.linalg.solve(variance, seen).T, dtype=np.float64)
