"""What runs will cost, said before they start: candidates, image queries, and the time they take on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from unsee.data.views import random_view
from unsee.methods.contexts import make_origin
from unsee.methods.cost import planned_cost
from unsee.methods.presets import sizes_in_words
from unsee.methods.registry import METHODS
from unsee.methods.task import Task
from unsee.models.black_box import TellsLogs, bind
from unsee.models.features import encode_images

TIMED_IMAGES = 8  # a candidate's time is the text tower's; the number of images hardly matters
WAIT = 2.0  # seconds at most for the measured candidates of one size, if one of them does not take longer
SEARCH = 0.008  # seconds that a guided search itself takes for a candidate, with 1,000 latents
STEP = 3.0  # a gradient step takes about three times as long as a candidate: forward, and backward


@dataclass(frozen=True)
class Forecast:
    """What runs will ask of the model, and how long it will take."""

    runs: int
    candidates: int
    image_queries: int
    seconds: float
    untimed: int  # runs that `seconds` leaves out, as the model is not in this process
    sizes: str = ""  # of the prompt and where they come from, if all runs have the same

    def sentence(self, price: float | None = None) -> str:
        """For a person. price: of 1,000 image queries."""
        parts = [f"{self.candidates:,} candidates", f"{self.image_queries:,} image queries"]
        if price is not None:
            parts.append(f"{price * self.image_queries / 1000:,.2f} at {price:g} per 1,000")
        if self.runs > 1:
            parts.insert(0, f"{self.runs} runs")
        if self.untimed < self.runs:
            parts.append(f"about {duration(self.seconds)}")
        if 0 < self.untimed < self.runs:
            parts.append(f"and {self.untimed} runs that take a time of their own")
        return "planned: " + ", ".join(parts) + (f"; {self.sizes}" if self.sizes else "")


def forecast(tasks: Iterable[Task]) -> Forecast:
    """What these tasks will cost; times are measured on a few candidates, or a part of a step, of the same sizes."""
    runs = candidates = queries = untimed = 0
    seconds, known, sizes_used = 0.0, dict[tuple[object, ...], float | None](), set[str]()
    for task in tasks:
        cost, s = planned_cost(task), task.settings
        sizes_used.add(sizes_in_words(s, task.model.card.width, len(task.forget)))
        trains = METHODS[s.method].trains_weights
        sizes: tuple[object, ...] = (id(task.model), len(task.forget), s.contexts, s.population)
        if trains:
            sizes = (*sizes, s.method, s.weights, s.image_size, id(task.data), *map(len, task.split_rows))
        if sizes not in known:
            known[sizes] = _measure_step(task) if trains else measure_candidate(task)
        each = known[sizes]
        runs, candidates, queries = runs + 1, candidates + cost.candidates, queries + cost.image_queries
        if each is None:
            untimed += 1
        else:
            seconds += cost.candidates * each * (STEP if s.search == "gradient" and not trains else 1)
            seconds += cost.candidates * SEARCH if s.search == "guided" else 0.0
            seconds += cost.views * measure_view(task) if cost.views else 0.0
    return Forecast(runs, candidates, queries, seconds, untimed, sizes_used.pop() if len(sizes_used) == 1 else "")


def _measure_step(task: Task) -> float:
    from unsee.methods.training import measure_step  # imports torch

    return measure_step(task)


def measure_candidate(task: Task) -> float | None:
    """Seconds that one candidate takes; None for a model that is not in this process, where asking has a price."""
    bound = bind(task.model, task.data.train.subset(task.split.train[:TIMED_IMAGES])).at(task.settings.position).bound
    if not isinstance(bound, TellsLogs):
        return None
    origin = make_origin(task.settings, task.model)[None]
    bound.log_confidences(origin)  # the first time is slower
    started = time.perf_counter()
    bound.log_confidences(origin)
    alone = time.perf_counter() - started
    together = min(task.settings.population, int(WAIT / max(alone, 1e-6)))
    if together < 2:  # a thousand classes: one candidate takes seconds, and a generation is no faster
        return alone
    started = time.perf_counter()
    bound.log_confidences(np.repeat(origin, together, axis=0))
    return (time.perf_counter() - started) / together


def measure_view(task: Task) -> float:
    """Seconds that encoding one random view of an image takes, if it is not in the cache."""
    from unsee.models.local import LocalModel  # imports torch

    if not isinstance(task.model, LocalModel):
        return 0.0
    views = random_view(task.data.train.subset(task.split.train[:TIMED_IMAGES]), task.settings.seed, 0)
    started = time.perf_counter()
    encode_images(views, task.model.encoder)
    return (time.perf_counter() - started) / len(views)


def duration(seconds: float) -> str:
    """A time in words: seconds, minutes or hours."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
