"""Every method of the paper's tables. `fit` finds the right code by the method's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unsee.methods.fitted import Fitted
    from unsee.methods.recorder import Recorder
    from unsee.methods.task import Task

__all__ = ["fit"]


def fit(task: Task, recorder: Recorder) -> Fitted:
    """Runs a task's method, from where the recorder's history ends."""
    from unsee.methods.registry import METHODS

    method = METHODS[task.settings.method]
    by_loss = task.none_seen and task.settings.validate != method.settings.get("validate", "every")
    if by_loss and not method.untuned and not recorder.history:
        recorder.warn(
            "there is no image of a forgotten class to validate on: candidates are chosen by loss, and validation "
            "scores are for the record alone"
        )
    if method.untuned:
        from unsee.methods.rules import apply_rule

        return apply_rule(task, recorder)
    if method.trains_weights:
        from unsee.methods.training import train_weights  # imports torch

        return train_weights(task, recorder)
    from unsee.methods.loop import tune_prompt

    return tune_prompt(task, recorder)
