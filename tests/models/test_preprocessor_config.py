"""What a checkpoint's preprocessor_config.json says is done as `transformers` does it, or refused in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from tests.models.test_vision import noise
from unsee.errors import ModelError
from unsee.models.fast.checkpoints import Preprocess
from unsee.models.fast.preprocessor_config import parse_preprocess, read_preprocess
from unsee.models.fast.vision import preprocess

SIDE = 32
SQUARE = {"height": SIDE, "width": SIDE}
CONFIGS = {
    "nothing said": {"crop_size": SIDE, "size": SIDE},
    "shortest edge": {"size": {"shortest_edge": 40}, "crop_size": SQUARE},
    "height and width": {"size": {"height": 41, "width": 41}, "crop_size": SQUARE},
    "no crop": {"size": SQUARE, "do_center_crop": False},
    "no crop, a larger crop size unused": {"size": SQUARE, "do_center_crop": False, "crop_size": 224},
    "no resize": {"do_resize": False, "crop_size": SIDE, "size": 77},
    "no normalisation": {"size": SIDE, "crop_size": SIDE, "do_normalize": False},
    "other statistics": {"size": SIDE, "crop_size": SIDE, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
    **{f"resample {n}": {"size": 36, "crop_size": SIDE, "resample": n} for n in range(6)},
}


@pytest.mark.parametrize("size", [(60, 45), (45, 61), (32, 32), (20, 50), (25, 27)])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_images_are_prepared_as_transformers_does(config, size):
    from transformers.models import clip

    if not hasattr(clip, "CLIPImageProcessorPil"):
        pytest.skip("transformers before 5.4 prepares images in another way")
    image = Image.fromarray(noise(*size))
    wanted = np.asarray(clip.CLIPImageProcessorPil(**config)(image, return_tensors="np")["pixel_values"][0])
    how = parse_preprocess(config, SIDE, "here")
    found = preprocess(image, how)
    assert found.shape == wanted.shape == (3, SIDE, SIDE)
    levels = np.abs(found.astype(np.float64) - wanted) * np.array(how.std)[:, None, None] * 255
    assert levels.max() <= 1


def test_the_filters_differ():
    image = Image.fromarray(noise(60, 45))
    found = [preprocess(image, parse_preprocess(CONFIGS[f"resample {n}"], SIDE, "here")) for n in range(6)]
    assert len({each.tobytes() for each in found}) == 6


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"do_center_crop": False, "size": SIDE}, "images would not be square; it needs a size of height and width"),
        ({"do_center_crop": False, "do_resize": False}, "images would not be square"),
        ({"size": {"height": 32, "width": 40}}, "size must have a height and the same width"),
        ({"crop_size": {"height": 32, "width": 40}}, "crop_size must have a height and the same width"),
        ({"crop_size": {"shortest_edge": 32}}, "crop_size must have a height and the same width"),
        ({"size": {"longest_edge": 32}}, "size must have shortest_edge, or height and width, not longest_edge"),
        ({"size": {"shortest_edge": 32, "longest_edge": 64}}, "not shortest_edge, longest_edge"),
        ({"crop_size": 48}, "prepared as 48 x 48, but the image tower takes 32 x 32"),
        ({"size": {"height": 48, "width": 48}, "do_center_crop": False}, "prepared as 48 x 48"),
        ({"resample": 6}, "resample is 6; it must be a number from 0 to 5"),
        ({"resample": "cubic"}, "resample is 'cubic'"),
        ({"do_rescale": False}, "must divide pixels by 255"),
        ({"rescale_factor": 1 / 127.5}, "must divide pixels by 255"),
        ({"do_pad": True}, "do_pad is not supported"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(config, message):
    with pytest.raises(ModelError, match=message) as caught:
        parse_preprocess(config, SIDE, "here/preprocessor_config.json")
    assert str(caught.value).startswith("here/preprocessor_config.json: ")
    assert "\n" not in str(caught.value)


def test_newer_and_older_files_are_read(tmp_path):
    assert read_preprocess(tmp_path, SIDE) == Preprocess(SIDE, SIDE)
    nested = {"processor_class": "CLIPProcessor", "image_processor": {"size": {"shortest_edge": 36}, "crop_size": SIDE}}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    assert read_preprocess(tmp_path, SIDE) == Preprocess(36, SIDE)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 40, "crop_size": SIDE, "resample": 2}))
    assert read_preprocess(tmp_path, SIDE) == Preprocess(40, SIDE, interpolation="bilinear")
