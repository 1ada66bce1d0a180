"""What a run will cost, in candidates and in image queries, before it starts; and settings for a given cost."""

from __future__ import annotations

from dataclasses import dataclass

from unsee.methods.null_space import NULL_SPACES
from unsee.methods.registry import METHODS
from unsee.methods.shot_batches import steps_per_epoch
from unsee.methods.task import Task
from unsee.settings import Value


@dataclass(frozen=True)
class Cost:
    """What a run asks of the model, in all; a model that answers no plain-text prompt is asked `plain` less."""

    candidates: int
    image_queries: int
    plain: int = 0  # of these under the plain prompt, once: however long the run, and the same for every method
    views: int = 0  # random views to encode, beside the images themselves


def planned_cost(task: Task) -> Cost:
    """What this task will ask if it runs to its end."""
    settings, limit = task.settings, task.settings.limit
    train, valid = task.images_per_candidate, len(task.split_rows[1])
    if METHODS[settings.method].untuned:
        once = len(task.split.valid)
        return Cost(0, once + (once if settings.method in NULL_SPACES else 0), once)
    plain = 0 if METHODS[settings.method].trains_weights else sum(map(len, task.asked_rows))
    if settings.search == "guided":
        return _guided_cost(task, plain)
    if task.blind:
        return Cost(limit, plain + valid, plain)  # the chosen prompt is validated, for the record
    generations = settings.generations
    validated = {"every": limit, "generation": generations, "first": generations, "loss": 1}
    rule = settings.validate
    times = validated[rule] if rule in validated else -(-limit // int(rule))
    return Cost(limit, plain + train * limit + valid * times, plain, _views(task, generations))


def _guided_cost(task: Task, plain: int) -> Cost:
    """What a guided search asks at most, and about how many candidates: the number of images they need is found out."""
    from unsee.methods.guided import expected_cost  # imports SciPy

    s, images = task.settings, sum(map(len, task.split_rows))
    generations, candidates, queries = 0, 0, plain
    while generations < s.iterations:
        count, each = expected_cost(generations, images, s.population)
        over = s.image_queries is not None and queries + count * each > s.image_queries
        if over or (s.budget is not None and candidates + count > s.budget):
            break
        generations, candidates, queries = generations + 1, candidates + count, queries + count * each
    return Cost(candidates, queries if s.image_queries is None else s.image_queries, plain)


def _views(task: Task, generations: int) -> int:
    """Each epoch needs one view of every image to tune on, and the views are used in turn."""
    s, images = task.settings, len(task.loss_rows)
    epochs = -(-generations // steps_per_epoch(images, s.batch))
    return images * min(s.views, epochs)


def settings_for_queries(task: Task, image_queries: int) -> dict[str, Value]:
    """Iterations with which a black-box method asks this many image queries, or a few less.

    Queries under the plain prompt are part of them: every method asks the same ones, so candidates stay comparable.
    Methods that see more than answers follow their own schedule, and those that see no image keep theirs: nothing.
    """
    settings = task.settings
    if METHODS[settings.method].own_schedule or task.blind:
        return {}
    now = planned_cost(task)
    candidates = max(1, (image_queries - now.plain) * now.candidates // (now.image_queries - now.plain))
    if candidates == now.candidates:
        return {}
    return {"iterations": max(1, candidates // settings.population), "budget": None}
