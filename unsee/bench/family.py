"""How much a candidate costs on SigLIP, beside the library's own batched call on the same weights.

SigLIP's text tower is bidirectional and looks at its padding, so little can be cut without changing a number:

* in the first layer, queries, keys and values of names and padding do not depend on the contexts, and those of the
  contexts do not depend on the class;
* in the last layer only the last position is read, so it alone needs a query, an output map and an MLP.

The second is what `models/siglip_text.py` cuts; the first would be worth two percent, and is not cut.

The bound is the multiply-adds of the library's call over those that are left after these cuts. Times are CPU seconds:
other programs on the machine then change the ratio less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from unsee.data.paper_names import CIFAR100
from unsee.errors import InputError
from unsee.models.fast.tokenizers import ClipTokenizer
from unsee.models.library.siglip_text import siglip_features
from unsee.models.library.text_towers import (
    LibraryText,
    LibraryTower,
    TokenLayout,
    features_of,
    place_contexts,
    token_table,
)
from unsee.types import Floats

TIMED_FAMILIES = ("siglip",)
CLASSES = (10, 100, 1000)
LENGTH = 16
AT_LEAST = 200  # at least so many prompts are timed: several candidates of few classes, one of many
PAD, END, FIRST = 1, 0, 100  # ids: padding, the end token, and where the names' ids begin


@dataclass(frozen=True)
class TowerShape:
    """The sizes that the arithmetic depends on."""

    width: int
    layers: int
    hidden: int
    positions: int

    def macs(self) -> int:
        """Multiply-adds of one prompt by the library's call."""
        return self.layers * (self._layer() + self._attention(self.positions)) + self.width**2

    def macs_left(self, contexts: int, classes: int) -> float:
        """Those that are left after every exact cut, per prompt of a candidate with so many classes."""
        d, s = self.width, self.positions
        mlp = d * d + 2 * d * self.hidden  # with attention's output map
        first = s * mlp + 3 * d * d * contexts / classes + self._attention(s)
        middle = (self.layers - 2) * (self._layer() + self._attention(s))
        last = s * 2 * d * d + d * d + mlp + self._attention(1)
        return first + middle + last + d * d

    def _layer(self) -> int:
        return self.positions * (4 * self.width**2 + 2 * self.width * self.hidden)

    def _attention(self, queries: int) -> int:
        return 2 * queries * self.positions * self.width


BASE = TowerShape(768, 12, 3072, 64)  # SigLIP's base models


@dataclass(frozen=True)
class FamilyTiming:
    """One setting; seconds are CPU seconds of one candidate."""

    classes: int
    contexts: int
    candidates: int
    seconds: float
    seconds_library: float
    ratio: float
    bound: float
    share_of_bound: float
    largest_difference: float  # of class embeddings


def measure_family(
    family: str,
    classes: Sequence[int] = CLASSES,
    shape: TowerShape = BASE,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, object]:
    """Timings of every setting, ours and the library's in turn."""
    if family not in TIMED_FAMILIES:
        raise InputError(f"--family is one of {', '.join(TIMED_FAMILIES)}, not {family!r}")
    for count in classes:
        if count < 1:
            raise InputError(f"--classes must be at least 1, not {count}")
    subject = Siglip(shape)
    rows = []
    for count in classes:
        say(f"{family}, C {count}, m {LENGTH}")
        rows.append(asdict(subject.time(count)))
        say("  " + ", ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()))
    return {"family": family, "model": f"random weights, {shape}", "threads": torch.get_num_threads(), "settings": rows}


class Siglip:
    """One set of random weights, behind our evaluator and behind the library's call."""

    def __init__(self, shape: TowerShape) -> None:
        from transformers import SiglipConfig, SiglipModel

        self.shape = shape
        text = {
            "hidden_size": shape.width,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": max(1, shape.width // 64),
            "intermediate_size": shape.hidden,
            "max_position_embeddings": shape.positions,
            "projection_size": shape.width,
            "bos_token_id": END,
            "eos_token_id": END,
        }
        small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 32}
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.model: Any = SiglipModel(SiglipConfig(text_config=text, vision_config=small))
        self.model.eval().requires_grad_(False)
        table = token_table(self.model.text_model)
        self.spare = table.num_embeddings - LENGTH  # rows that hold contexts in the library's call
        place_contexts(table)
        layout = TokenLayout(shape.positions, self.spare, PAD)
        row_bytes = 4 * (2 * shape.hidden + 8 * shape.width)
        self.tower = LibraryTower(self.model, table, layout, "bench", row_bytes, siglip_features)
        words, most = ClipTokenizer(), table.num_embeddings - LENGTH - FIRST
        self.names = [(*(FIRST + i % most for i in words.ids(f"{name}.")), END) for name in CIFAR100]

    def time(self, classes: int) -> FamilyTiming:
        """One setting, both ways in turn; the best of two, or of one where it takes long."""
        names = [self.names[i % len(self.names)] for i in range(classes)]
        count = max(1, AT_LEAST // classes)
        drawn = np.random.default_rng(0).normal(0, 0.02, (count, LENGTH, self.shape.width)).astype(np.float32)
        bound = self.tower.bind(names, None, "end", [1] * classes)
        bound.prompts(LENGTH)  # what is done once per binding is not timed
        ours, theirs, difference = [], [], 0.0
        for _ in range(2 if classes * count <= 2 * AT_LEAST else 1):
            mine, seconds = _timed(lambda: self._ours(bound, drawn))
            ours.append(seconds)
            other, seconds = _timed(lambda: self._library(names, drawn))
            theirs.append(seconds)
            difference = float((mine - other).abs().max())
        shape = self.shape
        ratio, limit = min(theirs) / min(ours), shape.macs() / shape.macs_left(LENGTH, classes)
        return FamilyTiming(
            classes,
            LENGTH,
            count,
            min(ours) / count,
            min(theirs) / count,
            ratio,
            limit,
            ratio / limit,
            difference,
        )

    def _ours(self, bound: LibraryText, contexts: Floats) -> torch.Tensor:
        with torch.inference_mode():
            return bound.embeddings(torch.from_numpy(contexts))

    def _library(self, names: Sequence[Sequence[int]], contexts: Floats) -> torch.Tensor:
        """A candidate's contexts in rows of the token table, all its classes in batches. -> (b, C, E)."""
        spare = list(range(self.spare, self.spare + LENGTH))
        rest = self.shape.positions - LENGTH
        ids = torch.tensor([[*spare, *name, *[PAD] * (rest - len(name))] for name in names])
        table, found = self.tower.tokens, []
        with torch.inference_mode():
            for one in contexts:
                table.data[self.spare :] = torch.from_numpy(one)
                parts = [
                    features_of(self.model.get_text_features(input_ids=part)) for part in torch.split(ids, AT_LEAST)
                ]
                found.append(F.normalize(torch.cat(parts), dim=-1))
        return torch.stack(found)


def _timed(work: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    start = time.process_time()
    found = work()
    return found, time.process_time() - start
