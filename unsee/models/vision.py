"""CLIP's image side: preprocessing as the Hugging Face processor does it, and the vision transformer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from unsee.images import BACKGROUND, as_rgb
from unsee.models.checkpoints import Checkpoint, Preprocess
from unsee.provenance import EPOCH
from unsee.records import Floats


def preprocess(image: Image.Image, how: Preprocess) -> Floats:
    """RGB on white, shortest side resized (bicubic), centre cropped, normalised. -> (3, crop, crop)."""
    image = as_rgb(image)
    width, height = image.size
    short, long = min(width, height), max(width, height)
    scaled = int(how.resize * long / short)
    size = (how.resize, scaled) if width <= height else (scaled, how.resize)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (image.size[0] - how.crop) // 2, (image.size[1] - how.crop) // 2
    image = image.crop((left, top, left + how.crop, top + how.crop))
    pixels: Floats = np.asarray(image, dtype=np.float32) / np.float32(255)
    mean, std = np.array(how.mean, np.float32), np.array(how.std, np.float32)
    normal: Floats = (pixels - mean) / std
    return np.ascontiguousarray(normal.transpose(2, 0, 1))


class VisionTransformer:
    """The image tower of a checkpoint, run by `transformers`."""

    batch = 32

    def __init__(self, checkpoint: Checkpoint, device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

        sizes = checkpoint.vision
        config = CLIPVisionConfig(
            hidden_size=sizes.width,
            intermediate_size=sizes.hidden,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            hidden_act=sizes.activation,
            layer_norm_eps=sizes.eps,
            image_size=checkpoint.image,
            patch_size=checkpoint.patch,
            projection_dim=checkpoint.embedding,
        )
        with torch.device("meta"):
            model = CLIPVisionModelWithProjection(config)
        model = model.to_empty(device="cpu")
        weights = {k: v for k, v in checkpoint.state.items() if k.startswith(("vision_model.", "visual_projection."))}
        model.load_state_dict(weights, strict=False)  # every weight was checked before; buffers are made here
        embeddings = model.vision_model.embeddings
        embeddings.position_ids = torch.arange(embeddings.num_positions)[None]
        self.model = model.to(device=device, dtype=dtype).eval()
        self.how = checkpoint.preprocess
        self.device = device
        self.dtype = dtype
        recipe = f"epoch {EPOCH}|{self.how}|on {BACKGROUND}|{dtype}|{sizes}"  # what the weights do not say
        digest = hashlib.blake2b(recipe.encode(), digest_size=16)
        for key in sorted(weights):
            head = f"|{key}{tuple(weights[key].shape)}|"
            digest.update(head.encode() + weights[key].contiguous().numpy().tobytes())
        self.fingerprint = digest.hexdigest()

    def prepare(self, image: Image.Image) -> Floats:
        return preprocess(image, self.how)

    def encode(self, prepared: Sequence[Any]) -> Floats:
        """Normalised image embeddings. -> (n, E)."""
        with torch.inference_mode():
            pixels = torch.from_numpy(np.stack(prepared)).to(self.device, self.dtype)
            embeds = self.model(pixel_values=pixels).image_embeds.float()
            found: Floats = torch.nn.functional.normalize(embeds, dim=-1).cpu().numpy()
            return found
