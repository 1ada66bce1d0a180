"""Names as the model sees them: which labels are another spelling, or another name, of a class.

A rule that compares text lets "Cat", "cat " and "cat (n00000000)" pass, which the model reads as "cat".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from unsee.data.class_names import in_prompt

Ids = Callable[[str], Sequence[int]]  # text -> token ids


def spelling_key(name: str) -> str:
    """Letters and digits alone, small, without accents, invisible signs or a synset: the same for all spellings."""
    return "".join(_words(name)) or _visible(name)


class Spellings:
    """Names, each known in all its spellings."""

    def __init__(self, names: Iterable[str], ids: Ids) -> None:
        listed = tuple(names)
        self._ids = ids
        self._keys = {spelling_key(name) for name in listed}
        self._tokens = {self._seen(name) for name in listed}
        self._phrases = {phrase for name in listed for phrase in _numbers(tuple(_words(name)))}
        self._longest = max((len(phrase) for phrase in self._phrases), default=0)

    def __contains__(self, name: str) -> bool:
        """Whether this is one of the names for the model, however it is written."""
        return spelling_key(name) in self._keys or self._seen(name) in self._tokens

    def mentioned_in(self, label: str) -> bool:
        """Whether one of the names, or its plural, is part of this label, as in "two cats"."""
        words = tuple(_words(label))
        parts = (words[i : i + n] for n in range(1, self._longest + 1) for i in range(len(words) - n + 1))
        return any(phrase in self._phrases for part in parts for phrase in _numbers(part))

    def _seen(self, name: str) -> tuple[int, ...]:
        return tuple(self._ids(in_prompt(name).strip()))


def _visible(name: str) -> str:
    """Without what no reader sees: compatibility forms, invisible signs, accents, case, a synset."""
    text = unicodedata.normalize("NFKC", name)
    text = "".join(sign for sign in text if unicodedata.category(sign) != "Cf").strip()
    decomposed = unicodedata.normalize("NFKD", in_prompt(text).casefold())
    return "".join(sign for sign in decomposed if not unicodedata.combining(sign)).strip()


def _words(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", _visible(name))


def _numbers(phrase: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The phrase as it is, and with its last word made singular in the ways that English has."""
    for ending in ("", "s", "es"):
        if phrase and phrase[-1].endswith(ending):
            yield (*phrase[:-1], phrase[-1].removesuffix(ending))
