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
    """Judged by the worse of prompt alone and as served: more than five points above chance, or five points less."""
    ways = {when: shares for when in g.ways() if not np.isnan(shares := g.accuracy(when)).all()}
    before, gone = g.accuracy("before"), g.first.forgotten
    most, least = np.max(list(ways.values()), axis=0), np.min(list(ways.values()), axis=0)
    names, chance = g.first.class_names, 1 / len(gone)

    def words(i: int) -> str:
        return f"{names[i]} {' → '.join(percent(x[i], 0, '') for x in (before, *ways.values()) if not np.isnan(x[i]))}"

    loss = np.where(np.isnan(before), 0.0, before) - least
    still = sorted(np.flatnonzero(gone & (most > chance + MARGIN)).tolist(), key=lambda i: -most[i])
    lost = sorted(np.flatnonzero(~gone & (loss > MARGIN)).tolist(), key=lambda i: -loss[i])
    return FallenClasses([words(i) for i in still], [words(i) for i in lost])


def listed_first(words: Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED} more" if len(words) > LISTED else "")
