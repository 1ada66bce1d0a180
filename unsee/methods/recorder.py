"""What a run has done so far: its history, the best candidate, cost and time. The loop and the trainers write here.

A recorder starts from the history of an interrupted run, if there is one, so the code that tunes or trains does not
know whether it is the first to run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from unsee.methods.pareto import front_of, offer
from unsee.methods.replay import ReplayCheck, sum_of
from unsee.methods.search import Search, Stateful
from unsee.settings import Settings
from unsee.types import Candidate, Doubles, Floats, Generation, Ledger, Scores, State, TradeOff

Watch = Callable[[Generation, Settings], None]  # called after every generation
Say = Callable[[str], None]


class Journal(Protocol):
    """Where the history is kept: a run folder."""

    @property
    def history(self) -> list[Generation]: ...
    def append(self, generation: Generation, state: Mapping[str, Any] | None) -> None: ...
    def write_state(self, arrays: Mapping[str, Any]) -> None:
        """Saves the state after the last generation."""

    def read_state(self) -> Mapping[str, Any]:
        """The last saved state; the history is cut back to the generation it belongs to."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Losses of a generation's candidates, and validation scores of those that were validated."""

    losses: Doubles = field(default_factory=lambda: np.zeros(0))  # (b,)
    valid: Mapping[int, Scores] = field(default_factory=dict)
    trade_offs: Mapping[int, TradeOff] = field(default_factory=dict)  # of the same candidates


@dataclass
class BestSoFar:
    """The best candidate: by a validation score, or by loss where there is nothing to validate on.

    The first of equals stays, as in the paper.
    """

    by: str  # "h", "acc_mem" or "loss"
    scores: Scores | None = None
    merit: float = -np.inf
    kept: Any = None  # the candidate's contexts, or a trainer's weights

    def offer(self, evaluated: Evaluated) -> int | None:
        """Which of these candidates, if any, is the new best."""
        found = None
        numbers = range(len(evaluated.losses)) if self.by == "loss" else sorted(evaluated.valid)
        for i in numbers:
            merit = self._merit(float(evaluated.losses[i]), evaluated.valid.get(i))
            if merit > self.merit:
                self.merit, self.scores, found = merit, evaluated.valid.get(i), i
        return found

    def recall(self, generation: Generation) -> None:
        """Takes what a recorded generation chose."""
        if generation.chosen is not None:
            self.merit = self._merit(float(generation.losses[generation.chosen]), generation.valid)
            self.scores = generation.valid
            self.kept = generation.best

    def _merit(self, loss: float, scores: Scores | None) -> float:
        if self.by == "loss" or scores is None:
            return -loss
        return scores.h if self.by == "h" else scores.acc_mem


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
        self.history: list[Generation] = [] if journal is None else list(journal.history)
        self.ledger = Ledger()
        self.warnings: list[str] = []
        self._recorded = 0  # warnings that the history has
        self.state: Mapping[str, Any] = {}  # of a search or trainer that is not replayed, where there is no journal
        self.front: tuple[Candidate, ...] = ()  # trade-offs between forgetting and keeping found so far
        self._settled = BestSoFar("")  # the best before a generation that the budget cut
        self._settled_front: tuple[Candidate, ...] = ()
        self._pending: tuple[Doubles, Evaluated] | None = None  # its candidates, and what is known of them
        self._journal, self._watch, self._say = journal, watch, say
        self._read_history()

    @property
    def done(self) -> bool:
        return self.ledger.generations >= self.settings.iterations or self.ledger.candidates >= self.settings.limit

    @property
    def seconds(self) -> float:
        """Of tuning, in this process and before."""
        return self.history[-1].seconds if self.history else 0.0

    def warn(self, text: str) -> None:
        """Keeps a sentence for the result, and says it at once."""
        self.warnings.append(text)
        if self._say is not None:
            self._say(f"warning: {text}")

    def restore(self) -> Mapping[str, Any]:
        """The saved state of a search or trainer that cannot be replayed; the history is cut back to it."""
        if self._journal is None or not self.history:
            return {}
        state = self._journal.read_state()
        self.history = list(self._journal.history)
        self._read_history()
        return state

    def start(self) -> None:
        """Starts the clock of this part of the run; says so if there is nothing left to do, or if versions differ."""
        self._started = time.perf_counter() - self.seconds
        if self.changed and self.history and not self.done:
            self.warn(f"continued with other versions ({self.changed}): from here on numbers may differ a little")
        if self.history and self.done and self._say is not None:
            all_done = self.ledger.generations >= self.settings.iterations
            used = f"{self.settings.iterations} iterations are" if all_done else f"{self.settings.limit} candidates are"
            option = "--iterations" if all_done else "--budget"
            self._say(f"nothing is left to do: all {used} done; {option} allows more")

    def replay(self, search: Search, contexts_of: Callable[[Doubles], Floats]) -> None:
        """Brings a fresh search, and the best candidate, to where the history ends, without asking the model."""
        if isinstance(search, Stateful):
            state = dict(self.restore())
            best = state.pop("best", None)  # of an old run; now the history has it
            if self.best.kept is None and best is not None:
                self.best.kept = best.astype(np.float32)
            if state:
                search.restore(state)
            return
        check = ReplayCheck(contexts_of, self.changed)
        for number, generation in enumerate(self.history):
            z = search.ask()
            check.same(generation, z)
            if generation.chosen is not None and generation.best is None:  # an old run, which did not keep it
                best = contexts_of(z)[generation.chosen].copy()
                self.history[number] = replace(generation, best=best)
            if generation.partial:
                self._pending = z, Evaluated(generation.losses, generation.validated, generation.trade_offs)
            else:
                search.tell(z, generation.losses)
        check.enough(self.history)
        self._read_history()

    def ask(self, search: Search) -> tuple[Doubles, Evaluated]:
        """The next candidates; after a budget that ended inside a generation, that one with what is known of it."""
        if self._pending is None:
            return search.ask(), Evaluated()
        pending, self._pending = self._pending, None
        self.history.pop()
        return pending

    def affordable(self, known: int, population: int) -> slice:
        """The candidates of a generation that are still to be evaluated and that the budget allows."""
        return slice(known, min(population, known + self.settings.limit - self.ledger.candidates))

    def record(
        self,
        evaluated: Evaluated,
        population: int,
        spent: int,
        contexts: Floats | None = None,
        z: Doubles | None = None,
    ) -> Generation:
        """One more generation, or the part of it that the budget allowed: counts it and updates the best.

        z (b, dim) and contexts (b, m, D) are the candidates, where they are prompts.
        """
        self.ledger.candidates += spent
        partial = len(evaluated.losses) < population
        self.ledger.generations += not partial
        self.best = replace(self._settled)
        chosen = self.best.offer(evaluated)
        if chosen is not None and contexts is not None:
            self.best.kept = contexts[chosen].copy()
        number = self.ledger.generations + partial
        entered: tuple[Candidate, ...] = ()
        if contexts is not None:
            self.front, entered = offer(
                self._settled_front, number, evaluated.losses, evaluated.valid, evaluated.trade_offs, contexts
            )
        if not partial:
            self._settled, self._settled_front = self.best, self.front
        return Generation(
            number=number,
            losses=evaluated.losses,
            candidates=self.ledger.candidates,
            chosen=chosen,
            valid=self.best.scores,
            partial=partial,
            validated=dict(evaluated.valid) if partial else {},
            trade_offs=dict(evaluated.trade_offs) if partial else {},
            entered=entered,
            z_sum=None if z is None else sum_of(z),
            best=None if chosen is None or contexts is None else self.best.kept,
        )

    def append(self, generation: Generation, state: Mapping[str, Any] | None = None) -> None:
        """Writes a generation down; `state` is what is needed to continue, where the losses are not enough."""
        seconds = time.perf_counter() - self._started
        said = tuple(self.warnings[self._recorded :])
        generation = replace(generation, ledger=self.ledger.as_dict(), seconds=seconds, warnings=said)
        self._recorded = len(self.warnings)
        self.history.append(generation)
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

    def _read_history(self) -> None:
        recorded = [text for generation in self.history for text in generation.warnings]
        self.warnings = recorded + self.warnings[self._recorded :]
        self._recorded = len(recorded)
        self.ledger = Ledger(**(self.history[-1].ledger if self.history else {}))
        self.best = BestSoFar("loss" if self.settings.validate == "loss" else self.settings.merit)
        self._settled = self.best
        self.front, self._settled_front = (), ()
        self._started = time.perf_counter()
        for generation in self.history:
            if generation.partial:
                self._settled, self._settled_front = replace(self.best), self.front
            self.best.recall(generation)
            self.front = front_of((*self.front, *generation.entered))
        if not (self.history and self.history[-1].partial):
            self._settled_front = self.front


def state_of(search: Search) -> State:
    """What must be saved of a search beyond the losses it was told."""
    return search.state() if isinstance(search, Stateful) else {}
