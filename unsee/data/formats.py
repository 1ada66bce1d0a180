"""Image files by their suffix, the formats that are decoded, and those of phones, which not every Pillow has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

from PIL import Image, features

from unsee.errors import DataError
from unsee.installation import install_line

HEIC, AVIF = (".heic", ".heif"), (".avif",)
SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff", *HEIC, *AVIF}
)
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # Pillow opens many more, some of them run programs
_BRANDS = {b"heic": HEIC, b"heix": HEIC, b"heim": HEIC, b"heis": HEIC, b"hevc": HEIC, b"mif1": HEIC, b"avif": AVIF}


def is_image(name: str) -> bool:
    """Whether a file of this name is taken for an image."""
    return suffix_of(name) in SUFFIXES


def suffix_of(name: str) -> str:
    """The suffix of a file's name, in small letters."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122  # path objects would cost more than listing a folder


def refuse_unreadable(files: Sequence[str]) -> None:
    """Raises DataError if some of these files have a format that cannot be decoded here; opens none of them."""
    for endings in (HEIC, AVIF):
        found = [file for file in files if file.lower().endswith(endings)]
        if found and (needed := lacking(endings)) is not None:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise DataError(f"{found[0]}{more}: {needed}")


def lacking(endings: tuple[str, ...]) -> str | None:
    """What to install to decode files with these endings; None if nothing is missing."""
    if endings == HEIC and find_spec("pi_heif") is None:
        return f"HEIC needs the package pi-heif; install it with: {install_line('heic')}"
    if endings == AVIF and not ("avif" in features.modules and features.check("avif")):  # Pillow warns of unknown ones
        return "AVIF needs Pillow 11.3 or newer: pip install --upgrade pillow"
    return None


def lacking_for(content: bytes) -> str | None:
    """What to install to decode these bytes; None if they are in no format of phones, or nothing is missing."""
    endings = _BRANDS.get(content[8:12]) if content[4:8] == b"ftyp" else None
    if endings is None:
        return None
    needed = lacking(endings)
    if needed is None and endings == HEIC:
        _open_heic()
    return needed


def decoders(content: bytes) -> tuple[str, ...]:
    """Pillow's names of the formats that these bytes may be decoded as, whatever their file is called."""
    if content[4:8] != b"ftyp":
        return FORMATS
    Image.init()
    return tuple(name for name in ("HEIF", "AVIF") if name in Image.OPEN)


@cache
def _open_heic() -> None:
    """Teaches Pillow to open HEIC."""
    import pi_heif

    pi_heif.register_heif_opener()
