"""Trains a learner's weights: journal, resume, and the weights with the best validation score kept.

The user's model is never changed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from unsee.baselines.learners import Learner, make_learner
from unsee.errors import RunError
from unsee.images import Images
from unsee.learned import Watch
from unsee.models import Bound
from unsee.records import Floats, Generation, Ledger, Scores
from unsee.runs import Run
from unsee.scores import answers, scores
from unsee.task import Task

SMALL = 64 * 2**20  # bytes of state saved after every step; more, and only after every 25th
State = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Trained:
    """A learner with its best weights."""

    learner: Learner
    valid: Scores
    ledger: Ledger
    history: list[Generation]

    def confidences(self, images: Images, bound: Bound | None = None) -> Floats:
        return self.learner.confidences(images)

    def save(self, folder: Path) -> None:
        """The trained weights, in the learner's order."""
        tensors = {f"{i:04}": t.detach().contiguous() for i, t in enumerate(self.learner.tensors())}
        save_file(tensors, folder / "weights.safetensors")


def train_weights(task: Task, run: Run | None, watch: Watch | None) -> Trained:
    """Fine-tuning, CoOp with parameter update, and classifiers from scratch; goes on where the run stopped."""
    settings, learner = task.settings, make_learner(task)
    state = run.read_state() if run is not None and run.history else {}
    history = [] if run is None else list(run.history)
    valid = task.data.train.subset(task.split.valid)
    optimizer = torch.optim.Adam(learner.groups())
    ledger = Ledger(**history[-1].ledger) if history else Ledger()
    best, merit, top = _restore(learner, optimizer, state), -np.inf, None
    if history and history[-1].valid is not None:
        top = history[-1].valid
        merit = top.h if settings.merit == "h" else top.acc_mem
    started = time.perf_counter() - (history[-1].seconds if history else 0.0)
    while ledger.generations < settings.iterations and ledger.candidates < settings.limit:
        found = scores(answers(learner.confidences(valid)), valid.labels, task.forget)
        now = found.h if settings.merit == "h" else found.acc_mem
        chosen = None
        if now > merit:
            merit, top, chosen = now, found, 0
            best = [t.detach().clone() for t in learner.tensors()]
        optimizer.zero_grad()
        loss = learner.backward()
        optimizer.step()
        ledger.generations += 1
        ledger.candidates += 1
        ledger.prompts_encoded += 2 * len(task.forget)
        ledger.image_queries += len(task.split.train) + len(valid)
        generation = Generation(
            number=ledger.generations,
            losses=np.array([loss]),
            candidates=ledger.candidates,
            chosen=chosen,
            valid=top,
            ledger=ledger.as_dict(),
            seconds=time.perf_counter() - started,
        )
        history.append(generation)
        if run is not None:
            run.append(generation)
            size = 4 * sum(t.numel() * t.element_size() for t in learner.tensors())
            if size <= SMALL or generation.number % 25 == 0 or generation.number == settings.iterations:
                run.write_state(_state(learner, optimizer, best))
        if watch is not None:
            watch(generation, settings)
    if best is None or top is None:
        raise RunError("the run has no weights yet")
    with torch.no_grad():
        for tensor, kept in zip(learner.tensors(), best, strict=True):
            tensor.copy_(kept)
    trained = Trained(learner, top, ledger, history)
    if run is not None and settings.save_weights:
        trained.save(run.folder)
    return trained


def _state(learner: Learner, optimizer: torch.optim.Adam, best: list[torch.Tensor] | None) -> State:
    """Weights, the best so far, and what the optimiser remembers."""
    state: State = {f"now.{i}": _array(t) for i, t in enumerate(learner.tensors())}
    state |= {f"best.{i}": _array(t) for i, t in enumerate(best or [])}
    for i, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state[parameter].items():
            state[f"adam.{i}.{name}"] = _array(value)
    return state


def _restore(learner: Learner, optimizer: torch.optim.Adam, state: State) -> list[torch.Tensor] | None:
    """Puts a saved state back; returns the best weights so far."""
    if not state:
        return None
    tensors = learner.tensors()
    try:
        with torch.no_grad():
            for i, tensor in enumerate(tensors):
                tensor.copy_(torch.from_numpy(state[f"now.{i}"].copy()).view_as(tensor))
        for i, parameter in enumerate(_parameters(optimizer)):
            for name in ("step", "exp_avg", "exp_avg_sq"):
                saved = torch.from_numpy(state[f"adam.{i}.{name}"].copy())
                optimizer.state[parameter][name] = saved.reshape(() if name == "step" else parameter.shape)
        return [torch.from_numpy(state[f"best.{i}"].copy()).view_as(t) for i, t in enumerate(tensors)]
    except (KeyError, RuntimeError) as error:
        raise RunError(f"the checkpoint does not fit the model ({error})") from None


def _parameters(optimizer: torch.optim.Adam) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _array(t: torch.Tensor) -> Any:
    return np.atleast_1d(t.detach().cpu().contiguous().numpy())
