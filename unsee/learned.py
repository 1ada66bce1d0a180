"""What every method has in common: from a task, and a run folder if there is one, it learns to answer images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from unsee.images import Images
from unsee.models import Bound
from unsee.records import Floats, Generation, Ledger, Scores
from unsee.runs import Run
from unsee.settings import Settings
from unsee.task import Task

Watch = Callable[[Generation, Settings], None]  # called after every generation


class Learned(Protocol):
    """What a method found, and how it got there."""

    @property
    def valid(self) -> Scores: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def history(self) -> list[Generation]: ...
    def confidences(self, images: Images, bound: Bound | None = None) -> Floats:
        """Answers (n, C), rows sum to 1; `bound` if the model is bound to these images already."""

    def save(self, folder: Path) -> None:
        """Writes what was found into a run folder."""


# A run folder with a history is gone on with from there.
Method = Callable[[Task, Run | None, Watch | None], Learned]
