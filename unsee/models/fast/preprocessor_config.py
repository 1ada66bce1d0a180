"""Reads Hugging Face's description of how images are prepared: `preprocessor_config.json`.

Everything in it that changes pixels is followed, or refused in one line; nothing is ignored. Newer versions of
`transformers` write the same keys into `processor_config.json`, below `image_processor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unsee.errors import ModelError
from unsee.models.fast.checkpoint_record import OPENAI_MEAN, OPENAI_STD, Preprocess, read_json

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # as Pillow numbers them


def read_preprocess(folder: Path, image: int) -> Preprocess:
    """How a checkpoint's images are prepared; without a file, as CLIP's are. image: the side its image tower takes."""
    path = folder / "preprocessor_config.json"
    if path.is_file():
        return parse_preprocess(read_json(path), image, str(path))
    path = folder / "processor_config.json"
    config = read_json(path).get("image_processor") if path.is_file() else None
    return parse_preprocess(config, image, str(path)) if isinstance(config, dict) else Preprocess(image, image)


def parse_preprocess(config: Mapping[str, Any], image: int, source: str) -> Preprocess:
    """The same from the file's content."""
    if config.get("do_rescale", True) is False or abs(float(config.get("rescale_factor", 1 / 255)) * 255 - 1) > 1e-6:
        raise ModelError(f"{source}: do_rescale and rescale_factor must divide pixels by 255")
    if config.get("do_pad"):
        raise ModelError(f"{source}: do_pad is not supported; images are cropped, not padded")
    crops = config.get("do_center_crop", True) is not False
    if config.get("do_resize", True) is False:
        mode, resize = "none", image
    else:
        mode, resize = _size(config.get("size", image), source)
    if not crops and mode != "squash":
        raise ModelError(
            f"{source}: do_center_crop is false, so images would not be square; it needs a size of height and width"
        )
    crop = _square(config.get("crop_size", image), "crop_size", source) if crops else resize
    if crop != image:
        raise ModelError(
            f"{source}: images are prepared as {crop} x {crop}, but the image tower takes {image} x {image}"
        )
    mean, std = tuple(config.get("image_mean") or OPENAI_MEAN), tuple(config.get("image_std") or OPENAI_STD)
    if config.get("do_normalize", True) is False:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    return Preprocess(resize, crop, mean, std, mode, _interpolation(config.get("resample", 3), source))


def _size(size: Any, source: str) -> tuple[str, int]:
    """Mode and side of a resize: a number or `shortest_edge` is about the shorter side, height and width about both."""
    if not isinstance(size, dict):
        return "shortest", int(size)
    given = {name: value for name, value in size.items() if value is not None}
    if set(given) == {"shortest_edge"}:
        return "shortest", int(given["shortest_edge"])
    if set(given) == {"height", "width"}:
        return "squash", _square(given, "size", source)
    raise ModelError(
        f"{source}: size must have shortest_edge, or height and width, not {', '.join(given) or 'nothing'}"
    )


def _square(size: Any, name: str, source: str) -> int:
    if not isinstance(size, dict):
        return int(size)
    if size.get("height") is None or size.get("height") != size.get("width"):
        raise ModelError(f"{source}: {name} must have a height and the same width, not {size}")
    return int(size["height"])


def _interpolation(number: Any, source: str) -> str:
    """The name of a resampling filter, which the file gives by Pillow's number."""
    if number not in range(len(FILTERS)):
        raise ModelError(f"{source}: resample is {number!r}; it must be a number from 0 to {len(FILTERS) - 1}")
    return FILTERS[number]
