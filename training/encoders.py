"""The image encoders that a model can be built on, in one dict: `--encoder` takes its keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training import clip_image, lite1_image
from training.bank import Bank, load_bank
from training.card import CARD, CLIP_CARD
from training.clip_bank import clip_plan, load_clip_bank, load_clip_vocabulary
from training.features import Encode, Plan, mini_plan
from training.recipe import CLIP_B16, FINAL, Recipe
from training.vocabulary import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from training.fit import Model


@dataclass(frozen=True)
class Encoder:
    """One image encoder, and what training needs to know of it."""

    name: str
    numbers: int  # a photo
    batch: int  # photos asked at once
    chunk: int  # photos between two savings
    prepare: Callable[[Image.Image], NDArray[np.uint8]]  # -> (side, side, 3), RGB
    open: Callable[[Path, Path, int], Encode]  # sources, cache, threads
    plan: Callable[[Path], Plan]  # sources -> the photo sets in the order they are encoded
    fingerprint: (
        Callable[[Path], str] | None
    )  # what the package's cache knows the encoder by; None: it is not the package's
    bank: Callable[[Path, Path, Vocabulary], Bank]  # sources, cache
    vocabulary: Callable[[Path], Vocabulary]
    export: Callable[[Path, Path, Model, Bank], dict[str, object]]  # writes image.onnx -> config["image"]
    recipe: Recipe
    card: dict[str, object]
    tokens: int | None  # of CLIP's own tokenizer, its first ones; None: a tokenizer is learned
    work: str  # what its files in the work folder are called, after "features" and "tokenizer"


ENCODERS = {
    "lite1": Encoder(
        name="lite1",
        numbers=lite1_image.FEATURES,
        batch=16,
        chunk=512,
        prepare=lite1_image.prepare,
        open=lite1_image.open_encoder,
        plan=mini_plan,
        fingerprint=None,
        bank=load_bank,
        vocabulary=load_vocabulary,
        export=lite1_image.export_image,
        recipe=FINAL,
        card=CARD,
        tokens=None,
        work="",
    ),
    "clip-b16": Encoder(
        name="clip-b16",
        numbers=clip_image.NUMBERS,
        batch=1,  # the file's int8 scales are taken over a whole batch, so photos of one batch change one another
        chunk=64,
        prepare=clip_image.prepare,
        open=clip_image.open_encoder,
        plan=clip_plan,
        fingerprint=clip_image.fingerprint,
        bank=load_clip_bank,
        vocabulary=load_clip_vocabulary,
        export=clip_image.export_image,
        recipe=CLIP_B16,
        card=CLIP_CARD,
        tokens=12_288,
        work="-clip-b16",
    ),
}
