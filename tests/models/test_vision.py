"""Preprocessing and the image tower against transformers' own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from tests.tiny import VISION, make_clip
from unsee.data.images import as_images
from unsee.errors import ModelError
from unsee.models.fast.checkpoints import Preprocess, read_checkpoint
from unsee.models.fast.vision import VisionTransformer, preprocess

HOW = Preprocess(224, 224)
SIZES = [(224, 224), (301, 199), (97, 333), (640, 480), (333, 500), (225, 224), (31, 32), (3, 2), (1, 1), (7, 90)]


def noise(width: int, height: int, channels: int = 3) -> np.ndarray:
    """Smooth colours under noise, so that both large and small errors of place show."""
    rng = np.random.default_rng(width * 1000 + height)
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    planes = [200 * x, 200 * y, 200 * x * y, 255 * (1 - x)][:channels]
    return (np.stack(planes, axis=-1) + rng.uniform(0, 55, (height, width, channels))).clip(0, 255).astype(np.uint8)


def theirs(image: Image.Image, how: Preprocess = HOW) -> np.ndarray:
    from transformers.models import clip

    if not hasattr(clip, "CLIPImageProcessorPil"):
        pytest.skip("transformers before 5.4 prepares images in another way")
    processor = clip.CLIPImageProcessorPil(
        size={"shortest_edge": how.resize},
        crop_size={"height": how.crop, "width": how.crop},
        image_mean=list(how.mean),
        image_std=list(how.std),
    )
    return np.asarray(processor(image, return_tensors="np")["pixel_values"][0])


def apart(a: np.ndarray, b: np.ndarray, how: Preprocess = HOW) -> float:
    """The largest difference of two preprocessed images in levels of 255, normalisation undone."""
    assert a.shape == b.shape == (3, how.crop, how.crop)
    std = np.array(how.std, dtype=np.float64)[:, None, None]
    return float(np.abs((a.astype(np.float64) - b) * std * 255).max())


def in_mode(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(noise(90, 70, 1)[:, :, 0].astype(np.uint16) * 257)
    if mode == "RGBA":
        return Image.fromarray(noise(90, 70, 4))
    image = Image.fromarray(noise(90, 70))
    if mode == "P":
        return image.quantize(50)
    if mode == "LA":
        return Image.merge("LA", image.split()[:2])
    return image.convert(mode)


@pytest.mark.parametrize("size", SIZES)
def test_images_of_any_size_are_prepared_as_transformers_does(size):
    image = Image.fromarray(noise(*size))
    assert apart(preprocess(image, HOW), theirs(image)) <= 1


@pytest.mark.parametrize("how", [Preprocess(32, 32), Preprocess(40, 32), Preprocess(256, 224), Preprocess(30, 37)])
@pytest.mark.parametrize("size", [(60, 45), (45, 61), (32, 32)])
def test_any_resize_and_crop_are_done_as_transformers_does(size, how):
    image = Image.fromarray(noise(*size))
    assert apart(preprocess(image, how), theirs(image, how), how) <= 1


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK", "YCbCr", "HSV", "I", "F"])
def test_images_of_any_mode_are_prepared_as_transformers_does(mode):
    image = in_mode(mode)
    assert image.mode == mode
    assert apart(preprocess(image, HOW), theirs(image)) <= 1


def test_a_palette_with_a_transparent_colour_is_prepared_as_transformers_does(tmp_path):
    in_mode("P").save(tmp_path / "image.png", transparency=bytes(range(50)))
    image = as_images([tmp_path / "image.png"]).read(0)
    assert image.mode == "P"
    assert apart(preprocess(image, HOW), theirs(image)) <= 1


def test_sixteen_bit_images_are_scaled_where_transformers_clips_them_to_white(tmp_path):
    in_mode("I;16").save(tmp_path / "image.png")
    image = as_images([tmp_path / "image.png"]).read(0)
    assert image.mode == "I;16"
    eight = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    assert apart(preprocess(image, HOW), preprocess(eight, HOW)) <= 1
    assert apart(preprocess(image, HOW), theirs(image)) > 50


@pytest.mark.parametrize("orientation", range(1, 9))
def test_rotated_photographs_are_prepared_upright(tmp_path, orientation):
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(noise(80, 50)).save(tmp_path / "image.jpg", exif=exif, quality=95)
    found = as_images([tmp_path / "image.jpg"]).read(0)
    with Image.open(tmp_path / "image.jpg") as image:
        upright = ImageOps.exif_transpose(image)
    assert found.size == ((50, 80) if orientation >= 5 else (80, 50))
    assert apart(preprocess(found, HOW), theirs(upright)) <= 1


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.gif", "a.webp", "a.bmp", "a.tif", "a.ppm"])
def test_files_are_prepared_as_transformers_does(tmp_path, name):
    Image.fromarray(noise(91, 67)).save(tmp_path / name)
    found = as_images([tmp_path / name]).read(0)
    with Image.open(tmp_path / name) as image:
        assert apart(preprocess(found, HOW), theirs(image)) <= 1


# OpenCLIP's resize modes, on images small enough to work out by hand. Levels of 255, one channel.


def levels(image: np.ndarray, **how) -> list[list[int]]:
    """The red levels after preprocessing to 4 x 4 pixels; the image is grey (h, w)."""
    plain = Preprocess(4, 4, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), **how)
    found = preprocess(Image.fromarray(np.repeat(image[:, :, None], 3, axis=2).astype(np.uint8)), plain)
    return (found[0] * 255).round().astype(int).tolist()


def test_longest_fits_the_image_and_pads_it():
    wide = np.full((3, 8), 200)  # 8 / 4 = 2: resized to 4 x round(3 / 2) = 4 x 2, so one row of padding on each side
    assert levels(wide, mode="longest", fill=9) == [[9] * 4, [200] * 4, [200] * 4, [9] * 4]
    uneven = np.full((6, 8), 200)  # resized to 4 x 3: (4 - 3) // 2 = 0 rows above, 1 below
    assert levels(uneven, mode="longest") == [[200] * 4, [200] * 4, [200] * 4, [0] * 4]
    half = np.full((5, 8), 200)  # round(5 / 2) = 2: halves go to the even number
    assert levels(half, mode="longest") == [[0] * 4, [200] * 4, [200] * 4, [0] * 4]
    tall = np.full((8, 6), 200)
    assert levels(tall, mode="longest", fill=9) == [[200, 200, 200, 9]] * 4
    small = np.full((1, 2), 200)  # enlarged to 4 x 2
    assert levels(small, mode="longest") == [[0] * 4, [200] * 4, [200] * 4, [0] * 4]
    thread = np.full((1, 20), 200)  # round(1 / 5) = 0 rows; one is kept
    assert levels(thread, mode="longest") == [[0] * 4, [200] * 4, [0] * 4, [0] * 4]


def test_squash_resizes_both_sides_and_crops_nothing():
    edge = np.array([[0, 0, 0, 0, 70, 70, 70, 70]] * 4)
    # Half the width: new pixel 1 has its centre at 3 of 8, old pixel i at i + 0.5, so they are |i + 0.5 - 3| / 2 apart.
    # Bilinear weights are 1 - distance: 0.25, 0.75, 0.75, 0.25 for the old pixels 1 to 4, and only pixel 4 is not 0.
    left = 70 * 0.25 / (0.25 + 0.75 + 0.75 + 0.25)
    wanted = [0, round(left), round(70 - left), 70]
    assert levels(edge, mode="squash", interpolation="bilinear") == [wanted] * 4

    def cubic(x: float) -> float:
        return 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2

    weights = [cubic(abs(i + 0.5 - 3) / 2) for i in range(7)]
    beyond = 70 * sum(weights[4:]) / sum(weights)
    assert levels(edge, mode="squash")[0][1] == round(beyond)
    assert levels(edge, mode="squash", interpolation="bilinear") != levels(edge, mode="squash")


@pytest.mark.parametrize(("width", "floor", "even"), [(9, 2, 2), (11, 3, 4), (8, 2, 2), (7, 1, 2)])
def test_shortest_crops_where_hugging_face_or_open_clip_does(width, floor, even):
    """Half a pixel of margin: Hugging Face rounds it down, torchvision (OpenAI's and OpenCLIP's way) to even."""
    ramp = np.arange(width)[None].repeat(4, axis=0)  # 4 rows: nothing is resized
    assert levels(ramp)[0] == list(range(floor, floor + 4))
    assert levels(ramp, crop_rounding="even")[0] == list(range(even, even + 4))


def test_pixels_are_float32_in_planes():
    prepared = preprocess(Image.fromarray(noise(50, 40)), Preprocess(32, 32))
    assert prepared.dtype == np.float32
    assert prepared.shape == (3, 32, 32)
    assert prepared.flags.c_contiguous


def test_preparing_leaves_the_image_as_it_was():
    image = Image.fromarray(noise(50, 40))
    before = hashlib.sha256(image.tobytes()).digest()
    preprocess(image, HOW)
    assert hashlib.sha256(image.tobytes()).digest() == before
    assert image.size == (50, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    make_clip().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("activation", ["quick_gelu", "gelu"])
def test_image_embeddings_are_those_of_transformers(tmp_path, activation):
    model = make_clip(vision=VISION | {"hidden_act": activation}).requires_grad_(False)
    model.save_pretrained(tmp_path)
    encoder = VisionTransformer(read_checkpoint(str(tmp_path)))
    prepared = [encoder.prepare(Image.fromarray(noise(*size))) for size in SIZES]
    found = encoder.encode(prepared)
    features = model.get_image_features(pixel_values=torch.from_numpy(np.stack(prepared)))
    features = getattr(features, "pooler_output", features)
    wanted = torch.nn.functional.normalize(features, dim=-1).numpy()
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() <= 1e-5
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() <= 1e-5
    assert np.abs(found[0] - found[3]).max() > 1e-2


def test_weights_the_image_tower_does_not_have_are_refused(folder):
    checkpoint = read_checkpoint(str(folder))
    key = "vision_model.encoder.layers.2.mlp.fc1.bias"  # the tower has two layers, 0 and 1
    with pytest.raises(ModelError) as caught:
        VisionTransformer(replace(checkpoint, state=checkpoint.state | {key: torch.zeros(96)}))
    assert str(caught.value) == f"{folder}: {key} does not belong to this CLIP image tower"


def test_weights_the_image_tower_lacks_are_refused(folder):
    checkpoint = read_checkpoint(str(folder))
    key = "vision_model.post_layernorm.bias"
    with pytest.raises(ModelError) as caught:
        VisionTransformer(replace(checkpoint, state={k: v for k, v in checkpoint.state.items() if k != key}))
    assert str(caught.value) == f"{folder}: not a CLIP checkpoint: {key} is missing"


def test_a_weight_of_the_wrong_shape_is_refused_in_one_line(folder):
    checkpoint = read_checkpoint(str(folder))
    key = "vision_model.post_layernorm.bias"
    with pytest.raises(ModelError, match=f"size mismatch for {key}") as caught:
        VisionTransformer(replace(checkpoint, state=checkpoint.state | {key: torch.zeros(5)}))
    assert "\n" not in str(caught.value)


def test_buffers_of_older_checkpoints_change_nothing(folder):
    checkpoint = read_checkpoint(str(folder))
    buffers = {"vision_model.embeddings.position_ids": torch.arange(17)[None]}
    plain, older = (
        VisionTransformer(checkpoint),
        VisionTransformer(replace(checkpoint, state=checkpoint.state | buffers)),
    )
    assert older.fingerprint == plain.fingerprint
    prepared = [plain.prepare(Image.fromarray(noise(40, 30)))]
    assert np.array_equal(plain.encode(prepared), older.encode(prepared))


def test_an_image_gets_the_same_row_alone_and_in_company(folder):
    encoder = VisionTransformer(read_checkpoint(str(folder)))
    prepared = [encoder.prepare(Image.fromarray(noise(*size))) for size in SIZES]
    together = encoder.encode(prepared)
    for row, one in enumerate(prepared):
        assert np.abs(encoder.encode([one])[0] - together[row]).max() <= 1e-5


def test_a_preprocessor_config_is_heeded(folder, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(folder / name)
    config = {"size": 40, "crop_size": 32, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    how = VisionTransformer(read_checkpoint(str(tmp_path))).how
    assert how == Preprocess(40, 32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_the_fingerprint_is_the_same_for_the_same_model_only(folder):
    checkpoint = read_checkpoint(str(folder))
    first = VisionTransformer(checkpoint).fingerprint
    assert VisionTransformer(read_checkpoint(str(folder))).fingerprint == first
    others = [
        replace(checkpoint, preprocess=Preprocess(36, 32)),
        replace(checkpoint, preprocess=replace(checkpoint.preprocess, mean=(0.5, 0.5, 0.5))),
        replace(checkpoint, vision=replace(checkpoint.vision, activation="gelu")),
        replace(checkpoint, vision=replace(checkpoint.vision, heads=2)),
        replace(checkpoint, vision=replace(checkpoint.vision, eps=1e-6)),
    ]
    for key, weight in checkpoint.state.items():
        if key.startswith("vision_model.encoder.layers.1.") or key == "visual_projection.weight":
            changed = weight.clone()
            changed.view(-1)[-1] += 0.01
            others.append(replace(checkpoint, state=checkpoint.state | {key: changed}))
    found = {VisionTransformer(other).fingerprint for other in others}
    assert len(found) == len(others)
    assert first not in found
