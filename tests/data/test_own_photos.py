"""Photos as people have them: albums in class folders, a folder around everything, phone formats, wrong paths."""

from __future__ import annotations

import base64
import importlib.util
import io

import numpy as np
import pytest
from PIL import Image, features

import unsee
from unsee import DataError, ImageError
from unsee.data import formats
from unsee.data.class_names import forget_mask
from unsee.data.images import as_rgb, decode
from unsee.data.splits import few_shot_split, largest_shots

HEIC = base64.b64decode(  # 64 x 64 pixels of red
    "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAVZtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAACJpbG9jAAAA"
    "AERAAAEAAQAAAAABegABAAAAAAAAABkAAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAAAA5waXRtAAAAAAABAAAA1mlwcnAAAAC3"
    "aXBjbwAAAHhodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQArQgEBA3AAAAMAkAAAAwAA"
    "AwAeoCCBBZbqSSmubgIaDAgAAAMAyAAAAwAIQGIAAQAHRAHBcrAiQAAAABNjb2xybmNseAABAA0ABoAAAAAUaXNwZQAAAAAAAABAAAAAQAAAABBw"
    "aXhpAAAAAAMICAgAAAAXaXBtYQAAAAAAAAABAAEEgQIDBAAAACFtZGF0AAAAFSgBrwtg+sbB1//5ZXv1FEHQh+07cA=="
)


def put(*folders, count=4):
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"{i}.png")


def refusal(path) -> str:
    with pytest.raises(DataError) as caught:
        unsee.load_data(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("suffix", "mode"), [("png", "I;16"), ("tif", "I;16"), ("tif", "I;16B"), ("tif", "I")])
def test_a_16_bit_grey_image_keeps_its_shades(tmp_path, suffix, mode):
    shades = np.array([[0, 257 * 10, 257 * 100, 257 * 200, 65535]], dtype=np.uint16)
    pixels = shades.astype({"I;16": "<u2", "I;16B": ">u2", "I": np.int32}[mode])
    Image.frombytes(mode, (5, 1), pixels.tobytes()).save(tmp_path / f"grey.{suffix}")
    found = as_rgb(unsee.as_images([tmp_path / f"grey.{suffix}"]).read(0))
    assert np.asarray(found)[0, :, 0].tolist() == [0, 10, 100, 200, 255]


def test_albums_in_a_class_folder_are_part_of_the_class(tmp_path):
    put(
        tmp_path / "cat", tmp_path / "cat" / "2023" / "May", tmp_path / "dog" / "2024", tmp_path / "dog" / ".thumbnails"
    )
    data = unsee.load_data(tmp_path)
    assert data.class_names == ("cat", "dog")
    assert (len(data.train), len(data.test)) == (6, 6)
    put(*(tmp_path / "split" / part / name / "album" for part in ("train", "test") for name in ("cat", "dog")))
    assert len(unsee.load_data(tmp_path / "split").test) == 8


@pytest.mark.parametrize("around", ["photos", "backup/photos"])
def test_a_folder_around_the_data_is_looked_through(tmp_path, around):
    root = tmp_path / "given"
    put(*(root / around / name for name in ("cat", "dog")), root / "__MACOSX" / "junk")
    (root / "readme.txt").write_text("hello")
    assert unsee.load_data(root).class_names == ("cat", "dog")
    put(*(tmp_path / "other" / around / part / name for part in ("train", "test") for name in ("cat", "dog")))
    assert unsee.load_data(tmp_path / "other").split_seed is None


def test_a_run_folder_inside_what_was_named_is_refused_though_the_images_are_deeper(tmp_path):
    from unsee.data.class_folders import refuse_inside

    put(*(tmp_path / "photos" / "inner" / name for name in ("cat", "dog")))
    data = unsee.load_data(tmp_path / "photos")
    with pytest.raises(unsee.InputError, match="inside the data"):
        refuse_inside(data, tmp_path / "photos" / "runs")


@pytest.mark.parametrize("name", ["validation", "val", "Valid"])
def test_validation_images_beside_train_and_test_are_images_to_tune_on(tmp_path, name):
    put(*(tmp_path / part / kind for part in ("train", "test") for kind in ("cat", "dog")))
    put(tmp_path / name / "cat", count=3)
    data = unsee.load_data(tmp_path)
    assert np.bincount(data.train.labels).tolist() == [7, 4]
    assert len(data.test) == 8
    assert all("test" in data.test.name(i) for i in range(8))


def test_one_class_is_too_few(tmp_path):
    put(tmp_path / "cat")
    assert "only one class, 'cat'" in refusal(tmp_path)


def test_an_avif_photo_is_read_or_refused_before_it_is_opened(tmp_path, monkeypatch):
    put(tmp_path / "cat", tmp_path / "dog")
    (tmp_path / "dog" / "9.avif").write_bytes(b"anything")
    monkeypatch.setattr(features, "check", lambda name: False)
    assert refusal(tmp_path).endswith("9.avif: AVIF needs Pillow 11.3 or newer: pip install --upgrade pillow")
    monkeypatch.undo()
    if not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    Image.new("RGB", (8, 8), "red").save(tmp_path / "dog" / "9.avif")
    data = unsee.load_data(tmp_path)
    assert len(data.train) + len(data.test) == 9
    assert as_rgb(decode((tmp_path / "dog" / "9.avif").read_bytes(), "9.avif")).getpixel((4, 4))[0] > 200


def test_a_heic_photo_names_its_install_line_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    put(tmp_path / "cat", tmp_path / "dog")
    for i in range(3):
        (tmp_path / "dog" / f"IMG_{i}.HEIC").write_bytes(HEIC)
    message = refusal(tmp_path)
    assert message.startswith("dog/IMG_0.HEIC and 2 more: HEIC needs the package pi-heif; install it with: ")
    assert "[heic]" in message
    with pytest.raises(ImageError, match=r"HEIC needs the package pi-heif; install it with: .*\[heic\]"):
        decode(HEIC, "IMG.HEIC")


@pytest.mark.skipif(importlib.util.find_spec("pi_heif") is None, reason="needs the extra heic")
def test_a_heic_photo_is_read(tmp_path):
    put(tmp_path / "cat", tmp_path / "dog")
    (tmp_path / "dog" / "IMG_0.HEIC").write_bytes(HEIC)
    data = unsee.load_data(tmp_path)
    assert len(data.train) + len(data.test) == 9
    red = as_rgb(decode(HEIC, "IMG_0.HEIC"))
    assert red.size == (64, 64)
    assert red.getpixel((32, 32))[0] > 150


def test_a_class_without_images_says_what_is_there(tmp_path):
    put(tmp_path / "cat", tmp_path / "dog")
    (tmp_path / "raw").mkdir()
    for i in range(2):
        (tmp_path / "raw" / f"{i}.CR2").write_bytes(b"raw")
    assert "class 'raw' has no images" in refusal(tmp_path)
    assert "it holds 2 .cr2 files" in refusal(tmp_path)


def test_a_wrong_path_says_what_is_wrong_and_what_is_near(tmp_path, monkeypatch):
    put(tmp_path / "photos" / "cat", tmp_path / "photos" / "dog")
    monkeypatch.chdir(tmp_path)
    assert "no such folder" in refusal(tmp_path / "fotos")
    assert f"did you mean {tmp_path / 'photos'}?" in refusal(tmp_path / "fotos")
    assert "did you mean photos?" in refusal("fotos")
    assert f"{tmp_path / 'nowhere'} does not exist" in refusal(tmp_path / "nowhere" / "deep" / "photos")
    assert refusal("demmo").startswith("unknown data set 'demmo'; did you mean 'demo'?")


def test_a_file_that_is_no_data_says_what_to_give_instead(tmp_path):
    put(tmp_path / "cat")
    assert "is one image" in refusal(tmp_path / "cat" / "0.png")
    (tmp_path / "photos.zip").write_bytes(b"PK")
    assert "is an archive; unpack it and name the folder" in refusal(tmp_path / "photos.zip")
    (tmp_path / "photos.docx").write_bytes(b"PK")
    assert "is a file" in refusal(tmp_path / "photos.docx")
    assert ".csv" in refusal(tmp_path / "photos.docx")
    assert "holds no class folders, but 4 images" in refusal(tmp_path / "cat")


def test_default_shots_leave_bad_images_out_of_the_count(tmp_path):
    put(*(tmp_path / part / name for part in ("train", "test") for name in ("cat", "dog")), count=8)
    for i in range(3):
        (tmp_path / "train" / "cat" / f"{i}.png").write_bytes(b"")
    train = unsee.load_data(tmp_path).train
    assert largest_shots(train) == 4
    assert largest_shots(train, skip_bad_images=True) == 2
    assert len(few_shot_split(train, 2, seed=0, skip_bad_images=True).train) == 4


def test_a_run_that_skips_bad_images_needs_no_shots_from_its_user(tmp_path, model):
    put(*(tmp_path / part / name for part in ("train", "test") for name in ("cat", "dog")), count=8)
    for i in range(3):
        (tmp_path / "train" / "cat" / f"{i}.png").write_bytes(b"")
    tuner = unsee.PromptTuner(["cat"], iterations=1, skip_bad_images=True)
    assert tuner.task(model, unsee.load_data(tmp_path)).settings.shots == 2


def test_an_empty_or_unknown_image_is_still_named():
    with pytest.raises(ImageError, match="not an image"):
        decode(io.BytesIO(b"text").getvalue(), "x.png")


def test_capitals_do_not_matter_where_it_is_clear_which_class_is_meant():
    assert forget_mask(["Cat", "dog", "Sea_Lion"], ["cat", "sea lion"]).tolist() == [True, False, True]
    assert forget_mask(["Cat", "cat", "dog"], ["cat"]).tolist() == [False, True, False]
    with pytest.raises(unsee.InputError, match="unknown class to forget 'CAT'"):
        forget_mask(["Cat", "cat", "dog"], ["CAT"])
