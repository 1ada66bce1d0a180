"""Searches that follow a slope: measured through answers alone (CBBT, ZIP), or given by a white box (CoOp).

They implement `search.Search`: ask for candidates, tell their losses. All three step with Adam, with the norm of the
slope clipped; CoOp also with SGD, as its own configuration has it. The step size falls along a cosine over the planned
number of steps, or over epochs after one to warm up, so that number cannot change later.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from unsee.errors import InputError
from unsee.types import Doubles, Floats, State

MOMENTUM = 0.9  # of CoOp's SGD
DECAY = 5e-4  # weight decay of CoOp and CBBT: this share of the contexts is added to their slope
WARM_UP = 1e-5  # their rate in the first epoch


class Slope(Protocol):
    """The gradient of the loss at a point and step, from 0. (dim,) -> (dim,). Only a white box has one."""

    def __call__(self, point: Doubles, step: int) -> Doubles: ...


class Optimizer(Protocol):
    """Moves a point downhill, and can be saved."""

    point: Doubles
    taken: int  # steps so far

    def step(self, slope: Doubles) -> None: ...
    def state(self) -> State: ...
    def restore(self, state: State) -> None: ...


class Adam:
    """Adam on one vector, with the slope's norm clipped and the rate falling to zero along a cosine.

    per_epoch: steps of an epoch, where the rate falls by epochs; 0 where it falls by steps. decayed: what weight decay
    is computed from beside the point, after clipping; None for no decay.
    """

    def __init__(
        self, point: Doubles, rate: float, clip: float, steps: int, per_epoch: int = 0, decayed: Doubles | None = None
    ) -> None:
        self.point = point.astype(np.float64).copy()
        self._rate = rate
        self._clip = clip
        self._steps = steps
        self._per_epoch = per_epoch
        self._decayed = decayed
        self.taken = 0
        self._mean = np.zeros_like(self.point)
        self._square = np.zeros_like(self.point)

    def step(self, slope: Doubles) -> None:
        """One step downhill."""
        norm = float(np.linalg.norm(slope))
        if norm > self._clip:
            slope = slope * (self._clip / norm)
        if self._decayed is not None:
            slope = slope + DECAY * (self.point + self._decayed)
        rate = (
            rate_of_epoch(self._rate, self.taken, self._steps, self._per_epoch)
            if self._per_epoch
            else self._rate * 0.5 * (1 + np.cos(np.pi * self.taken / max(1, self._steps)))
        )
        self.taken += 1
        self._mean = 0.9 * self._mean + 0.1 * slope
        self._square = 0.999 * self._square + 0.001 * slope**2
        mean = self._mean / (1 - 0.9**self.taken)
        square = self._square / (1 - 0.999**self.taken)
        self.point = self.point - rate * mean / (np.sqrt(square) + 1e-8)

    def state(self) -> State:
        """Everything that changes, as arrays."""
        return {
            "point": self.point,
            "mean": self._mean,
            "square": self._square,
            "taken": np.array([self.taken], dtype=np.float64),
        }

    def restore(self, state: State) -> None:
        """Continue from a saved state."""
        _check_state(state, self.state())
        self.point, self._mean, self._square = state["point"], state["mean"], state["square"]
        self.taken = int(state["taken"][0])


class Sgd:
    """SGD with momentum on one vector, scheduled by epochs as CoOp does: one to warm up, then along a cosine."""

    def __init__(self, point: Doubles, rate: float, steps: int, per_epoch: int) -> None:
        self.point = point.astype(np.float64).copy()
        self._rate = rate
        self._steps = steps
        self._per_epoch = per_epoch
        self.taken = 0
        self._velocity = np.zeros_like(self.point)

    def step(self, slope: Doubles) -> None:
        """One step downhill."""
        rate = rate_of_epoch(self._rate, self.taken, self._steps, self._per_epoch)
        self.taken += 1
        self._velocity = MOMENTUM * self._velocity + slope
        self.point = self.point - rate * self._velocity

    def state(self) -> State:
        """Everything that changes, as arrays."""
        return {
            "point": self.point,
            "velocity": self._velocity,
            "taken": np.array([self.taken], dtype=np.float64),
        }

    def restore(self, state: State) -> None:
        """Continue from a saved state."""
        _check_state(state, self.state())
        self.point, self._velocity = state["point"], state["velocity"]
        self.taken = int(state["taken"][0])


def rate_of_epoch(rate: float, taken: int, steps: int, per_epoch: int) -> float:
    """The rate of CoOp and CBBT after so many steps: one epoch to warm up, then along a cosine, epoch by epoch."""
    epoch, epochs = taken // per_epoch, -(-steps // per_epoch)
    return float(rate * 0.5 * (1 + np.cos(np.pi * (epoch - 1) / epochs))) if epoch else WARM_UP


def _check_state(state: State, mine: State) -> None:
    for name, array in mine.items():
        if name not in state or state[name].shape != array.shape:
            raise InputError(f"the checkpoint does not fit: {name} is missing or of another shape")


class GradientDescent:
    """CoOp: one candidate per generation, the slope by back-propagation. Its state is saved, not replayed."""

    def __init__(self, slope: Slope, optimizer: Optimizer) -> None:
        self._slope = slope
        self._optimizer = optimizer

    def ask(self) -> Doubles:
        return self._optimizer.point[None].copy()

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        """Steps down the true slope at the point last asked for; the loss itself is for the record."""
        self._optimizer.step(self._slope(z[0], self._optimizer.taken))

    def state(self) -> State:
        return self._optimizer.state()

    def restore(self, state: State) -> None:
        self._optimizer.restore(state)


class ForwardDifferences:
    """CBBT without adapter: the slope from differences along random orthonormal directions.

    A generation is the point itself and one candidate per direction. With as many directions as dimensions the
    estimate is the gradient, up to the curvature within epsilon.

    CBBT's own epsilon, max(1 / dim, 1e-3), moves an entry by about as much as half precision rounds it, and the
    differences are noise there. `entry` makes epsilon long enough to move an entry by this much on average.
    """

    def __init__(
        self,
        dim: int,
        rng: np.random.Generator,
        *,
        population: int,
        rate: float,
        steps: int,
        clip: float = 5.0,
        entry: float = 0.0,
    ) -> None:
        self._adam = Adam(np.zeros(dim), rate, clip, steps)
        self._rng = rng
        self._directions = min(population - 1, dim)
        self._asked = np.zeros((0, dim))
        self._epsilon = max(1 / dim, 1e-3, entry * np.sqrt(dim))

    def ask(self) -> Doubles:
        """The point, then the point moved along each direction. -> (1 + directions, dim)."""
        self._asked = orthonormal(self._rng, self._directions, len(self._adam.point))
        return np.concatenate([self._adam.point[None], self._adam.point + self._epsilon * self._asked])

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        self._adam.step(self.estimate(losses))

    def estimate(self, losses: Doubles) -> Doubles:
        """The slope, scaled up for the directions that were not measured."""
        rises = (losses[1:] - losses[0]) / self._epsilon
        slope: Doubles = rises @ self._asked * (self._asked.shape[1] / len(self._asked))
        return slope


class UnitDifferences:
    """CBBT without adapter, as its repository has it: differences along independent random directions of length 1.

    The slope is their mean times 1 / epsilon, which is its number of dimensions wherever these are fewer than 1,000.
    Contexts decay towards 0 (`start`, what z = 0 stands for), and the rate falls by epochs.
    """

    def __init__(
        self, start: Doubles, rng: np.random.Generator, *, population: int, rate: float, steps: int, per_epoch: int
    ) -> None:
        self._adam = Adam(np.zeros(start.size), rate, 5.0, steps, per_epoch, start)
        self._rng = rng
        self._asked = np.zeros((population - 1, start.size))
        self._epsilon = max(1 / start.size, 1e-3)

    def ask(self) -> Doubles:
        """The point, then the point moved along each direction. -> (1 + directions, dim)."""
        drawn = self._rng.standard_normal(self._asked.shape)
        self._asked = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        return np.concatenate([self._adam.point[None], self._adam.point + self._epsilon * self._asked])

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        rises = (losses[1:] - losses[0]) / self._epsilon
        self._adam.step(rises @ self._asked / len(self._asked) / self._epsilon)


class TwoSided:
    """ZIP: simultaneous perturbation, two-sided, averaged over pairs, clipped at the root of the dimension."""

    def __init__(
        self, dim: int, rng: np.random.Generator, *, population: int, rate: float, steps: int, width: float = 0.1
    ) -> None:
        self._adam = Adam(np.zeros(dim), rate, float(np.sqrt(dim)), steps)
        self._rng = rng
        self._pairs = max(1, population // 2)
        self._width = width
        self._signs = np.zeros((0, dim))

    def ask(self) -> Doubles:
        """Each pair on both sides of the point. -> (2 pairs, dim)."""
        self._signs = self._rng.choice([-1.0, 1.0], size=(self._pairs, len(self._adam.point)))
        return np.concatenate(
            [self._adam.point + self._width * self._signs, self._adam.point - self._width * self._signs]
        )

    def tell(self, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        rises = (losses[: self._pairs] - losses[self._pairs :]) / (2 * self._width)
        self._adam.step((rises[:, None] * self._signs).mean(axis=0))


def orthonormal(rng: np.random.Generator, count: int, dim: int) -> Doubles:
    """Random directions of length 1, at right angles to one another. -> (count, dim)."""
    q, r = np.linalg.qr(rng.standard_normal((dim, count)))
    directions: Doubles = (q * np.sign(np.diag(r))).T
    return directions
