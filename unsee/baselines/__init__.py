"""Every row of the paper's tables that tunes no prompt, and a few more, by method name."""

from __future__ import annotations

from unsee.baselines.learners import LEARNERS
from unsee.baselines.rules import RULES, apply_rule
from unsee.baselines.training import train_weights
from unsee.learned import Method

__all__ = ["METHOD_OF"]

METHOD_OF: dict[str, Method] = {**dict.fromkeys(RULES, apply_rule), **dict.fromkeys(LEARNERS, train_weights)}
