"""What a run has done so far, and what is kept of it. The loop and the trainers write here.

A recorder starts from the history of an interrupted run, if there is one, so the code that tunes or trains does not
know whether it is the first to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from unsee.methods.best import BestSoFar, Evaluated
from unsee.methods.pareto import front_of, offer
from unsee.methods.replay import sum_of
from unsee.settings import Settings
from unsee.types import Candidate, Doubles, Floats, Generation, Ledger, Say

Watch = Callable[[Generation, Settings], None]  # called after every generation


class Journal(Protocol):
    """Where the history is kept: a run folder."""

    @property
    def history(self) -> list[Generation]: ...
    def append(self, generation: Generation, state: Mapping[str, Any] | None) -> None: ...
    def write_state(self, arrays: Mapping[str, Any]) -> None:
        """Saves the state after the last generation."""

    def read_state(self) -> Mapping[str, Any]:
        """The last saved state; the history is cut back to the generation it belongs to."""


class Clock:
    """Seconds of tuning, in this process and before."""

    def __init__(self, before: float) -> None:
        self._started = time.perf_counter() - before

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started


class Warnings:
    """Sentences for the result; `fresh` are those that no generation has recorded yet."""

    def __init__(self, recorded: list[str], fresh: list[str]) -> None:
        self.texts = recorded + fresh
        self._recorded = len(recorded)

    @property
    def fresh(self) -> list[str]:
        return self.texts[self._recorded :]

    def take(self) -> tuple[str, ...]:
        """The fresh ones, which now count as recorded."""
        taken = tuple(self.fresh)
        self._recorded = len(self.texts)
        return taken


class Recorder:
    """The record of one run; `journal` keeps it on disk.

    changed: in which versions the libraries differ from those that made its history, in words.
    """

    def __init__(
        self,
        settings: Settings,
        journal: Journal | None = None,
        watch: Watch | None = None,
        say: Say | None = None,
        changed: str = "",
    ) -> None:
        self.settings = settings
        self.changed = changed
        self.finished = False  # whether no further generation fits the budgets
        self.state: Mapping[str, Any] = {}  # of a search or trainer that is not replayed, where there is no journal
        self._journal, self._watch, self._say = journal, watch, say
        self._warnings = Warnings([], [])
        self.ledger = Ledger()
        self._read_history([] if journal is None else list(journal.history))

    def _read_history(self, history: list[Generation]) -> None:
        self.history = history
        self.ledger.reset(history[-1].ledger if history else {})
        self.best = BestSoFar("loss" if self.settings.validate == "loss" else self.settings.merit)
        for generation in history:
            self.best.recall(generation)
        self.front: tuple[Candidate, ...] = front_of(c for generation in history for c in generation.entered)
        recorded = [text for generation in history for text in generation.warnings]
        self._warnings = Warnings(recorded, self._warnings.fresh)
        self._clock = Clock(self.seconds)

    @property
    def done(self) -> bool:
        return self.finished or self.ledger.generations >= self.settings.generations

    def has_room_for(self, candidates: int, image_queries: int) -> bool:
        """Whether a generation of so many candidates fits what is left of the budgets; if not, the run is done."""
        s, spent = self.settings, self.ledger
        room = s.budget is None or spent.candidates + candidates <= s.budget
        room = room and (s.image_queries is None or spent.image_queries + image_queries <= s.image_queries)
        self.finished = not room
        return room

    @property
    def seconds(self) -> float:
        """Of tuning, in this process and before."""
        return self.history[-1].seconds if self.history else 0.0

    @property
    def warnings(self) -> list[str]:
        return self._warnings.texts

    def warn(self, text: str) -> None:
        """Keeps a sentence for the result, and says it at once."""
        self._warnings.texts.append(text)
        self.say(f"warning: {text}")

    def say(self, text: str) -> None:
        """A sentence for the person who waits."""
        if self._say is not None:
            self._say(text)

    def restore(self) -> Mapping[str, Any]:
        """The saved state of a search or trainer that cannot be replayed; the history is cut back to it."""
        if self._journal is None or not self.history:
            return {}
        state = self._journal.read_state()
        self._read_history(list(self._journal.history))
        return state

    def start(self) -> None:
        """Starts the clock of this part of the run; says so if there is nothing left to do, or if versions differ."""
        self._clock = Clock(self.seconds)
        if not self.history:
            return
        if self.done:
            s = self.settings
            if self.ledger.generations >= s.iterations:
                self.say(f"nothing is left to do: all {s.iterations} iterations are done; --iterations allows more")
            else:
                more = "--budget" if s.image_queries is None else "--image-queries"
                self.say(f"nothing is left to do: another generation does not fit the budget; {more} allows more")
        elif self.changed:
            self.warn(f"continued with other versions ({self.changed}): from here on numbers may differ a little")

    def record(
        self,
        evaluated: Evaluated,
        contexts: Floats,
        z: Doubles,
        state: Mapping[str, Any] | None = None,
        asked: bool = True,
    ) -> None:
        """One more generation of a search: counts it, updates the best and the front, and writes it down.

        asked: whether the model was asked; not if its answers are those of an earlier run.
        """
        self.append(self.count(evaluated, contexts, z, None if asked else 0), state)

    def count(
        self, evaluated: Evaluated, contexts: Floats | None = None, z: Doubles | None = None, spent: int | None = None
    ) -> Generation:
        """One more generation: counts it and updates the best.

        z (b, dim) and contexts (b, m, D) are the candidates, where they are prompts. spent: candidates that the model
        was asked about, if not all.
        """
        self.ledger.candidates += len(evaluated.losses) if spent is None else spent
        self.ledger.generations += 1
        chosen = self.best.offer(evaluated)
        if chosen is not None and contexts is not None:
            self.best.kept = contexts[chosen].copy()
        entered: tuple[Candidate, ...] = ()
        if contexts is not None:
            self.front, entered = offer(
                self.front,
                self.ledger.generations,
                evaluated.losses,
                evaluated.valid,
                evaluated.trade_offs,
                contexts,
            )
        return Generation(
            number=self.ledger.generations,
            losses=evaluated.losses,
            candidates=self.ledger.candidates,
            chosen=chosen,
            valid=self.best.scores,
            entered=entered,
            z_sum=None if z is None else sum_of(z),
            best=None if chosen is None or contexts is None else self.best.kept,
            answers=evaluated.answers.astype(np.float16) if evaluated.kept and evaluated.answers is not None else None,
        )

    def append(self, generation: Generation, state: Mapping[str, Any] | None = None) -> None:
        """Writes a generation down; `state` is what is needed to continue, where the losses are not enough."""
        facts, seconds, said = self.ledger.as_dict(), self._clock.seconds, self._warnings.take()
        generation = replace(generation, ledger=facts, seconds=seconds, warnings=said)
        self.history.append(replace(generation, answers=None) if self._journal is not None else generation)
        if self._journal is not None:
            self._journal.append(generation, state)
        elif state:  # kept for a run that is saved later; copies, as a trainer's arrays change under it
            self.state = {name: np.array(array) for name, array in state.items()}
        if self._watch is not None:
            self._watch(generation, self.settings)

    def save_state(self, state: Mapping[str, Any]) -> None:
        """Saves where a trainer is after the last generation, at an orderly stop."""
        if self._journal is not None and self.history:
            self._journal.write_state(state)

    def say_what_is_left(self) -> None:
        """Says what is left of a budget that ends inside a generation."""
        s = self.settings
        if s.image_queries is not None and self.finished:
            left = s.image_queries - self.ledger.image_queries
            self.say(f"{left:,} image queries of {s.image_queries:,} are left: the next generation takes more")
            return
        left = 0 if s.budget is None else s.budget - self.ledger.candidates
        if 0 < left < s.population and self.ledger.generations < s.iterations:
            self.say(f"{left} candidates of the budget are left: a generation takes {s.population}")
