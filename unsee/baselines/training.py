"""Trains a learner's weights, with the face of `PromptTuner`: run folder, journal, resume, result.

The user's model is never changed. The weights with the best validation score are kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from unsee.baselines.learners import Learner, make_learner
from unsee.errors import RunError
from unsee.evaluation import Evaluation, from_confidences, result_record
from unsee.images import Anything, Images, as_images
from unsee.models import BlackBox, Bound
from unsee.prompts import plain_names
from unsee.records import Data, Generation, Ledger, Scores
from unsee.runs import Run
from unsee.scores import answers, scores
from unsee.task import Task, make_task
from unsee.tuner import Watch

SMALL = 64 * 2**20  # bytes of state saved after every step; more, and only after every 25th
State = dict[str, Any]


class WeightTuner:
    """Fine-tuning, CoOp with parameter update, and classifiers from scratch."""

    def __init__(
        self, forget: str | Sequence[str], method: str, *, preset: str = "tuned", seed: int = 0, **settings: Any
    ) -> None:
        self.forget = plain_names(forget)
        self.method = method
        self.preset = preset
        self.seed = seed
        self.settings = settings

    def fit(
        self,
        model: BlackBox,
        data: Data,
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        watch: Watch | None = None,
    ) -> WeightTuner:
        """Trains; with `out`, as a run folder that can be resumed."""
        task = self._prepare(model, data)
        learner = make_learner(task)
        if out is None:
            return self._train(task, learner, None, [], {}, watch)
        with Run.create(out, task.config(), overwrite) as run:
            return self._train(task, learner, run, [], {}, watch)

    def resume(
        self, model: BlackBox, data: Data, out: str | Path, *, watch: Watch | None = None, **longer: int | None
    ) -> WeightTuner:
        """Goes on with a run folder where it stopped."""
        with Run.open(out) as run:
            self.settings = self.settings | {name: value for name, value in longer.items() if value is not None}
            task = self._prepare(model, data)
            task.check_same(run)
            run.write_config(task.config())
            state = run.read_state()
            return self._train(task, make_learner(task), run, list(run.history), state, watch)

    def predict(self, images: Anything) -> list[str]:
        """The class each image is taken for."""
        return [self.class_names_[i] for i in answers(self.learner_.confidences(as_images(images)))]

    def score(self, images: Images) -> Scores:
        """H, Err_for and Acc_mem on labelled images."""
        return self.evaluate(images).tuned

    def evaluate(self, images: Images, bound: Bound | None = None) -> Evaluation:
        """The trained weights on labelled images, beside zero-shot and label mask of the model as it was."""
        bound = bound or self.model_.bind(images, self.class_names_)
        plain = bound.zero_shot(self.settings_.template)
        return from_confidences(plain, self.learner_.confidences(images), images.labels, self.forget_mask_)

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Writes the run as a folder, after the fact, the trained weights included."""
        with Run.create(out, self.config_, overwrite) as run:
            for generation in self.history_:
                run.append(generation)
        self._save_weights(Path(out))

    def result(self, evaluation: Evaluation, seconds: dict[str, float]) -> dict[str, Any]:
        """What `result.json` holds."""
        return result_record(self.made_, evaluation, seconds)

    def _prepare(self, model: BlackBox, data: Data) -> Task:
        return make_task(model, data, self.forget, self.method, self.preset, self.seed, self.settings)

    def _train(
        self,
        task: Task,
        learner: Learner,
        run: Run | None,
        history: list[Generation],
        state: State,
        watch: Watch | None,
    ) -> WeightTuner:
        settings = task.settings
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
        return self._learned(task, learner, run, history, top, ledger)

    def _learned(
        self, task: Task, learner: Learner, run: Run | None, history: list[Generation], valid: Scores, ledger: Ledger
    ) -> WeightTuner:
        self.model_ = task.model
        self.settings_ = task.settings
        self.class_names_ = task.data.class_names
        self.forget_mask_ = task.forget
        self.skipped_ = task.split.skipped
        self.config_ = task.config()
        self.learner_ = learner
        self.history_ = history
        self.valid_ = valid
        self.ledger_ = ledger
        self.made_ = task.made(valid, ledger)
        if run is not None and task.settings.save_weights:
            self._save_weights(run.folder)
        return self

    def _save_weights(self, folder: Path) -> None:
        tensors = {f"{i:04}": t.detach().contiguous() for i, t in enumerate(self.learner_.tensors())}
        save_file(tensors, folder / "weights.safetensors")


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
