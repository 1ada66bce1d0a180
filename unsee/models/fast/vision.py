"""CLIP's image tower and its preprocessing, as Hugging Face and OpenCLIP do it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from unsee.data.images import BACKGROUND, as_rgb
from unsee.errors import ModelError
from unsee.models.fast.checkpoint_record import Checkpoint, Preprocess, is_buffer
from unsee.models.fast.preprocessor_config import FILTERS
from unsee.models.fast.weights import Weights
from unsee.types import Floats
from unsee.versions import FEATURE_EPOCH

RESAMPLING = {name: Image.Resampling[name.upper()] for name in FILTERS}


def preprocess(image: Image.Image, how: Preprocess) -> Floats:
    """Prepares an image for the model: RGB on white, resized, cropped or padded, normalised. -> (3, crop, crop).

    Images become RGB first, as Hugging Face does; OpenCLIP does so last, which differs for palette images.
    """
    return normalise(np.asarray(crop_image(image, how)), how)


def normalise(pixels: NDArray[np.uint8], how: Preprocess) -> Floats:
    """Pixels of a cropped image as the model takes them. (crop, crop, 3) -> (3, crop, crop)."""
    scaled: Floats = pixels.astype(np.float32) / np.float32(255)
    mean, std = np.array(how.mean, np.float32), np.array(how.std, np.float32)
    normal: Floats = (scaled - mean) / std
    return np.ascontiguousarray(normal.transpose(2, 0, 1))


def crop_image(image: Image.Image, how: Preprocess) -> Image.Image:
    """The image before it is normalised: RGB on white, resized, cropped or padded to a square of side `crop`."""
    image = as_rgb(image)
    if how.mode != "none":
        image = image.resize(_resized(image.size, how), RESAMPLING[how.interpolation])
    return _padded(image, how) if how.mode == "longest" else _cropped(image, how)


def _resized(size: tuple[int, int], how: Preprocess) -> tuple[int, int]:
    """The width and height to resize an image of this size to."""
    width, height = size
    short, long = min(size), max(size)
    if how.mode == "squash":
        return how.resize, how.resize
    if how.mode == "longest":
        ratio = long / how.resize
        return max(1, round(width / ratio)), max(1, round(height / ratio))  # OpenCLIP fails where this rounds to 0
    scaled = int(how.resize * long / short)
    return (how.resize, scaled) if width <= height else (scaled, how.resize)


def _cropped(image: Image.Image, how: Preprocess) -> Image.Image:
    """The centre of the image."""

    def start(side: int) -> int:
        margin = side - how.crop
        return round(margin / 2) if how.crop_rounding == "even" else margin // 2

    left, top = start(image.width), start(image.height)
    return image.crop((left, top, left + how.crop, top + how.crop))


def _padded(image: Image.Image, how: Preprocess) -> Image.Image:
    """The image in the middle of a square of the fill colour."""
    square = Image.new("RGB", (how.crop, how.crop), (how.fill, how.fill, how.fill))
    square.paste(image, ((how.crop - image.width) // 2, (how.crop - image.height) // 2))
    return square


@runtime_checkable
class TorchEncoder(Protocol):
    """An image encoder in torch: its weights can be trained."""

    model: torch.nn.Module

    def prepare(self, image: Image.Image) -> Any: ...
    def embed(self, prepared: Sequence[Any]) -> Tensor:
        """Normalised image embeddings, in float32; gradients reach the weights. -> (n, E)."""


def as_floats(encoder: TorchEncoder, prepared: Sequence[Any]) -> Floats:
    """The embeddings without gradients, as an array. -> (n, E)."""
    with torch.inference_mode():
        found: Floats = encoder.embed(prepared).cpu().numpy()
        return found


def fingerprint(recipe: str, weights: Weights) -> str:
    """The identity of an image tower: its weights, and what they do not say."""
    digest = hashlib.blake2b(recipe.encode(), digest_size=16)
    for key in sorted(weights):
        head = f"|{key}{tuple(weights[key].shape)}|"
        digest.update(head.encode() + weights[key].contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


class PixelTower:
    """An image tower that takes pixels, prepared as its checkpoint says."""

    batch = 32

    def __init__(
        self, model: torch.nn.Module, how: Preprocess, recipe: str, weights: Weights, device: str, dtype: torch.dtype
    ) -> None:
        self.model = model
        self.how = how
        self.device = device
        self.dtype = dtype
        self.fingerprint = fingerprint(f"epoch {FEATURE_EPOCH}|{how}|on {BACKGROUND}|{dtype}|{recipe}", weights)

    def prepare(self, image: Image.Image) -> Floats:
        return preprocess(image, self.how)

    def features(self, pixels: Tensor) -> Tensor:
        """What the tower makes of pixels. (n, 3, side, side) -> (n, E)."""
        found: Tensor = self.model(pixels)
        return found

    def embed(self, prepared: Sequence[Any]) -> Tensor:
        """Normalised image embeddings, in float32. -> (n, E)."""
        pixels = torch.from_numpy(np.stack(prepared)).to(self.device, self.dtype)
        return torch.nn.functional.normalize(self.features(pixels).float(), dim=-1)

    def encode(self, prepared: Sequence[Any]) -> Floats:
        """Normalised image embeddings. -> (n, E)."""
        return as_floats(self, prepared)


class VisionTransformer(PixelTower):
    """The image tower of a checkpoint, run by `transformers`."""

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
        weights = _image_weights(checkpoint)
        _load(model, weights, checkpoint.source)
        embeddings = model.vision_model.embeddings  # its buffer is made here, whether or not the file has it
        embeddings.position_ids = torch.arange(embeddings.num_positions)[None]
        ready = model.to(device=device, dtype=dtype).eval()
        super().__init__(ready, checkpoint.preprocess, f"{sizes}", weights, device, dtype)

    def features(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.model(pixel_values=pixels).image_embeds
        return found


def _image_weights(checkpoint: Checkpoint) -> Weights:
    """The image tower's weights, without buffers."""
    towers = ("vision_model.", "visual_projection.")
    return {k: v for k, v in checkpoint.state.items() if k.startswith(towers) and not is_buffer(k)}


def _load(model: torch.nn.Module, weights: Weights, source: str) -> None:
    """Loads exactly these weights: one too many or too few is an error, as the tower starts from unset memory."""
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:  # a wrong shape; its message has many lines
        raise ModelError(f"{source}: {str(error).splitlines()[-1].strip()}") from None
    lacking = [key for key in missing if not is_buffer(key)]
    if lacking:
        raise ModelError(f"{source}: not a CLIP checkpoint: {lacking[0]} is missing")
    if unexpected:
        raise ModelError(f"{source}: {unexpected[0]} does not belong to this CLIP image tower")
