"""The stages of training, each done once: tokenizer, features, bank, fit, judge, export."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from training import features, photos
from training import tokenizer as tokens
from training.bank import Bank, load_bank
from training.batches import Batches
from training.contexts import CHOICES, COLOURED, DENIALS, KINDS, LIGHT, PLAIN
from training.fit import Model, fit
from training.judge import judge
from training.polish import polish
from training.recipe import Recipe
from training.record import Log
from training.vocabulary import Vocabulary, load_vocabulary
from training.without import leave_out


@dataclass(frozen=True)
class Stages:
    """Sources in, everything else made when it is first asked for and kept in the work folder."""

    sources: Path
    work: Path
    threads: int

    @property
    def cache(self) -> Path:
        return self.work / "features"

    def extract(self, log: Log) -> None:
        """Encode every photo set."""
        for photo_set in features.sets(self.sources):
            features.extract(photo_set, self.cache, self.threads, log)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return load_vocabulary(self.sources)

    @cached_property
    def bank(self) -> Bank:
        return load_bank(self.sources, self.cache, self.vocabulary)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        path = self.work / "tokenizer.json"
        if not path.exists():
            tokens.train_tokenizer(self._corpus(), path)
        return Tokenizer.from_file(str(path))

    def material(self, recipe: Recipe) -> tuple[Bank, Vocabulary]:
        """The photos and the names that this recipe allows."""
        if not recipe.without:
            return self.bank, self.vocabulary
        return leave_out(self.bank, self.vocabulary, recipe.without.split(","))

    def train(
        self, recipe: Recipe, seed: int, name: str, log: Log, splits: tuple[int, int] = (6, 3)
    ) -> tuple[Model, dict[str, object]]:
        """The trained model of this recipe and seed, and its judgement."""
        bank, vocabulary = self.material(recipe)
        batches = Batches(bank, vocabulary, self.tokenizer, recipe, seed)
        model = fit(bank, batches, recipe, seed, self.work / f"{name}.pt", log)
        polish(model, bank, vocabulary, self.tokenizer, recipe, seed, log)
        path = self.work / f"{name}-judged.json"
        if not path.exists():
            verdict = judge(model, self.tokenizer, self.bank, self.vocabulary, splits)
            path.write_text(json.dumps(verdict, indent=2) + "\n")
            log.write("judged", name=name, **verdict)
        return model, json.loads(path.read_text())

    def _corpus(self) -> list[str]:
        flickr = photos.flickr8k_captions(self.sources)
        shapes = [*PLAIN, *DENIALS, *CHOICES, *KINDS, *LIGHT, *COLOURED]
        return [
            *(c for texts in photos.coco_captions(self.sources).values() for c in texts),
            *(c for key in photos.flickr8k_split(self.sources, "train") for c in flickr[key]),
            *tokens.glosses(self.sources / "wordnet"),
            *(f"{name}." for name in (*self.vocabulary.names, *self.vocabulary.kinds) for _ in range(60)),
            *(shape.replace("{}", "") for shape in shapes for _ in range(200)),
        ]
