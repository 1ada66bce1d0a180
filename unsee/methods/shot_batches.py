"""The images of each step, for methods with a training loader's schedule: batches, and random views of the shots.

A step's images are a function of the seed and the step's number, so a resumed run sees the same ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsee.data.images import Images
from unsee.data.views import LEAST_AREA, random_view
from unsee.models.black_box import BoundImages, Rebinds
from unsee.seeds import stream
from unsee.types import Ints


def steps_per_epoch(images: int, batch: int) -> int:
    """Batches in one pass over the images. As in CoOp's loader, what is left over at its end is not used."""
    return max(1, images // batch) if batch else 1


def rows_of_step(seed: int, step: int, images: int, batch: int) -> Ints:
    """Which images a step uses: an epoch's batches, in an order drawn anew for each epoch; all of them without one."""
    epoch, number = divmod(step, steps_per_epoch(images, batch))
    order, size = stream(seed, "batches", epoch).permutation(images), batch or images
    return np.asarray(order[number * size : (number + 1) * size], dtype=np.int64)


class ShotBatches:
    """The shots in batches, their order drawn anew for each epoch; with views, each epoch has the next view."""

    def __init__(
        self,
        shots: Images,
        bind: Callable[[Images], BoundImages],
        seed: int,
        batch: int,
        views: int,
        least: float = LEAST_AREA,
    ) -> None:
        self.shots = bind(shots)  # as they are
        self._bind = bind
        self._seed = seed
        self._views = views
        self._least = least  # share of an image in a view
        self._batch = min(batch, len(shots)) or len(shots)
        self.steps = steps_per_epoch(len(shots), batch)
        self._bound: dict[int, BoundImages] = {} if views else {0: self.shots}  # by view
        self.images_encoded = 0  # views, so far
        self.images_from_cache = 0

    def at(self, step: int) -> BoundImages:
        """The images of this step, from 0, bound to the model."""
        rows, view = self.rows(step), step // self.steps % max(1, self._views)
        if not isinstance(self.shots.bound, Rebinds):  # a service: it is given each step's images
            return self._bind(self._view(view).subset(rows))
        if view not in self._bound:
            images = self._view(view)
            bound = self.shots.bound.other_images(images)
            self.images_encoded += bound.images_encoded
            self.images_from_cache += bound.images_from_cache
            self._bound[view] = BoundImages(images, bound, self.shots.class_names)
        return self._bound[view].select(rows)

    def rows(self, step: int) -> Ints:
        """Which of the shots this step uses."""
        return rows_of_step(self._seed, step, len(self.shots.images), self._batch)

    def _view(self, number: int) -> Images:
        return random_view(self.shots.images, self._seed, number, self._least) if self._views else self.shots.images
