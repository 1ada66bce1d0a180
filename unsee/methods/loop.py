"""The method, in one loop: propose prompts, ask the model, learn from its answers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from unsee.errors import RunError
from unsee.methods.asked import AskedImages
from unsee.methods.build import make_goal, make_parametrization, make_search
from unsee.methods.fitted import TunedContexts
from unsee.methods.objective import Objective
from unsee.methods.pareto import flattest, pick
from unsee.methods.recorder import Recorder
from unsee.methods.replay import replay
from unsee.methods.search import AsksSome, Search, Stalls, Stateful
from unsee.methods.task import Task
from unsee.types import Candidate, Floats, State


def tune_prompt(task: Task, recorder: Recorder) -> TunedContexts:
    """Tunes contexts until the iterations or the budget are used up, from where the recorder's history ends."""
    asked = AskedImages(task, recorder.ledger)
    goal = cache(lambda: make_goal(task, asked))  # when first needed: it may ask the model
    parametrization = make_parametrization(task.settings, task.model)
    search = make_search(task, asked, goal, parametrization.blocks)
    objective = Objective(asked, goal)
    _continue(search, recorder)
    if not recorder.done:
        objective.open()
    if not recorder.history and (warning := asked.plain.warning(task.data.class_names, task.model.card.name)):
        recorder.warn(warning)
    recorder.start()
    while not recorder.done and not _stalled(task, search):
        z = search.ask()  # (b, dim)
        rows, known = (search.rows, search.known) if isinstance(search, AsksSome) else (None, None)
        if known is None and not recorder.has_room_for(len(z), objective.cost(len(z), rows)):
            break
        contexts = parametrization.contexts(z)  # (b, m, D)
        found = objective.evaluate(contexts, rows, known)  # answers (b, n, C), losses (b,)
        search.tell(z, found.losses, found.answers)
        if isinstance(search, AsksSome):
            found = replace(found, losses=search.losses, kept=True)
        recorder.record(found, contexts, z, _state_of(search), asked=known is None)
    recorder.say_what_is_left()
    s = task.settings
    best = _choose(asked, objective, recorder)
    return TunedContexts(best, task.applies_to, s.template, task.forget, s.serve, s.position)


def _continue(search: Search, recorder: Recorder) -> None:
    """Brings a fresh search to where the history ends: from its saved state, or by telling it the losses again."""
    if not isinstance(search, Stateful):
        replay(search, recorder.history, recorder.changed)
    elif state := recorder.restore():
        search.restore(dict(state))


def _state_of(search: Search) -> State:
    """What must be saved of a search beyond the losses it was told."""
    return search.state() if isinstance(search, Stateful) else {}


def _stalled(task: Task, search: Search) -> bool:
    return task.settings.stop_when_stalled and isinstance(search, Stalls) and search.stalled()


def _choose(asked: AskedImages, objective: Objective, recorder: Recorder) -> Floats:
    """The contexts (m, D) with the best score; by goal "constrained" or with `slack`, others of those validated."""
    settings, best = asked.task.settings, recorder.best
    if best.kept is None:
        raise RunError("the run has no candidate yet")
    if settings.goal == "constrained" or settings.slack > 0:
        constrained = settings.goal == "constrained"
        chosen = _within(asked, recorder) if constrained else flattest(recorder.front, settings.slack)
        best.kept, best.scores = chosen.contexts, chosen.valid
    elif best.scores is None:  # chosen by loss
        best.scores = objective.validate(best.kept)
    contexts: Floats = best.kept
    return contexts


def _within(asked: AskedImages, recorder: Recorder) -> Candidate:
    """What forgets most among candidates that keep enough."""
    allowed = recorder.settings.keep_within
    floor = asked.plain.acc_mem(asked.task.forget) - allowed
    best = max((c.trade_off.acc_mem for c in recorder.front), default=0.0)
    if best < floor:
        recorder.warn(
            f"no candidate keeps Acc_mem within {100 * allowed:g} points of the plain prompt's "
            f"on the images to tune and validate on ({100 * (floor + allowed):.1f} %); the closest was taken"
        )
    return pick(recorder.front, acc_mem=max(0.0, min(best, floor)))
