"""What a run takes over from an earlier one: candidates, and what the model answered to them.

An answer does not depend on what is to be forgotten. So a run for another list of classes can start from all answers of
an earlier one, their losses computed anew, without a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unsee.methods.replay import check_candidates
from unsee.methods.search import AsksSome, Search
from unsee.types import Doubles, Floats, Generation, HalfFloats, Ints


@dataclass(frozen=True, eq=False)
class KnownAnswers:
    """The candidates of one generation, and the model's answers."""

    z: Doubles  # (b, dim)
    rows: Ints | None  # images that were asked about; None: all
    answers: Floats  # (b, n, C), log-confidences


@dataclass(frozen=True, eq=False)
class Inherited:
    """All answers of an earlier run."""

    run: str  # its name
    forget: tuple[str, ...]  # what it forgets
    known: tuple[KnownAnswers, ...]


def retrace(search: Search, history: Sequence[Generation], changed: str = "") -> tuple[KnownAnswers, ...]:
    """All that an earlier run asked and learned, from its history and a fresh search like its own."""
    found = []
    for generation in history:
        z = search.ask()
        check_candidates(z, generation, changed)
        if generation.answers is None or not isinstance(search, AsksSome):
            continue
        answers = generation.answers.astype(np.float32)
        found.append(KnownAnswers(z, search.rows, answers))
        search.tell(z, generation.losses, answers)
    return tuple(found)


def as_arrays(inherited: Sequence[KnownAnswers]) -> dict[str, Doubles | Ints | HalfFloats]:
    """One array for each kind of number."""
    return {
        "z": np.concatenate([each.z for each in inherited]),
        "rows": np.concatenate([np.zeros(0, np.int64), *(each.rows for each in inherited if each.rows is not None)]),
        "sizes": np.array([(len(each.z), 0 if each.rows is None else len(each.rows)) for each in inherited]),
        "answers": np.concatenate([each.answers.astype(np.float16).ravel() for each in inherited]),
    }


def from_arrays(arrays: Mapping[str, Any], images: int, classes: int) -> tuple[KnownAnswers, ...]:
    """The same from these arrays; ValueError if they do not fit together."""
    found, z, row, answer = list[KnownAnswers](), 0, 0, 0
    for count, few in arrays["sizes"].tolist():
        size = count * (few or images) * classes
        found.append(
            KnownAnswers(
                arrays["z"][z : z + count],
                arrays["rows"][row : row + few] if few else None,
                arrays["answers"][answer : answer + size].astype(np.float32).reshape(count, few or images, classes),
            )
        )
        z, row, answer = z + count, row + few, answer + size
    return tuple(found)
