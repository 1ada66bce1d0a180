"""The method, in one loop: propose prompts, ask the model, learn from its answers."""

from __future__ import annotations

from unsee.errors import RunError
from unsee.methods.objective import Objective
from unsee.methods.pareto import flattest, pick
from unsee.methods.recorder import Recorder, state_of
from unsee.methods.search import Search, Stalls
from unsee.methods.task import Task, TunedContexts
from unsee.types import Candidate


def tune_prompt(task: Task, recorder: Recorder) -> TunedContexts:
    """Tunes contexts until the iterations or the budget are used up, from where the recorder's history ends."""
    search, contexts_of = task.search(), task.parametrization.contexts
    recorder.replay(search, contexts_of)
    objective = Objective(task, recorder.ledger)
    task.plain.ledger = recorder.ledger
    if not recorder.done:
        objective.open()
    if not recorder.history and (warning := task.plain.warning()):
        recorder.warn(warning)
    recorder.start()
    while not recorder.done and not _stalled(task, search):
        z, known = recorder.ask(search)  # (b, dim)
        contexts = contexts_of(z)  # (b, m, D)
        rows = recorder.affordable(len(known.losses), len(z))
        evaluated = objective.evaluate(contexts, rows, known)  # losses (b,)
        generation = recorder.record(evaluated, len(z), rows.stop - rows.start, contexts, z)
        if not generation.partial:
            search.tell(z, generation.losses)
        recorder.append(generation, state_of(search))
    if recorder.best.kept is None:
        raise RunError("the run has no candidate yet")
    if recorder.best.scores is None:  # chosen by loss
        recorder.best.scores = objective.validate(recorder.best.kept)
    if task.settings.goal == "constrained" or task.settings.slack > 0:
        _choose_again(task, recorder)
    settings = task.settings
    best, rule = recorder.best.kept, settings.serve
    return TunedContexts(best, task.applies_to, settings.template, task.forget, rule, settings.position)


def _choose_again(task: Task, recorder: Recorder) -> None:
    """Chooses from all that was validated by another rule than the best H: by goal "constrained", or with `slack`."""
    constrained = task.settings.goal == "constrained"
    chosen = _within(task, recorder) if constrained else flattest(recorder.front, task.settings.slack)
    recorder.best.kept = chosen.contexts
    recorder.best.scores = chosen.valid


def _within(task: Task, recorder: Recorder) -> Candidate:
    """What forgets most among candidates that keep enough."""
    floor = task.plain_acc_mem() - task.settings.keep_within
    best = max((c.trade_off.acc_mem for c in recorder.front), default=0.0)
    if best < floor:
        recorder.warn(
            f"no candidate keeps Acc_mem within {100 * task.settings.keep_within:g} points of the plain prompt's "
            f"on the images to tune and validate on ({100 * (floor + task.settings.keep_within):.1f} %); "
            "the closest was taken"
        )
    return pick(recorder.front, acc_mem=max(0.0, min(best, floor)))


def _stalled(task: Task, search: Search) -> bool:
    return task.settings.stop_when_stalled and isinstance(search, Stalls) and search.stalled()
