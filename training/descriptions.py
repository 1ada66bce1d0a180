"""Whole sentences about labelled photos: names, synonyms, glosses, kinds, colours and light."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.contexts import Bools, draw_look
from training.vocabulary import Vocabulary

WITH_NAME = (
    "a photo of a {}.",
    "a {} in a photo.",
    "there is a {} in the picture.",
    "look at the {} here.",
    "the {} is in the middle.",
    "what you see is a {}.",
    "a {}, seen from near.",
    "the picture shows one {}.",
    "is it a {}? yes.",
)
WITH_LOOK = ("a {} photo of a {}.", "{}, with a {} in it.", "a {} picture showing the {}.")
NAME_THEN_LOOK = ("a {} in a {} photo.", "the {}, mostly {}.", "a {} on something {}.")
WITH_KIND = ("a {}, a kind of {}.", "the {} is a {}.", "a photo of a {}, which is a {}.", "{}: {}.")


@dataclass(frozen=True)
class Description:
    """A sentence, the name it uses, and what it says about colour or light."""

    words: str
    name: int
    look: Callable[[NDArray[np.float32]], Bools] | None = None


def describe(label: int, colours: NDArray[np.float32], vocabulary: Vocabulary, rng: np.random.Generator) -> Description:
    """A true sentence about a photo of this label."""
    choice = rng.random()
    name, gloss = vocabulary.names[label], vocabulary.glosses[label]
    if vocabulary.synonyms[label] and rng.random() < 0.3:
        name = str(rng.choice(vocabulary.synonyms[label]))
    if choice < 0.25:
        return Description(str(rng.choice(WITH_NAME)).format(name), label)
    if choice < 0.4 and gloss:
        shape = str(rng.choice(("{1}.", "{0}: {1}.", "{1}, a {0}.")))
        return Description(shape.format(name, " ".join(gloss.split()[:16])), label)
    if choice < 0.7:
        kinds = np.flatnonzero(vocabulary.kind_of[label])
        if len(kinds):
            kind = vocabulary.kinds[int(rng.choice(kinds))]
            return Description(str(rng.choice(WITH_KIND)).format(name, kind), label)
    for _ in range(6):
        words, look = draw_look(rng)
        if look(colours[None])[0]:
            if rng.random() < 0.5:
                return Description(str(rng.choice(WITH_LOOK)).format(words, name), label, look)
            return Description(str(rng.choice(NAME_THEN_LOOK)).format(name, words), label, look)
    return Description(str(rng.choice(WITH_NAME)).format(name), label)
