"""The method, in one loop: propose prompts, ask the model, learn from its answers.

`PromptTuner` is used like a scikit-learn estimator: the constructor stores settings, `fit` works, what
it learned ends in an underscore. With `out=` the run is a folder that survives a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unsee.errors import RunError
from unsee.evaluation import Evaluation, evaluate, result_record
from unsee.images import Anything, Images, as_images
from unsee.judge import Best, Judge
from unsee.models import BlackBox, Bound
from unsee.prompts import Prompt, plain_names
from unsee.records import Data, Doubles, Generation, Scores
from unsee.runs import Run
from unsee.scores import answers
from unsee.search import BlockSearch, Search, Stateful
from unsee.settings import Settings
from unsee.task import Task, make_task

Watch = Callable[[Generation, Settings], None]  # called after every generation


class PromptTuner:
    """Finds contexts under which a model no longer recognises the classes in `forget`, and still the rest.

    Any setting of `unsee.Settings` may be given by name; what is not comes from the preset's entry for
    the data set.
    """

    def __init__(
        self, forget: str | Sequence[str], method: str = "lcs", *, preset: str = "tuned", seed: int = 0, **settings: Any
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
    ) -> PromptTuner:
        """Tunes a prompt; with `out`, as a run folder that can be resumed."""
        task = self._prepare(model, data)
        judge = Judge(task)
        if out is None:
            return self._tune(task, judge, None, [], watch)
        with Run.create(out, task.config(), overwrite) as run:
            return self._tune(task, judge, run, [], watch)

    def resume(
        self, model: BlackBox, data: Data, out: str | Path, *, watch: Watch | None = None, **longer: int | None
    ) -> PromptTuner:
        """Goes on with a run folder exactly where it stopped; `longer` may raise its budget or iterations."""
        with Run.open(out) as run:
            self.settings = self.settings | {name: value for name, value in longer.items() if value is not None}
            task = self._prepare(model, data)
            task.check_same(run)
            run.write_config(task.config())
            state = run.read_state() if task.settings.search == "gradient" else {}
            history = list(run.history)
            return self._tune(task, Judge(task, history[-1].ledger if history else {}), run, history, watch, state)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PromptTuner:
        """The tuner whose run has this config."""
        settings = dict(config["settings"])
        method, preset, seed = (settings.pop(key) for key in ("method", "preset", "seed"))
        return cls(config["forget"], method, preset=preset, seed=seed, **settings)

    def predict(self, images: Anything) -> list[str]:
        """The class each image is taken for under the tuned prompt."""
        bound = self.model_.bind(as_images(images), self.class_names_)
        return [self.class_names_[i] for i in answers(bound.confidences(self.contexts_[None])[0])]

    def score(self, images: Images) -> Scores:
        """H, Err_for and Acc_mem of the tuned prompt on labelled images."""
        return self.evaluate(images).tuned

    def evaluate(self, images: Images, bound: Bound | None = None) -> Evaluation:
        """The tuned prompt on labelled images, beside zero-shot and label mask; `bound` if they are bound already."""
        bound = bound or self.model_.bind(images, self.class_names_)
        return evaluate(bound, images.labels, self.contexts_, self.forget_mask_, self.settings_.template)

    @property
    def prompt(self) -> Prompt:
        """The artefact to deploy."""
        card = self.model_.card
        return Prompt(
            self.contexts_, self.class_names_, self.made_.forget, card.name, card.fingerprint, self.settings_.template
        )

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Writes the whole run as a folder, after the fact."""
        with Run.create(out, self.config_, overwrite) as run:
            for generation in self.history_:
                run.append(generation)
        self.prompt.save(out)

    def result(self, evaluation: Evaluation, seconds: dict[str, float]) -> dict[str, Any]:
        """What `result.json` holds."""
        return result_record(self.made_, evaluation, seconds)

    def _prepare(self, model: BlackBox, data: Data) -> Task:
        return make_task(model, data, self.forget, self.method, self.preset, self.seed, self.settings)

    def _tune(
        self,
        task: Task,
        judge: Judge,
        run: Run | None,
        history: list[Generation],
        watch: Watch | None,
        state: dict[str, Doubles] | None = None,
    ) -> PromptTuner:
        settings, contexts_of = task.settings, task.parametrization.contexts
        search, best, asked = _replay(task, history, state or {})
        ledger = judge.ledger
        started = time.perf_counter() - (history[-1].seconds if history else 0.0)
        while ledger.generations < settings.iterations and ledger.candidates < settings.limit:
            z = search.ask() if asked is None else asked  # (b, dim)
            partial = None if asked is None else history.pop()
            done = np.zeros(0) if partial is None else partial.losses
            contexts = contexts_of(z[len(done) :][: settings.limit - ledger.candidates])  # (b, m, D)
            losses, valid = judge.judge(contexts)  # (b,)
            chosen = best.offer(contexts, losses, valid, offset=len(done))
            losses = np.concatenate([done, losses])
            ledger.candidates += len(contexts)
            whole = len(losses) == len(z)
            if whole:
                search.tell(z, losses)
                ledger.generations += 1
            generation = Generation(
                number=ledger.generations + (not whole),
                losses=losses,
                candidates=ledger.candidates,
                chosen=partial.chosen if chosen is None and partial is not None else chosen,
                valid=best.scores,
                partial=not whole,
                ledger=ledger.as_dict(),
                seconds=time.perf_counter() - started,
            )
            history.append(generation)
            if run is not None:
                run.append(generation)
                if isinstance(search, Stateful):
                    run.write_state(search.state() | best.state())
            if watch is not None:
                watch(generation, settings)
            asked = None
            if settings.stop_when_stalled and isinstance(search, BlockSearch) and search.stalled():
                break
        return self._learned(task, judge, run, history, best)

    def _learned(self, task: Task, judge: Judge, run: Run | None, history: list[Generation], best: Best) -> PromptTuner:
        if best.contexts is None:
            raise RunError("the run has no candidate yet")
        self.model_ = task.model
        self.settings_ = task.settings
        self.config_ = task.config()
        self.class_names_ = task.data.class_names
        self.forget_mask_ = task.forget
        self.contexts_ = best.contexts
        self.valid_ = best.scores or judge.validate(best.contexts)
        self.history_ = history
        self.ledger_ = judge.ledger
        self.skipped_ = task.split.skipped
        self.made_ = task.made(self.valid_, judge.ledger)
        if run is not None:
            self.prompt.save(run.folder)
        return self


def _replay(
    task: Task, history: Sequence[Generation], state: dict[str, Doubles]
) -> tuple[Search, Best, Doubles | None]:
    """The search and the best candidate as they stood after this history, without asking the model.

    If the budget ended inside the last generation, also its candidates, asked for but not told.
    """
    search: Search = task.search()
    best, asked = Best("loss" if task.settings.validate == "loss" else task.settings.merit), None
    if isinstance(search, Stateful):
        if history:
            last = history[-1]
            search.restore({name: array for name, array in state.items() if name != "best"})
            best.take(state["best"].astype(np.float32), best.of(last.losses[0], last.valid), last.valid)
        return search, best, None
    for generation in history:
        z = search.ask()
        if generation.chosen is not None:
            best.recall(task.parametrization.contexts(z[generation.chosen][None])[0], generation)
        if generation.partial:
            asked = z
        else:
            search.tell(z, generation.losses)
    return search, best, asked
