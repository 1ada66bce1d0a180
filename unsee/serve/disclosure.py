"""What leaves the service of each answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsee.errors import InputError
from unsee.models.remote.wire import CONFIDENCES, LOGS, TOP
from unsee.types import Floats


@dataclass(frozen=True)
class Disclosure:
    """What leaves the service: how many classes of each answer, their confidences or not, token statistics or not."""

    top: int | None = None  # None: all classes
    confidences: bool = True
    token_statistics: bool = True

    @classmethod
    def parse(cls, answers: str, card: str) -> Disclosure:
        """From `--answers all`, `top-K` or `label`, and `--card full` or `none`."""
        statistics = card == "full"
        if answers in ("all", "label"):
            return cls(1 if answers == "label" else None, answers == "all", statistics)
        found = re.fullmatch(r"top-([1-9][0-9]{0,5})", answers)
        if found is None:
            raise InputError(f"--answers is all, label, or top-K such as top-5, not {answers!r}")
        return cls(int(found[1]), True, statistics)

    @property
    def answers(self) -> str:
        """As `--answers` has it."""
        return "all" if self.top is None else f"top-{self.top}" if self.confidences else "label"

    def arrays(self, logs: Floats, form: str) -> dict[str, NDArray[Any]]:
        """The arrays that are sent for these logs of confidences (b, n, C)."""
        if self.top is None:
            return {LOGS: logs} if form == "logs" else {CONFIDENCES: np.exp(logs)}
        order = np.argsort(-logs, axis=-1, kind="stable")[..., : self.top].astype(np.int32)
        found: dict[str, NDArray[Any]] = {TOP: order}
        if self.confidences:
            found[CONFIDENCES] = np.exp(np.take_along_axis(logs, order, axis=-1))
        return found
