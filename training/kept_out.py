"""Names that the text tower on CLIP's image tower never reads, so that it can be judged by them (nearness.py).

The rule, written before any training: of COCO-Stuff's 171 names take those of plain words (no "wall-brick"), drop every
one that stands as a word, or in the plural, in a class name of a labelled set (CIFAR-10, CIFAR-100, ImageNet, CUB-200-2011), and keep every
second of the rest out of all training texts, in the order of the list, beginning with the second. Photos stay: a photo of
a kitchen may show a shelf, but no text says "shelf".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from training.contexts import plural
from training.vocabulary import Vocabulary

KEPT_OUT = (
    *("fire hydrant", "cow", "handbag", "frisbee", "snowboard", "baseball bat", "skateboard", "tennis racket", "fork"),
    *("sandwich", "donut", "potted plant", "cell phone", "scissors", "toothbrush", "blanket", "cage", "cloth"),
    *("counter", "dirt", "fog", "grass", "hill", "mat", "napkin", "platform", "railing", "salad", "shelf", "straw"),
    "waterdrops",
)


PLURAL_ONLY = frozenset({"scissors"})
"""Words without a singular: "scissor" is read, as the scissor tailed flycatcher is a class of CUB."""


def forms_of(word: str) -> tuple[str, ...]:
    """A word, its plural, and its singular where it is one."""
    if word in PLURAL_ONLY:
        return (word,)
    return word, plural(word), word.removesuffix("s"), *((f"{word[:-1]}ves",) if word.endswith("f") else ())


def mentions(words: Iterable[str]) -> re.Pattern[str]:
    """Finds these words in a text, in singular or plural."""
    forms = {form for word in words for form in forms_of(word)}
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))})\b", re.IGNORECASE)


def follows_rule(names: Iterable[str], labelled: Iterable[str]) -> tuple[str, ...]:
    """What the rule keeps out of a list of names, given the class names of all labelled sets."""
    text = " | ".join(labelled)
    plain = [name for name in names if re.fullmatch("[a-z ]+", name)]
    free = [name for name in plain if not re.search(rf"\b(?:{name}|{plural(name)})\b", text, re.IGNORECASE)]
    return tuple(free[1::2])


def leave_unread(vocabulary: Vocabulary, words: Iterable[str]) -> Vocabulary:
    """The vocabulary without these words: not as a name, synonym or kind, and in no gloss."""
    said = mentions(words)
    rows = np.array([not said.search(name) for name in vocabulary.names])
    if not rows[vocabulary.imagenet].all():
        raise ValueError("a class of ImageNet would lose its name")
    columns = np.array([not said.search(kind) for kind in vocabulary.kinds], dtype=np.bool_)
    number = np.cumsum(rows) - 1

    def kept(values: tuple[str, ...]) -> list[str]:
        return [value for value, keep in zip(values, rows, strict=True) if keep]

    synonyms = [words for words, keep in zip(vocabulary.synonyms, rows, strict=True) if keep]
    return replace(
        vocabulary,
        names=tuple(kept(vocabulary.names)),
        synonyms=tuple(tuple(word for word in words if not said.search(word)) for words in synonyms),
        glosses=tuple("" if said.search(gloss) else gloss for gloss in kept(vocabulary.glosses)),
        isa=vocabulary.isa[np.ix_(rows, rows)],
        kinds=tuple(kind for kind in vocabulary.kinds if not said.search(kind)),
        kind_of=vocabulary.kind_of[np.ix_(rows, columns)],
        imagenet=number[vocabulary.imagenet],
    )
