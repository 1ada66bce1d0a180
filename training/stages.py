"""The stages of training, each done once: tokenizer, features, bank, fit, judge, export."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from training import photos
from training import tokenizer as tokens
from training.bank import Bank
from training.batches import Batches
from training.clip_tokenizer import first_tokens
from training.contexts import CHOICES, COLOURED, DENIALS, KINDS, LIGHT, PLAIN
from training.encoders import Encoder
from training.features import extract_all
from training.fit import Model, fit
from training.judge import SPLITS, judge
from training.kept_out import KEPT_OUT, forms_of
from training.polish import polish
from training.recipe import Recipe
from training.record import Log
from training.vocabulary import Vocabulary
from training.without import leave_out
from unsee.models.features import FeatureCache


@dataclass(frozen=True)
class Stages:
    """Sources in, everything else made when it is first asked for and kept in the work folder."""

    sources: Path
    work: Path
    threads: int
    encoder: Encoder

    @property
    def cache(self) -> Path:
        return self.work / f"features{self.encoder.work}"

    def extract(
        self,
        log: Log,
        limit: int | None = None,
        workers: int = 1,
        shared: FeatureCache | None = None,
        tests: bool = True,
    ) -> None:
        """Encode every photo set, or `limit` photos of each; see `extract_all`."""
        extract_all(self.encoder, self.sources, self.cache, self.threads, log, limit, workers, shared, tests)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return self.encoder.vocabulary(self.sources)

    @cached_property
    def bank(self) -> Bank:
        return self.encoder.bank(self.sources, self.cache, self.vocabulary)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        if self.encoder.tokens is not None:
            return first_tokens(self.encoder.tokens, (form for name in KEPT_OUT for form in forms_of(name)))
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
        self, recipe: Recipe, seed: int, name: str, log: Log, splits: tuple[int, ...] = SPLITS
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
