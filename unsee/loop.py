"""The method, in one loop: propose prompts, ask the model, learn from its answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unsee.errors import RunError
from unsee.images import Images
from unsee.judge import Best, Judge
from unsee.learned import Watch
from unsee.models import BlackBox, Bound
from unsee.prompts import Prompt
from unsee.records import Doubles, Floats, Generation, Ledger, Scores
from unsee.runs import Run
from unsee.search import BlockSearch, Search, Stateful
from unsee.task import Task


@dataclass(frozen=True, eq=False)
class TunedPrompt:
    """A model under the contexts with the best validation score."""

    model: BlackBox
    prompt: Prompt
    valid: Scores
    ledger: Ledger
    history: list[Generation]

    def confidences(self, images: Images, bound: Bound | None = None) -> Floats:
        bound = bound or self.model.bind(images, self.prompt.class_names)
        found: Floats = bound.confidences(self.prompt.contexts[None])[0]
        return found

    def save(self, folder: Path) -> None:
        """The artefact to deploy."""
        self.prompt.save(folder)


def tune_prompt(task: Task, run: Run | None, watch: Watch | None) -> TunedPrompt:
    """Tunes contexts until the iterations or the budget are used up; goes on where the run stopped."""
    settings, contexts_of = task.settings, task.parametrization.contexts
    state = run.read_state() if run is not None and run.history and settings.search == "gradient" else {}
    history = [] if run is None else list(run.history)
    judge = Judge(task, history[-1].ledger if history else {})
    search, best, asked = _replay(task, history, state)
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
    return _tuned(task, judge, run, history, best)


def _tuned(task: Task, judge: Judge, run: Run | None, history: list[Generation], best: Best) -> TunedPrompt:
    if best.contexts is None:
        raise RunError("the run has no candidate yet")
    card, names = task.model.card, task.data.class_names
    prompt = Prompt(best.contexts, names, task.forgotten, card.name, card.fingerprint, task.settings.template)
    tuned = TunedPrompt(task.model, prompt, best.scores or judge.validate(best.contexts), judge.ledger, history)
    if run is not None:
        tuned.save(run.folder)
    return tuned


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
