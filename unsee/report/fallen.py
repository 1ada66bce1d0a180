"""Which classes fell, by name: those to forget that are still recognised, and those to keep that are not any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsee.audit.evidence import MARGIN
from unsee.report.summary import SeedGroup
from unsee.text_table import percent

LISTED = 30  # classes by name


@dataclass(frozen=True)
class FallenClasses:
    """Classes with their accuracies as text, the worst first."""

    remaining: Sequence[str]  # to forget, still recognised
    lost: Sequence[str]  # to keep, recognised less often


def fallen_classes(g: SeedGroup) -> FallenClasses:
    """Judged as served, where that is known: recognised more than five points above chance, or five points less."""
    ways = {when: shares for when in g.ways() if not np.isnan(shares := g.accuracy(when)).all()}
    before, after, gone = g.accuracy("before"), list(ways.values())[-1], g.first.forgotten
    names, chance = g.first.class_names, 1 / len(gone)

    def words(i: int) -> str:
        return f"{names[i]} {' → '.join(percent(x[i], 0, '') for x in (before, *ways.values()) if not np.isnan(x[i]))}"

    loss = np.where(np.isnan(before), 0.0, before) - after
    still = sorted(np.flatnonzero(gone & (after > chance + MARGIN)).tolist(), key=lambda i: -after[i])
    lost = sorted(np.flatnonzero(~gone & (loss > MARGIN)).tolist(), key=lambda i: -loss[i])
    return FallenClasses([words(i) for i in still], [words(i) for i in lost])


def listed_first(words: Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED} more" if len(words) > LISTED else "")
