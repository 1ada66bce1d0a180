"""Words in front of a name, and which photos they are true of.

Every context is ordinary language: "a photo of a", "no cat or ship:", "an animal, the", "either a fork or a bus:",
"a dark photo of a". It says something about the photo that may be false, so a tower that matches texts with photos has
to read it. Names and kinds inside a context are drawn uniformly from the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.colours import COLOUR_NAMES
from training.vocabulary import Vocabulary

Bools = NDArray[np.bool_]

PLAIN = (
    "a photo of a",
    "a photo of the",
    "a picture of a",
    "an image of a",
    "a",
    "the",
    "this is a",
    "one",
    "",
    "we see a",
    "here is the",
    "a photograph of one",
    "it shows a",
    "look at the",
    "my photo of the",
    "a shot of a",
    "an image showing the",
    "a small photo of a",
    "a low resolution photo of a",
    "there is a",
)
UNSEEN = ("a snapshot of a", "a photograph showing a", "here we see the", "an image with one")
"""Never read in training; only for measuring."""

DENIALS = (
    "no {}:",
    "not a {}, a",
    "not {} but",
    "without {}:",
    "anything but {}:",
    "all except {}:",
    "{}? no, a",
    "this is not a {} but a",
    "there is no {} here, only a",
    "never {},",
    "not {}:",
    "a photo without {}: a",
    "no {}, but a",
)
CHOICES = (
    "either {}:",
    "only {}:",
    "one of {}:",
    "{}: the",
    "a {}, namely a",
    "just {}, a",
    "{} and nothing else:",
)
KINDS = (
    "a kind of {},",
    "a {}, the",
    "only {}:",
    "some {}, a",
    "among all {}, the",
    "a photo of a {}, a",
    "{}:",
)
LIGHT = ("a {} photo of a", "a {} picture of the", "{} light, a", "it is {}: a")
COLOURED = ("a {} photo of a", "mostly {}, a", "{} and a", "a lot of {} around the", "a {} picture of a", "{}: a")


@dataclass(frozen=True)
class Context:
    """Words in front of a name, and the photos they are true of."""

    words: str
    allows: Bools
    """(names,): whether it can be true of a photo that shows this name."""
    look: Callable[[NDArray[np.float32]], Bools] | None = None
    """From colours (n, COLOURS) to whether the words about colour or light are true; none said if absent."""

    def true_of(self, labels: NDArray[np.int64], colours: NDArray[np.float32]) -> Bools:
        """Whether the words are true of each photo."""
        right = self.allows[labels]
        return right if self.look is None else right & self.look(colours)


class ContextWriter:
    """Draws contexts."""

    def __init__(
        self, vocabulary: Vocabulary, forms: tuple[str, ...], templates: int = len(PLAIN), longer: float = 0.35
    ) -> None:
        self.vocabulary = vocabulary
        self.templates = templates
        self.longer = longer
        self.forms = forms
        self.everything = np.ones(len(vocabulary.names), dtype=np.bool_)

    def plain(self, rng: np.random.Generator) -> Context:
        """A context that says nothing."""
        return Context(str(rng.choice(PLAIN[: self.templates])), self.everything)

    def draw(self, pool: NDArray[np.int64], rng: np.random.Generator) -> Context:
        """A context of a random form; names come from the pool, which was drawn uniformly from the vocabulary."""
        form = str(rng.choice(self.forms))
        if form == "plain":
            return self.plain(rng)
        if form == "look":
            return self.look(rng)
        denies = form in ("denial", "denied kind", "mixed denial")
        words, meant = [], np.zeros_like(self.everything)
        if form in ("denial", "choice", "mixed denial"):
            for i in self.some(pool, rng):
                words.append(self.say(int(i), rng))
                meant |= self.vocabulary.isa[:, i]
        if form in ("kind", "denied kind", "mixed denial"):
            for _ in range(1 if form == "kind" else int(rng.integers(1, 4))):
                kind = self.some_kind(pool, rng)
                noun = self.vocabulary.kinds[kind]
                words.append(plural(noun) if rng.random() < 0.3 else noun)
                meant |= self.vocabulary.kind_of[:, kind]
        rng.shuffle(words)
        shape = str(rng.choice(DENIALS if denies else KINDS if form == "kind" else CHOICES))
        listed = join(words, rng)
        return Context(shape.format(listed), ~meant if denies else meant)

    def some(self, pool: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """One to eight names of the pool, few more often than many."""
        count = int(rng.geometric(self.longer))
        return rng.choice(pool, min(count, 8, len(pool) // 2), replace=False)

    def some_kind(self, pool: NDArray[np.int64], rng: np.random.Generator) -> int:
        """A kind that some names of the pool have and some have not."""
        members = self.vocabulary.kind_of[pool].sum(0)
        usable = np.flatnonzero((members > 0) & (members < len(pool)))
        return int(rng.choice(usable if len(usable) else len(self.vocabulary.kinds)))

    def group(
        self, context: Context, pool: NDArray[np.int64], size: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Names of the pool to read behind a context, those that it rules out and those that it does not."""
        pool = rng.permutation(pool)
        fits = context.allows[pool]
        sides = sorted((pool[fits], pool[~fits]), key=len)
        few = sides[0][: size // 2]
        return np.concatenate([few, sides[1][: size - len(few)]])

    def say(self, name: int, rng: np.random.Generator) -> str:
        """A name or, now and then, a synonym of it."""
        others = self.vocabulary.synonyms[name]
        if others and rng.random() < 0.1:
            return str(rng.choice(others))
        return self.vocabulary.names[name]

    def look(self, rng: np.random.Generator) -> Context:
        """A context about colour or light."""
        words, look = draw_look(rng)
        shape = str(rng.choice(LIGHT if words in ("dark", "bright") else COLOURED))
        return Context(shape.format(words), self.everything, look)


def draw_look(rng: np.random.Generator) -> tuple[str, Callable[[NDArray[np.float32]], Bools]]:
    """A word about colour or light, and the test of it on measured colours."""
    brightness = len(COLOUR_NAMES)
    kind = int(rng.integers(brightness + 4))
    if kind >= brightness + 2:
        return "dark", lambda colours: colours[:, brightness] < 0.3
    if kind >= brightness:
        return "bright", lambda colours: colours[:, brightness] > 0.62
    return COLOUR_NAMES[kind], lambda colours: colours[:, kind] > 0.3


def join(words: list[str], rng: np.random.Generator, link: str = "or") -> str:
    """A list in words, now and then without the last link."""
    if len(words) == 1:
        return words[0]
    if rng.random() < 0.3:
        return (", " if rng.random() < 0.5 else " ").join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"


def plural(noun: str) -> str:
    """The regular plural."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeou":
        return noun[:-1] + "ies"
    return noun + "s"
