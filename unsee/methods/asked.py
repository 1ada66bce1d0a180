"""A task's images as the model is asked about them: bound once, in batches where a method has them, and counted."""

from __future__ import annotations

from functools import cached_property

from unsee.data.images import Images
from unsee.methods.plain import PlainPrompt
from unsee.methods.shot_batches import ShotBatches
from unsee.methods.task import Task
from unsee.models.black_box import BoundImages, bind
from unsee.types import Ledger


class AskedImages:
    """The model bound to the images that a task tunes and validates on, when it is first asked."""

    def __init__(self, task: Task, ledger: Ledger) -> None:
        self.task = task
        self.ledger = ledger
        self.plain = PlainPrompt(lambda: self.bound, task.settings.template, ledger)

    @cached_property
    def bound(self) -> tuple[BoundImages, ...]:
        """The images asked about together: to tune on, then to validate on; one part where one question serves both."""
        rows = self.task.asked_rows
        if self.batches is None:
            return tuple(bind_images(self.task, self.task.data.train.subset(part)) for part in rows)
        return self.batches.shots, bind_images(self.task, self.task.data.train.subset(rows[-1]))

    @cached_property
    def batches(self) -> ShotBatches | None:
        """The images of each step; None where every step uses all of them as they are."""
        task, s = self.task, self.task.settings
        if not task.in_batches:
            return None
        shots = task.data.train.subset(task.loss_rows)
        return ShotBatches(shots, lambda images: bind_images(task, images), s.seed, s.batch, s.views, s.smallest_crop)


def bind_images(task: Task, images: Images) -> BoundImages:
    """The model bound to these images, contexts where the task's settings put them."""
    return bind(task.model, images).at(task.settings.position).apply_to(task.applies_to, task.settings.template)
