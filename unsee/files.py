"""Files that matter are written whole or not at all, and known by their content.

Everything that changes a run folder goes through here. Content is on disk before its name is: a power cut leaves the
old file or the new one. What is appended is on disk after `sync`; before that, a power cut may take the end of it.
Where the disk refuses, `WriteError` says what in one line.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from unsee.errors import WriteError


def write_bytes(path: Path, content: bytes) -> None:
    """Writes to a temporary name beside it, then renames: a reader sees the old file or the new one."""
    write_with(path, lambda temporary: temporary.write_bytes(content))


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """The same for content too large to be held in memory twice: `write` is given the temporary name."""
    publish(stage(path, write), path)


def write_json(path: Path, content: Any) -> None:
    """As `write_bytes`, JSON that a person can read."""
    write_bytes(path, json_bytes(content))


def sha256_of(folder: Path, patterns: Sequence[str]) -> str:
    """Hash of the files of these patterns in a folder, by name and content; a file that did not change is read once."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        stat = path.stat()
        digest.update(f"{path.name}\0{_sha256(path, stat.st_ino, stat.st_mtime_ns, stat.st_size)}\n".encode())
    return digest.hexdigest()


@cache
def _sha256(path: Path, *state: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_bytes(content: Any) -> bytes:
    """JSON that a person can read."""
    return (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def stage(path: Path, write: Callable[[Path], object]) -> Path:
    """The name of a temporary file beside it with this content, on disk, ready to be published."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with _explained(path):
        try:
            write(temporary)
            sync(temporary)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    return temporary


def publish(temporary: Path, path: Path) -> None:
    """Gives a staged file its name."""
    with _explained(path):
        _rename(temporary, path)
        _sync(path.parent)


def append(path: Path, content: bytes) -> None:
    """Adds to the end of a file. A kill may leave a part of it, a power cut before `sync` nothing."""
    with _explained(path):
        _extend(path, content)


def sync(path: Path) -> None:
    """Returns once the file is on disk."""
    with _explained(path):
        _sync(path)


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Deletes these files, in this order, if they are there."""
    with _explained(folder):
        there = [folder / name for name in names if (folder / name).exists()]
        for path in there:
            _unlink(path)
        if there:
            _sync(folder)


def leftovers(folder: Path, names: Iterable[str]) -> list[str]:
    """Temporary names that a kill left beside these files."""
    prefixes = tuple(f".{name}." for name in names)
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(prefixes))


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from None


# All that changes the disk. Tests of crashes replace these four.


def _extend(path: Path, content: bytes) -> None:
    with path.open("ab") as out:
        out.write(content)


def _rename(temporary: Path, path: Path) -> None:
    temporary.replace(path)


def _unlink(path: Path) -> None:
    path.unlink()


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
