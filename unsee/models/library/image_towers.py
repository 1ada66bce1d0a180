"""An image tower that `transformers` runs, on images that the checkpoint's own image processor prepares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unsee.data.images import BACKGROUND, as_rgb
from unsee.models.fast.vision import as_floats, fingerprint
from unsee.models.library.text_towers import features_of
from unsee.types import Floats
from unsee.versions import FEATURE_EPOCH


class LibraryVision:
    """The image half of a `transformers` dual encoder."""

    batch = 32

    def __init__(self, model: Any, processor: Any, recipe: str, device: str, dtype: torch.dtype) -> None:
        self.model = model  # with `get_image_features`
        self._processor = processor
        self.device = device
        self.dtype = dtype
        settings = f"epoch {FEATURE_EPOCH}|on {BACKGROUND}|{dtype}|{recipe}"
        self.fingerprint = fingerprint(settings, {key: weight.float() for key, weight in model.state_dict().items()})

    def prepare(self, image: Image.Image) -> Mapping[str, Any]:
        """What the image tower takes, for one image: pixels, and for NaFlex also their mask and shape."""
        ready = self._processor(images=as_rgb(image), return_tensors="np")
        return {name: np.asarray(value)[0] for name, value in ready.items()}

    def embed(self, prepared: Sequence[Any]) -> Tensor:
        """Normalised image embeddings, in float32. -> (n, E)."""
        given = {}
        for name in prepared[0]:
            value = torch.from_numpy(np.stack([one[name] for one in prepared])).to(self.device)
            given[name] = value.to(self.dtype) if value.is_floating_point() else value
        return torch.nn.functional.normalize(features_of(self.model.get_image_features(**given)).float(), dim=-1)

    def encode(self, prepared: Sequence[Any]) -> Floats:
        """Normalised image embeddings. -> (n, E)."""
        return as_floats(self, prepared)
