"""Trains a learner's weights, and keeps those with the best validation score.

The user's model is never changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unsee.answers.metrics import scores, top_classes
from unsee.data.images import Images
from unsee.errors import RunError
from unsee.methods.best import Evaluated
from unsee.methods.build import make_learner
from unsee.methods.descent import DECAY, MOMENTUM
from unsee.methods.learners import Learner
from unsee.methods.recorder import Recorder
from unsee.methods.saving import SavingClock, uninterrupted
from unsee.methods.task import Task
from unsee.models.black_box import BoundImages
from unsee.types import Floats

FEW_IMAGES = 8  # to measure on


@dataclass(frozen=True, eq=False)
class TrainedWeights:
    """A learner with its best weights."""

    learner: Learner

    def confidences(self, images: BoundImages) -> Floats:
        return self.learner.confidences(images.images)

    def arrays(self) -> Mapping[str, Any]:
        """The trained weights, in the learner's order."""
        return {f"{i:04}": _array(t) for i, t in enumerate(self.learner.tensors())}


class Optimizers:
    """Adam, and SGD as CoOp has it for groups that want it."""

    def __init__(self, learner: Learner) -> None:
        groups, self._rate = learner.groups(), learner.rate
        own = {name: [g for g in groups if g["optimizer"] == name] for name in ("adam", "sgd")}
        self._adam = torch.optim.Adam([{"params": g["params"], "lr": g["lr"]} for g in own["adam"]])
        slow = [{"params": g["params"], "lr": g["lr"]} for g in own["sgd"]]
        self._sgd = torch.optim.SGD(slow, momentum=MOMENTUM, weight_decay=DECAY) if slow else None

    def zero_grad(self) -> None:
        for one in self._all:
            one.zero_grad()

    def step(self, taken: int) -> None:
        """One step, after this many."""
        for group in self._sgd.param_groups if self._sgd else ():
            group["lr"] = self._rate(taken)
        for one in self._all:
            one.step()

    @property
    def _all(self) -> list[torch.optim.Optimizer]:
        return [self._adam, *([self._sgd] if self._sgd else [])]

    def memory(self) -> Iterator[tuple[str, torch.Tensor, dict[str, torch.Tensor], tuple[str, ...]]]:
        """What each optimiser remembers of each tensor: a name to save it by, the tensor, and the entries."""
        kinds = (("adam", self._adam, ("step", "exp_avg", "exp_avg_sq")), ("sgd", self._sgd, ("momentum_buffer",)))
        for kind, one, entries in kinds:
            tensors = [p for group in one.param_groups for p in group["params"]] if one else []
            for i, tensor in enumerate(tensors):
                assert one is not None
                yield f"{kind}.{i}", tensor, one.state[tensor], entries


def train_weights(task: Task, recorder: Recorder) -> TrainedWeights:
    """Fine-tuning, CoOp with parameter update, and classifiers from scratch, from where the history ends."""
    learner, (_, valid) = make_learner(task), task.tuning_images
    optimizer = Optimizers(learner)
    recorder.best.kept = _restore(learner, optimizer, recorder.restore())
    recorder.start()
    clock = SavingClock()
    try:
        while not recorder.done:
            found = scores(top_classes(learner.confidences(valid)), valid.labels, task.forget)
            before = recorder.ledger.generations
            optimizer.zero_grad()
            with _kept_moving(learner) as moving:
                loss = learner.backward(step=before)
            with uninterrupted():
                generation = recorder.count(Evaluated(np.array([loss]), {0: found}))
                if generation.chosen is not None:
                    recorder.best.kept = _keep(learner, moving, recorder.best.kept)
                optimizer.step(before)
                _count(task, valid, recorder)
                if clock.due or recorder.done:
                    with clock.saving():
                        recorder.append(generation, _state(learner, optimizer, recorder))
                else:
                    recorder.append(generation)
    except KeyboardInterrupt:  # before a step has changed anything, or after all of it: see `uninterrupted`
        recorder.save_state(_state(learner, optimizer, recorder))
        raise
    if recorder.best.kept is None:
        raise RunError("the run has no weights yet")
    with torch.no_grad():
        for tensor, kept in zip(learner.tensors(), recorder.best.kept, strict=True):
            tensor.copy_(kept)
    return TrainedWeights(learner)


def measure_step(task: Task) -> float:
    """Seconds that one training step takes, measured on a few images to validate and one batch to train on."""
    learner, (_, valid) = make_learner(task), task.split_rows
    few = task.data.train.subset(valid[:FEW_IMAGES])
    learner.confidences(few)  # the first time is slower
    started = time.perf_counter()
    learner.confidences(few)
    validated = time.perf_counter()
    learner.backward(batches=1)
    return (validated - started) * len(valid) / len(few) + (time.perf_counter() - validated) * learner.batches


@contextmanager
def _kept_moving(learner: Learner) -> Iterator[list[torch.Tensor]]:
    """Running means as they were validated: a step changes them, and one that is broken off must not."""
    moving = [t.detach().clone() for t in learner.moving()]
    try:
        yield moving
    except BaseException:
        with torch.no_grad():
            for tensor, kept in zip(learner.moving(), moving, strict=True):
                tensor.copy_(kept)
        raise


def _keep(learner: Learner, moving: list[torch.Tensor], before: list[torch.Tensor] | None) -> list[torch.Tensor]:
    """A copy of the weights with these buffers, in the memory of the copy before: a large model has no room for two."""
    tensors = learner.tensors()
    now = [t.detach() for t in tensors[: len(tensors) - len(moving)]] + moving
    if before is None:
        return [t.clone() for t in now]
    for kept, tensor in zip(before, now, strict=True):
        kept.copy_(tensor)
    return before


def _count(task: Task, valid: Images, recorder: Recorder) -> None:
    recorder.ledger.prompts_encoded += 2 * len(task.forget)
    recorder.ledger.image_queries += task.images_per_candidate + len(valid)


def _state(learner: Learner, optimizer: Optimizers, recorder: Recorder) -> dict[str, Any]:
    """Weights, the best so far, and what the optimiser remembers."""
    state: dict[str, Any] = {f"now.{i}": _array(t) for i, t in enumerate(learner.tensors())}
    state |= {f"best.{i}": _array(t) for i, t in enumerate(recorder.best.kept or [])}
    for name, _, memory, _ in optimizer.memory():
        state |= {f"{name}.{entry}": _array(value) for entry, value in memory.items()}
    return state


def _restore(learner: Learner, optimizer: Optimizers, state: Mapping[str, Any]) -> list[torch.Tensor] | None:
    """Puts a saved state back; returns the best weights so far."""
    if not state:
        return None
    tensors = learner.tensors()
    try:
        with torch.no_grad():
            for i, tensor in enumerate(tensors):
                tensor.copy_(torch.from_numpy(state[f"now.{i}"].copy()).view_as(tensor))
        for name, parameter, memory, entries in optimizer.memory():
            for entry in entries:
                saved = torch.from_numpy(state[f"{name}.{entry}"].copy())
                if entry == "step":  # Adam counts on the CPU, wherever the weights are
                    memory[entry] = saved.reshape(())
                else:
                    memory[entry] = saved.reshape(parameter.shape).to(parameter.device)
        return [torch.from_numpy(state[f"best.{i}"].copy()).view_as(t).to(t.device) for i, t in enumerate(tensors)]
    except (KeyError, RuntimeError) as error:
        raise RunError(f"the checkpoint does not fit the model ({error})") from None


def _array(t: torch.Tensor) -> Any:
    return np.atleast_1d(t.detach().cpu().contiguous().numpy())
