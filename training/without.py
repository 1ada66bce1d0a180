"""Training material without some classes: what a tower would be that never heard of them.

The reference for an audit: its answers show what the measures read when a class was never known. Photos of the classes
and of every kind of them are left out, texts that mention them too, and the names themselves. The frozen image encoder
and the tokenizer are shared with the other towers; the encoder has seen such photos.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from training.bank import Bank, Labelled
from training.contexts import plural
from training.vocabulary import Vocabulary
from unsee.data.other_names import LIST


def leave_out(bank: Bank, vocabulary: Vocabulary, names: list[str]) -> tuple[Bank, Vocabulary]:
    """The bank and the vocabulary without these names, their kinds, their photos and the texts that mention them."""
    gone = vocabulary.isa[:, [vocabulary.index(name) for name in names]].any(1)
    mentioned = _pattern(_words(vocabulary, gone, names))
    number = np.where(gone, -1, np.cumsum(~gone) - 1)  # of each name in the shorter vocabulary
    kept = np.array([not any(mentioned.search(text) for text in texts) for texts in bank.captions])
    shorter = replace(
        bank,
        labelled={name: _relabelled(part, number) for name, part in bank.labelled.items()},
        mirrored={name: [_relabelled(part, number) for part in parts] for name, parts in bank.mirrored.items()},
        captioned=bank.captioned[kept],
        captions=[texts for texts, keep in zip(bank.captions, kept, strict=True) if keep],
    )
    rows = np.flatnonzero(~gone)
    return shorter, Vocabulary(
        names=tuple(vocabulary.names[i] for i in rows),
        synonyms=tuple(tuple(w for w in vocabulary.synonyms[i] if not mentioned.search(w)) for i in rows),
        glosses=tuple("" if mentioned.search(vocabulary.glosses[i]) else vocabulary.glosses[i] for i in rows),
        isa=vocabulary.isa[np.ix_(rows, rows)],
        kinds=vocabulary.kinds,  # one that no name is left of is never drawn
        kind_of=vocabulary.kind_of[rows],
        imagenet=number[vocabulary.imagenet],
    )


def _relabelled(part: Labelled, number: NDArray[np.int64]) -> Labelled:
    labels = number[part.labels]
    return Labelled(part.rows[labels >= 0], labels[labels >= 0])


def _words(vocabulary: Vocabulary, gone: NDArray[np.bool_], names: list[str]) -> set[str]:
    """Every word for a class that is left out: names, synonyms, and the lists that the audit asks with."""
    listed = json.loads(LIST.read_text(encoding="utf-8"))["names"]
    found = {word for name in names for word in (*listed[name]["synonyms"], *listed[name]["kinds"])}
    for i in np.flatnonzero(gone):
        found |= {vocabulary.names[i], *vocabulary.synonyms[i]}
    return {word.lower() for word in found}


def _pattern(words: set[str]) -> re.Pattern[str]:
    both = sorted({*words, *(plural(word) for word in words)}, key=len, reverse=True)
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, both))})\b", re.IGNORECASE)
