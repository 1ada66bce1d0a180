"""Images from a browser as a folder of classes: a zip, or the files of a folder. Nothing is written outside its place.

Archives that would write elsewhere, hold links, or grow beyond all measure are refused as a whole.
"""

from __future__ import annotations

import re
import secrets
import shutil
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from unsee.data.class_folders import HIDDEN
from unsee.data.formats import is_image
from unsee.errors import DataError, ImageError, InputError
from unsee.studio.trial import check_image

MOST_FILES = 50_000
MOST_BYTES = 2 * 2**30  # unpacked
MOST_EACH = 64 * 2**20  # bytes of one image
MOST_PACKED = 100  # unpacked to packed: images hardly shrink, so more is a trap
MOST_NAMED = 10  # images that cannot be read, in one message
_ID = re.compile(r"[\w.-]{1,60}")


class Uploads:
    """The images that were sent to the page, each set a folder that runs are made of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def folders(self) -> list[Path]:
        """What was sent so far, by name."""
        return sorted(path for path in self._folder.glob("*") if path.is_dir() and not path.name.startswith("."))

    def begin(self, title: str) -> Path:
        """A new empty folder for images."""
        name = re.sub(r"[^\w.-]+", "-", title).strip("-.")[:40] or "images"
        place = self._folder / f"{name}-{secrets.token_hex(3)}"
        place.mkdir(parents=True)
        return place

    def begun(self, name: str) -> Path:
        """The folder of this name, to add to."""
        if not _ID.fullmatch(name) or not (self._folder / name).is_dir():
            raise InputError(f"there is no upload called {name!r}; send the folder again")
        return self._folder / name

    def add_file(self, place: Path, name: str, content: bytes) -> None:
        """Adds one file of a dropped folder; what is no image by its name is left out, an unreadable image raises."""
        inside = safe_path(name)
        if inside is None:
            return
        if len(content) > MOST_EACH:
            raise InputError(f"{name}: is larger than {MOST_EACH // 2**20} MB; make it smaller, or name its folder")
        check_image(content, name)
        target = place / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def add_zip(self, archive: Path, title: str) -> Path:
        """A folder with the images of a zip; nothing is left of one that is refused."""
        place = self.begin(PurePosixPath(title.replace("\\", "/")).name.removesuffix(".zip"))
        try:
            with zipfile.ZipFile(archive) as opened:
                self._unpack(opened, place)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError, OSError) as error:
            shutil.rmtree(place, ignore_errors=True)
            raise DataError(f"{title}: cannot be unpacked ({error}); is it a zip without a password?") from None
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return place

    def _unpack(self, opened: zipfile.ZipFile, place: Path) -> None:
        members = opened.infolist()
        if len(members) > MOST_FILES:
            raise InputError(f"the archive has {len(members):,} files; at most {MOST_FILES:,} are taken")
        total, packed = sum(m.file_size for m in members), sum(m.compress_size for m in members)
        if total > MOST_BYTES or total > MOST_PACKED * max(packed, 2**20):
            raise InputError(f"the archive would unpack to {total / 2**20:,.0f} MB, which is not what images do")
        left, bad = MOST_BYTES, []
        for member in members:
            if stat.S_ISLNK(member.external_attr >> 16):
                raise InputError(f"the archive holds a link, {member.filename!r}; only images are taken")
            inside = None if member.is_dir() else safe_path(member.filename)
            if inside is None:
                continue
            with opened.open(member) as file:
                content = file.read(MOST_EACH + 1)  # what its head says of its size may be a lie
            left -= len(content)
            if len(content) > MOST_EACH or left < 0:
                raise InputError(f"{member.filename!r} is larger than the {MOST_EACH // 2**20} MB allowed for an image")
            try:
                self.add_file(place, member.filename, content)
            except ImageError as error:
                bad.append(error)
        refuse_damaged(bad)
        if left == MOST_BYTES:
            raise InputError("the archive holds no images; wanted one folder per class, with images in it")


def refuse_damaged(bad: Sequence[ImageError]) -> None:
    """Says at once which of the images sent cannot be read."""
    if bad:
        also = f" (also: {', '.join(error.name for error in bad[1:MOST_NAMED])})" if len(bad) > 1 else ""
        more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
        them = "it" if len(bad) == 1 else "them"
        raise InputError(f"{bad[0]}{also}{more}. Remove {them}, then send the rest again: nothing was taken")


def safe_path(name: str) -> Path | None:
    """Where a file goes below its folder; None for what is no image; refuses a way out."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or re.match(r"[A-Za-z]:", parts[0]) or "\0" in name:
        raise InputError(f"{name!r} leads out of its folder; nothing was taken")
    if any(part.startswith(HIDDEN) for part in parts) or not is_image(parts[-1]):
        return None
    if any(len(part.encode()) > 200 for part in parts):
        raise InputError(f"{name[:60]!r}…: a name of more than 200 bytes; shorten it")
    return Path(*parts)
