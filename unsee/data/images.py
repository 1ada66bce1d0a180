"""Labelled images whose pixels are read only when asked for.

`as_images` turns whatever a user has (paths, PIL images, a uint8 array) into an `Images` record.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from unsee.data.formats import FORMATS, decoders, lacking_for
from unsee.errors import DataError, ImageError, InputError

BACKGROUND = "white"  # what shows through the transparent parts of an image
PIXELS = 2 * 89_478_485  # of one image: where Pillow stops, far above any phone's photo
DECODING_THREADS = 4  # threads that decode ahead of the model
_ORIENTATION = 0x0112  # the EXIF tag that says how a photo is turned


class PixelSource(Protocol):
    """Where pixels come from: numbered images that can be named, hashed and read."""

    def __len__(self) -> int: ...
    def name(self, i: int) -> str: ...
    def key(self, i: int) -> str:
        """A name that stays the same when the data is moved to another folder."""

    def digest(self, i: int) -> bytes: ...
    def read(self, i: int) -> Image.Image: ...


@runtime_checkable
class HoldsFiles(Protocol):
    """A source whose images are files: these can be sent elsewhere as they are."""

    def content(self, i: int) -> bytes: ...


@dataclass(frozen=True)
class FileSource:
    """Image files below a folder; EXIF rotation is applied, the mode is left as it is."""

    root: Path
    files: tuple[str, ...]  # relative to root
    _digests: dict[int, tuple[tuple[int, int], bytes]] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.files)

    def name(self, i: int) -> str:
        return str(self.root / self.files[i])

    def key(self, i: int) -> str:
        return self.files[i]

    def digest(self, i: int) -> bytes:
        """Hash of the file. A run's identity and the feature cache both ask for it; an unchanged file is read once."""
        try:
            stat = (self.root / self.files[i]).stat()
        except OSError as error:
            raise ImageError(self.name(i), error.strerror or str(error)) from None
        state = stat.st_mtime_ns, stat.st_size
        if i not in self._digests or self._digests[i][0] != state:
            self._digests[i] = state, hashlib.blake2b(self.content(i), digest_size=16).digest()
        return self._digests[i][1]

    def read(self, i: int) -> Image.Image:
        return decode(self.content(i), self.name(i))

    def content(self, i: int) -> bytes:
        """The file's bytes."""
        try:
            content = (self.root / self.files[i]).read_bytes()
        except OSError as error:
            raise ImageError(self.name(i), error.strerror or str(error)) from None
        if not content:
            raise ImageError(self.name(i), "the file is empty")
        return content


def decode(content: bytes, name: str, pixels: int = PIXELS) -> Image.Image:
    """Decodes the bytes of an image file, upright; ImageError gives the name if that fails.

    Format and number of pixels are checked before a pixel is decoded.
    """
    with _opened(content, name, pixels) as image:
        image.load()
        ImageOps.exif_transpose(image, in_place=True)  # a copy of a large photo would take 100 MB
        return image


def pixel_count(content: bytes, name: str, pixels: int = PIXELS) -> int:
    """How many pixels an image file has, by its head; ImageError as in `decode`."""
    with _opened(content, name, pixels) as image:
        return image.width * image.height


@contextmanager
def _opened(content: bytes, name: str, pixels: int) -> Iterator[Image.Image]:
    """The image of a file, not yet decoded; whatever fails is an ImageError."""
    if not content:
        raise ImageError(name, "the file is empty")
    if (needed := lacking_for(content)) is not None:
        raise ImageError(name, needed)
    try:
        with Image.open(io.BytesIO(content), formats=decoders(content)) as image:
            width, height = image.size
            if width * height > pixels:
                raise ImageError(name, f"{width} x {height} pixels are more than the {pixels} allowed")
            yield image
    except (MemoryError, ImageError):
        raise
    except UnidentifiedImageError:
        raise ImageError(name, f"not an image this machine can decode; known are {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError:
        raise ImageError(name, f"it has more than the {pixels} pixels allowed") from None
    except Exception as error:  # decoders raise all types on a damaged file
        raise ImageError(name, str(error) or type(error).__name__) from None


def as_rgb(image: Image.Image) -> Image.Image:
    """The image as every model sees it: RGB, transparent parts (also a palette's) shown on white."""
    if image.mode.startswith("I"):
        image = _in_8_bits(image)
    if image.has_transparency_data:
        image = image.convert("LA") if image.mode == "La" else image  # Pillow has no way from La to RGBA
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, BACKGROUND), seen)
    return image if image.mode == "RGB" else image.convert("RGB")


def _in_8_bits(image: Image.Image) -> Image.Image:
    """A grey image of 16 bits in 8; Pillow would cut it off at 255, which makes nearly all of it white."""
    pixels = np.asarray(image).astype(np.int64)
    if image.mode == "I" and pixels.max(initial=0) <= 255:  # 32 bits wide, but holding 8
        return image
    return Image.fromarray(np.round(pixels.clip(0, 65535) / 257).astype(np.uint8))


@dataclass(frozen=True)
class ArraySource:
    """Images in one uint8 array (n, h, w, 3)."""

    pixels: NDArray[np.uint8]
    label: str = "array"

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, i: int) -> str:
        return f"{self.label}[{i}]"

    def key(self, i: int) -> str:
        return self.name(i)

    def digest(self, i: int) -> bytes:
        shape = np.array(self.pixels[i].shape, dtype=np.int64).tobytes()
        return hashlib.blake2b(shape + self.pixels[i].tobytes(), digest_size=16).digest()

    def read(self, i: int) -> Image.Image:
        return Image.fromarray(self.pixels[i])


@dataclass(frozen=True)
class PilSource:
    """PIL images in memory."""

    images: tuple[Image.Image, ...]

    def __len__(self) -> int:
        return len(self.images)

    def name(self, i: int) -> str:
        return f"image[{i}]"

    def key(self, i: int) -> str:
        return self.name(i)

    def digest(self, i: int) -> bytes:
        """Hash of everything that changes how the image looks: pixels, palette, transparency, EXIF orientation."""
        image = self.images[i]
        image.load()  # some formats know their mode and palette only now
        upright = image.getexif().get(_ORIENTATION, 1)
        look = (image.mode, image.size, image.getpalette(None), image.info.get("transparency"), upright)
        return hashlib.blake2b(repr(look).encode() + image.tobytes(), digest_size=16).digest()

    def read(self, i: int) -> Image.Image:
        return ImageOps.exif_transpose(self.images[i])


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their labels; `index` says which images of the source they are."""

    class_names: tuple[str, ...]
    labels: NDArray[np.int64]  # (n,), -1 without a label
    source: PixelSource
    index: NDArray[np.int64]  # (n,)

    def __post_init__(self) -> None:
        if self.labels.shape != self.index.shape:
            raise InputError(f"{len(self.labels)} labels for {len(self.index)} images")
        if len(set(self.class_names)) != len(self.class_names):
            twice = next(n for n in self.class_names if self.class_names.count(n) > 1)
            raise DataError(f"the class name {twice!r} stands for two classes; rename one of them")

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        if not self.class_names:
            return f"Images({len(self)}, without labels)"
        listed = ", ".join(self.class_names[:6]) + (", …" if len(self.class_names) > 6 else "")
        return f"Images({len(self)} of {len(self.class_names)} classes: {listed})"

    def subset(self, rows: ArrayLike) -> Images:
        """The images at these rows, in this order."""
        chosen = np.asarray(rows, dtype=np.int64)
        return Images(self.class_names, self.labels[chosen], self.source, self.index[chosen])

    def in_classes(self, class_names: Sequence[str]) -> Images:
        """The images with their labels numbered in this order of classes; refuses other names and missing labels."""
        blank = int((self.labels < 0).sum())
        if blank:
            have = "has" if blank == 1 else "have"
            raise InputError(f"{blank} of the {len(self)} images {have} no label; only labelled images can be scored")
        mine, wanted = set(self.class_names), set(class_names)
        if mine != wanted:
            more, less = (sorted(names)[:1] for names in (mine - wanted, wanted - mine))
            said = [f"they have {name!r}, which it has not" for name in more] + [f"they lack {name!r}" for name in less]
            raise InputError(f"the images' classes are not the run's: {' and '.join(said)}")
        if self.class_names == tuple(class_names):
            return self
        places = {name: i for i, name in enumerate(class_names)}
        numbers = np.array([places[name] for name in self.class_names], dtype=np.int64)
        return Images(tuple(class_names), numbers[self.labels], self.source, self.index)

    def name(self, row: int) -> str:
        return self.source.name(int(self.index[row]))

    def digest(self, row: int) -> bytes:
        """Hash of this image's content."""
        return self.source.digest(int(self.index[row]))

    def read(self, row: int) -> Image.Image:
        """The image, decoded now and upright; ImageError names the file if that fails."""
        return self.source.read(int(self.index[row]))

    def listing_digest(self) -> bytes:
        """Hash of the images' names, in order; no file is opened."""
        digest = hashlib.blake2b(digest_size=16)
        for i in self.index.tolist():
            digest.update(self.source.key(i).encode() + b"\0")
        return digest.digest()

    def content_digest(self) -> str:
        """Hash of every image's content, in order."""
        digest = hashlib.blake2b(digest_size=16)
        for row in range(len(self)):
            digest.update(self.digest(row))
        return digest.hexdigest()

    def readable(self) -> tuple[Images, list[ImageError]]:
        """The images that decode, and what is wrong with the others."""
        bad: list[ImageError] = []
        good: list[int] = []

        def check(row: int) -> ImageError | None:
            try:
                self.read(row)
            except ImageError as error:
                return error
            return None

        with ThreadPoolExecutor(DECODING_THREADS) as pool:
            for row, error in enumerate(pool.map(check, range(len(self)))):
                if error is None:
                    good.append(row)
                else:
                    bad.append(error)
        return self.subset(good), bad


Anything = Images | ArrayLike | Iterable[str | Path | Image.Image]


def as_images(given: Anything) -> Images:
    """An `Images` record of what was given: itself, paths, PIL images or a uint8 array (n, h, w, 3)."""
    if isinstance(given, Images):
        return given
    if isinstance(given, np.ndarray):
        if given.dtype != np.uint8 or given.ndim != 4 or given.shape[3] != 3:
            raise InputError(f"an image array must be uint8 (n, h, w, 3), not {given.dtype} {given.shape}")
        return unlabelled(ArraySource(given))
    if isinstance(given, (str, Path, Image.Image)):
        raise InputError("give a list of images, not a single one")
    items: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    if not items:
        raise InputError("no image was given")
    if all(isinstance(item, Image.Image) for item in items):
        return unlabelled(PilSource(tuple(items)))
    if all(isinstance(item, (str, Path)) for item in items):
        return unlabelled(FileSource(Path(), tuple(str(item) for item in items)))
    raise InputError("images must be an Images record, paths, PIL images or a uint8 array (n, h, w, 3)")


def unlabelled(source: PixelSource) -> Images:
    """Images without labels."""
    n = len(source)
    return Images((), np.full(n, -1, dtype=np.int64), source, np.arange(n))


def labelled(source: PixelSource, labels: Sequence[int] | NDArray[np.int64], class_names: Sequence[str]) -> Images:
    """Images with a label each."""
    return Images(tuple(class_names), np.asarray(labels, dtype=np.int64), source, np.arange(len(source)))


def in_batches(n: int, size: int) -> Iterator[range]:
    """Splits 0..n into ranges of at most `size`."""
    for start in range(0, n, size):
        yield range(start, min(start + size, n))
