"""Draws what one training step reads: photos, texts, and which text is true of which photo."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from training.bank import Bank, Labelled, stream
from training.contexts import Bools, Context, ContextWriter
from training.descriptions import Description, describe
from training.photos import CIFAR10_NAMES
from training.recipe import SHARES_OF, Recipe
from training.text_tower import Packed
from training.tokenizer import EOT, SOS
from training.vocabulary import Vocabulary

LONGEST = 32
"""Tokens of a caption or a context, at most."""


@dataclass(frozen=True)
class Step:
    """One step. Stems are contexts (without EOT), then descriptions, then captions (with EOT)."""

    photos: Tensor  # rows of labelled photos (n,)
    captioned: Tensor  # rows of captioned photos (k,)
    stems: Packed
    contexts: int
    suffixes: Packed | None  # "<name>." and EOT, behind contexts
    owner: Tensor  # (suffixes,) context that each one follows
    true: Tensor  # (n, suffixes + descriptions) text is true of photo
    false: Tensor  # (n, suffixes + descriptions); neither true nor false: not known
    ruled_out: Tensor  # (n, suffixes + descriptions); false by its context alone, the name is right


class Batches:
    """Draws steps of one recipe; step i of a seed is always the same."""

    def __init__(self, bank: Bank, vocabulary: Vocabulary, tokenizer: Tokenizer, recipe: Recipe, seed: int) -> None:
        self.bank, self.vocabulary, self.recipe, self.seed = bank, vocabulary, recipe, seed
        self.tokenizer = tokenizer
        self.sos, self.eot = tokenizer.token_to_id(SOS), tokenizer.token_to_id(EOT)
        self.suffixes = [self.ids(f"{name}.", end=True) for name in vocabulary.names]
        longest = LONGEST - 1 + max(map(len, self.suffixes))
        if longest > recipe.positions:
            raise ValueError(f"a name behind a context can have {longest} tokens, the text tower {recipe.positions}")
        self.writer = ContextWriter(vocabulary, recipe.forms, recipe.templates, recipe.longer)
        self.labelled = {k: v for k, v in _limited(bank.labelled, vocabulary, recipe).items() if len(v.rows)}
        shares = np.array([SHARES_OF[recipe.shares][name] for name in self.labelled])
        self.shares = shares / shares.sum()
        everything = np.concatenate([part.labels for part in self.labelled.values()])
        rows = np.concatenate([part.rows for part in self.labelled.values()])
        order = np.argsort(everything, kind="stable")
        self.known, starts = np.unique(everything[order], return_index=True)
        self.by_name = dict(zip(self.known.tolist(), np.split(rows[order], starts[1:]), strict=True))

    def ids(self, text: str, start: bool = False, end: bool = False) -> list[int]:
        """Token ids of a text, cut to LONGEST."""
        found = self.tokenizer.encode(text, add_special_tokens=False).ids[: LONGEST - 2]
        return [*([self.sos] if start else []), *found, *([self.eot] if end else [])]

    def draw(self, step: int) -> Step:
        """The step with this number."""
        recipe, rng = self.recipe, stream(self.seed, "step", step)
        rows, labels = self._photos(rng)
        contexts: list[Context] = []
        groups: list[NDArray[np.int64]] = []
        if recipe.names:
            own = np.unique(labels)
            others = rng.choice(self.known, min(recipe.names, len(self.known)), replace=False)
            contexts.append(self.writer.plain(rng))
            groups.append(np.unique(np.concatenate([own, others[: max(0, recipe.names - len(own))]])))
        if recipe.contexts:
            pool = rng.choice(self.known, min(recipe.pool, len(self.known)), replace=False)
            shown = [rng.choice(self.by_name[int(i)], recipe.pool_photos) for i in pool]
            rows = np.concatenate([rows, *shown])
            labels = np.concatenate([labels, np.repeat(pool, recipe.pool_photos)])
            for _ in range(recipe.contexts):
                contexts.append(self.writer.draw(pool, rng))
                groups.append(self.writer.group(contexts[-1], pool, recipe.group, rng))
        colours = self.bank.colours[rows]
        chosen = rng.choice(len(rows), min(recipe.descriptions, len(rows)), replace=False)
        described = [describe(int(labels[i]), colours[i], self.vocabulary, rng) for i in chosen]
        true, false, ruled_out = self._truth(labels, colours, contexts, groups, described)

        captioned = len(self.bank.captioned)
        pictures = rng.choice(captioned, min(recipe.captions, captioned), replace=False)
        captions = [str(rng.choice(self.bank.captions[i])) for i in pictures]
        stems = [self.ids(c.words, start=True) for c in contexts]
        stems += [self.ids(d.words, start=True, end=True) for d in described]
        stems += [self.ids(c, start=True, end=True) for c in captions]
        names = [int(i) for group in groups for i in group]
        return Step(
            photos=torch.from_numpy(rows),
            captioned=torch.from_numpy(self.bank.captioned[pictures]),
            stems=Packed.of(stems),
            contexts=len(contexts),
            suffixes=Packed.of([self.suffixes[i] for i in names]) if names else None,
            owner=torch.from_numpy(np.repeat(np.arange(len(groups)), [len(g) for g in groups])),
            true=torch.from_numpy(true),
            false=torch.from_numpy(false),
            ruled_out=torch.from_numpy(ruled_out),
        )

    def _photos(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        recipe = self.recipe
        if not recipe.names and not recipe.descriptions:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        rows, labels = [], []
        for part, count in zip(self.labelled.values(), rng.multinomial(recipe.photos, self.shares), strict=True):
            drawn = rng.integers(len(part.rows), size=count)
            rows.append(part.rows[drawn])
            labels.append(part.labels[drawn])
        return np.concatenate(rows), np.concatenate(labels)

    def _truth(
        self,
        labels: NDArray[np.int64],
        colours: NDArray[np.float32],
        contexts: list[Context],
        groups: list[NDArray[np.int64]],
        described: list[Description],
    ) -> tuple[Bools, Bools, Bools]:
        """Which texts are true of each photo, which are false, and which of these only by their context."""
        isa = self.vocabulary.isa
        true, false, ruled_out = [], [], []
        for context, group in zip(contexts, groups, strict=True):
            fits = context.true_of(labels, colours)[:, None]
            named = isa[labels][:, group]
            maybe = isa[group][:, labels].T  # a photo labelled "dog" may show a beagle
            true.append(named & fits)
            false.append((~named & ~maybe) | (named & ~fits))
            ruled_out.append(named & ~fits)
        for text in described:
            fits = np.ones(len(labels), dtype=np.bool_) if text.look is None else text.look(colours)
            named, maybe = isa[labels, text.name], isa[text.name, labels]
            true.append((named & fits)[:, None])
            false.append(((~named & ~maybe) | (named & ~fits))[:, None])
            ruled_out.append((named & ~fits)[:, None])
        empty = np.zeros((len(labels), 0), dtype=np.bool_)
        joined = [np.concatenate([empty, *parts], 1) for parts in (true, false, ruled_out)]
        return joined[0], joined[1], joined[2]


def _limited(labelled: dict[str, Labelled], vocabulary: Vocabulary, recipe: Recipe) -> dict[str, Labelled]:
    """The labelled photos whose names the recipe allows."""
    if recipe.vocabulary == "all":
        return labelled
    if recipe.vocabulary == "cifar100":
        return {"cifar100": labelled["cifar100"]}
    numbers = [vocabulary.index(name) for name in CIFAR10_NAMES]
    part = labelled["cifar10"]
    keep = np.isin(part.labels, numbers)
    return {"cifar10": Labelled(part.rows[keep], part.labels[keep])}
