from __future__ import annotations

import io
import os
import struct
from contextlib import suppress

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import unsee
from unsee import DataError, ImageError, InputError
from unsee.data.cifar import TEN
from unsee.data.cifar_batches import _sheet_pixels
from unsee.data.images import ArraySource, as_rgb, decode, labelled


def test_paths_pil_images_and_arrays_become_the_same_images(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
    paths = []
    for i, image in enumerate(pixels):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(image).save(paths[-1])
    forms = [pixels, paths, [Image.fromarray(p) for p in pixels]]
    for form in forms:
        images = unsee.as_images(form)
        assert len(images) == 3
        assert all(np.array_equal(np.asarray(images.read(i)), pixels[i]) for i in range(3))
    assert unsee.as_images(images) is images


@pytest.mark.parametrize("bad", [np.zeros((2, 4, 4, 3)), np.zeros((4, 4, 3), np.uint8), [], [1, 2], "one.png"])
def test_what_is_no_list_of_images_is_refused(bad):
    with pytest.raises(InputError):
        unsee.as_images(bad)


def test_an_unreadable_image_is_named(tmp_path):
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("no image")
    whole = tmp_path / "whole.png"
    Image.new("RGB", (64, 64), "red").save(whole)
    (tmp_path / "truncated.png").write_bytes(whole.read_bytes()[:100])
    names = ["empty.png", "text.png", "truncated.png", "missing.png", "whole.png"]
    images = unsee.as_images([tmp_path / name for name in names])
    for row, name in enumerate(names[:-1]):
        with pytest.raises(ImageError, match=name):
            images.read(row)
    good, bad = images.readable()
    assert [good.name(i) for i in range(len(good))] == [str(whole)]
    assert [error.name.rsplit("/", 1)[1] for error in bad] == names[:-1]


@pytest.mark.parametrize(("tag", "kind"), [(273, 10), (273, 12), (320, 6)])  # where the strips are; the palette
def test_a_damaged_tiff_is_read_or_named_whatever_its_decoder_raises(tag, kind):
    out = io.BytesIO()
    Image.new("P", (16, 16)).save(out, "TIFF")
    content = bytearray(out.getvalue())
    at = content.index(struct.pack("<H", tag))
    content[at + 2 : at + 8] = struct.pack("<HI", kind, 1)  # one value of another type
    with suppress(ImageError):  # nothing else; some releases of Pillow read past a palette that is not one
        assert decode(bytes(content), "broken.tif").size == (16, 16)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.mark.parametrize("name", ["photo.png", "data_batch_1.png"])
def test_a_png_that_holds_postscript_starts_no_program(tmp_path, monkeypatch, name):
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow remembers whether Ghostscript is there
    (tmp_path / name).write_bytes(EPS)
    with pytest.raises(DataError, match=name):
        _sheet_pixels(TEN, tmp_path / name, "data_batch_1") if "batch" in name else read_file(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def read_file(path):
    return unsee.as_images([path]).read(0)


@pytest.mark.parametrize("kind", ["PSD", "ICO", "TGA", "PCX", "DDS", "SGI"])
def test_formats_that_are_no_photos_are_not_decoded(tmp_path, kind):
    out = io.BytesIO(b"8BPS\x00\x01" + bytes(6) + struct.pack(">HIIHH", 3, 4, 4, 8, 3) + bytes(80))
    if kind != "PSD":
        Image.new("RGB", (16, 16)).save(out, kind)
    with pytest.raises(ImageError, match="not an image this machine can decode; known are JPEG, PNG"):
        decode(out.getvalue(), "photo.png")


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(monkeypatch):
    out = io.BytesIO()
    Image.new("1", (300, 200)).save(out, "PNG")
    assert decode(out.getvalue(), "large.png", pixels=60_000).size == (300, 200)
    monkeypatch.setattr(Image.Image, "load", lambda image: pytest.fail("decoded"))
    with pytest.raises(ImageError, match=r"large\.png: 300 x 200 pixels are more than the 59999 allowed"):
        decode(out.getvalue(), "large.png", pixels=59_999)


def test_an_exif_rotated_photo_is_read_upright(tmp_path):
    image = Image.new("RGB", (40, 20), "red")
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees to see it upright
    image.save(tmp_path / "turned.jpg", exif=exif)
    assert unsee.as_images([tmp_path / "turned.jpg"]).read(0).size == (20, 40)


def test_digests_know_content_and_shape():
    pixels = np.zeros((3, 4, 4, 3), dtype=np.uint8)
    pixels[2] = 1
    images = unsee.as_images(pixels)
    assert images.digest(0) == images.digest(1) != images.digest(2)
    wide = unsee.as_images(np.zeros((1, 2, 8, 3), dtype=np.uint8))
    assert wide.digest(0) != images.digest(0)
    assert images.subset([0, 2]).content_digest() != images.subset([2, 0]).content_digest()


def palette_image(colours: list[int], transparency: int | bytes | None = None) -> Image.Image:
    image = Image.new("P", (4, 4), 1)
    image.putpalette(colours)
    if transparency is not None:
        image.info["transparency"] = transparency
    return image


def turned(image: Image.Image, orientation: int) -> Image.Image:
    image.getexif()[0x0112] = orientation
    return image


def test_digests_know_palette_transparency_and_orientation():
    """Images in memory that look different, though their pixel values are the same."""
    red, blue = [0, 0, 0, 255, 0, 0], [0, 0, 0, 0, 0, 255]
    different = [
        palette_image(red),
        palette_image(blue),
        palette_image(red, transparency=1),
        palette_image(red, transparency=bytes([255, 100])),
        turned(palette_image(red), 3),
        turned(palette_image(red), 6),
    ]
    rgba_palette = Image.new("P", (4, 4), 1)
    rgba_palette.putpalette([0, 0, 0, 255, 255, 0, 0, 90], "RGBA")
    images = unsee.as_images([*different, rgba_palette])
    assert len({images.digest(i) for i in range(7)}) == 7
    again = unsee.as_images([palette_image(red), turned(palette_image(red), 1), turned(palette_image(red), 6)])
    assert again.digest(0) == again.digest(1) == images.digest(0), "orientation 1 is upright"
    assert again.digest(2) == images.digest(5)


HALF_RED = (255, 127, 127)  # red of opacity 128/255 on white: 255 - 255 * 128 / 255 = 127


def half_red(mode: str) -> Image.Image:
    """Red, half transparent, in one of the forms that transparency has."""
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 128))
    if mode == "palette with opacities":
        return palette_image([0, 0, 0, 255, 0, 0], transparency=bytes([255, 128]))
    if mode == "RGBA palette":
        image = Image.new("P", (4, 4), 1)
        image.putpalette([0, 0, 0, 255, 255, 0, 0, 128], "RGBA")
        return image
    return clear.convert(mode)


@pytest.mark.parametrize("mode", ["RGBA", "RGBa", "palette with opacities", "RGBA palette"])
def test_transparent_parts_are_shown_on_white(mode):
    found = as_rgb(half_red(mode))
    assert found.mode == "RGB"
    assert np.abs(np.asarray(found, dtype=int) - HALF_RED).max() <= 1


def test_a_fully_transparent_colour_is_white_and_grey_opacity_counts():
    image = Image.new("RGB", (4, 4), (10, 20, 30))
    image.info["transparency"] = (10, 20, 30)
    assert as_rgb(image).getpixel((0, 0)) == (255, 255, 255)
    assert as_rgb(palette_image([0, 0, 0, 9, 9, 9], transparency=1)).getpixel((0, 0)) == (255, 255, 255)
    for mode in ("LA", "La"):
        grey = Image.new("LA", (4, 4), (0, 128)).convert(mode)
        assert as_rgb(grey).getpixel((0, 0)) == (127, 127, 127), mode


def test_opaque_images_keep_their_bytes():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    assert as_rgb(image).tobytes() == pixels.tobytes()
    for mode in ("L", "1", "P", "CMYK", "YCbCr", "I", "F"):
        other = image.convert(mode)
        assert as_rgb(other).tobytes() == other.convert("RGB").tobytes(), mode


def test_a_subset_keeps_labels_with_their_images():
    source = ArraySource(np.zeros((4, 2, 2, 3), dtype=np.uint8))
    images = labelled(source, [0, 1, 1, 0], ["a", "b"]).subset([3, 1])
    assert images.labels.tolist() == [0, 1]
    assert images.name(0) == "array[3]"


def test_two_classes_of_one_name_are_refused():
    source = ArraySource(np.zeros((2, 2, 2, 3), dtype=np.uint8))
    with pytest.raises(unsee.DataError, match="'a' stands for two classes"):
        labelled(source, [0, 1], ["a", "a"])
