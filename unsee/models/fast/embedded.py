"""The embedded model: a small model with CLIP's architecture that comes with the package.

Its text tower is CLIP's and runs through the same `text_tower.py` as real CLIP; its image tower is an
ONNX graph. `card.json` in its folder says what it was trained on and what it is not for.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file

from unsee.data.images import BACKGROUND, as_rgb
from unsee.errors import ModelError
from unsee.models.families import EMBEDDED
from unsee.models.fast.checkpoint_record import Preprocess, TowerSizes
from unsee.models.fast.clip import check_device, text_tower
from unsee.models.fast.tokenizers import FileTokenizer
from unsee.models.fast.vision import preprocess
from unsee.models.features import FeatureCache
from unsee.models.local import LocalModel
from unsee.types import Floats
from unsee.versions import FEATURE_EPOCH

RESIZED_BY = Image.Resampling.BICUBIC


def load_mini(
    cache: FeatureCache | None = None,
    folder: Path = EMBEDDED,
    name: str = "mini",
    threads: int | None = None,
    device: str = "cpu",
) -> LocalModel:
    """Loads the embedded model, or another one of the same format. Its image tower always runs on the CPU."""
    check_device(device, "float32")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        state = {key: value.float() for key, value in load_file(folder / "text.safetensors").items()}
        sizes = TowerSizes(
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            hidden=config["intermediate_size"],
            activation=config["hidden_act"],
            eps=config["layer_norm_eps"],
        )
        tower = text_tower(state, sizes, device)
        encoder = _image_encoder(folder, config["image"], threads)
        scale = math.exp(float(state["logit_scale"]))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ModelError(f"{folder}: the embedded model is incomplete ({type(error).__name__}: {error})") from None
    return LocalModel(name, tower, FileTokenizer(folder / "tokenizer.json"), encoder, scale, cache)


def _image_encoder(folder: Path, image: Mapping[str, Any], threads: int | None) -> OnnxEncoder:
    """The image tower as config.json describes it: with a mean, its input is normalised as CLIP's."""
    side, how = int(image["side"]), None
    if "mean" in image:
        how = Preprocess(side, side, tuple(map(float, image["mean"])), tuple(map(float, image["std"])))
    return OnnxEncoder(folder / image["file"], side, threads, how, image.get("batch"))


class OnnxEncoder:
    """An image tower as an ONNX graph: pixels in, embeddings out.

    Without `how`, pixels are uint8 (n, side, side, 3), and the graph gives embeddings of length 1. With it, images are
    prepared as CLIP's, (n, 3, side, side), and embeddings are normalised here. `at_once` is how many images one call of
    the graph takes (None: as many as are given).
    """

    batch = 64

    def __init__(
        self,
        path: Path,
        side: int,
        threads: int | None = None,
        how: Preprocess | None = None,
        at_once: int | None = None,
    ) -> None:
        import onnxruntime

        if at_once is not None and at_once < 1:
            raise ValueError(f"a batch of {at_once} images")

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:  # otherwise ONNX Runtime takes every core
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        content = path.read_bytes()
        try:
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime has an exception class for each status
            raise ModelError(f"{path}: not a graph that ONNX Runtime can load ({str(error)[:120]})") from None
        self._input = self.session.get_inputs()[0].name
        self.side = side
        self.how = how
        self.at_once = at_once
        if at_once is not None:
            self.batch = min(16 * at_once, self.batch)  # saved together; slow towers lose less when stopped
        prepared = f"side {side}|{RESIZED_BY.name}" if how is None else f"{how}|{at_once} at once"
        recipe = f"epoch {FEATURE_EPOCH}|{prepared}|on {BACKGROUND}|"  # what the graph does not say
        self.fingerprint = hashlib.blake2b(recipe.encode() + content, digest_size=16).hexdigest()

    def prepare(self, image: Image.Image) -> NDArray[np.uint8] | Floats:
        """The image as the graph takes it: (side, side, 3), or (3, side, side) where `how` says so."""
        if self.how is not None:
            return preprocess(image, self.how)
        return np.asarray(as_rgb(image).resize((self.side, self.side), RESIZED_BY))

    def encode(self, prepared: Sequence[Any]) -> Floats:
        """Normalised image embeddings. -> (n, E)."""
        step = self.at_once or len(prepared)
        parts = [self._run(prepared[i : i + step]) for i in range(0, len(prepared), step)]
        found = np.concatenate(parts)
        return found if self.how is None else found / np.linalg.norm(found, axis=1, keepdims=True)

    def _run(self, prepared: Sequence[Any]) -> Floats:
        found: Floats = self.session.run(None, {self._input: np.stack(prepared)})[0].astype(np.float32, copy=False)
        return found
