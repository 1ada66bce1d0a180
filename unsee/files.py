"""Files that matter are written whole or not at all, and known by their content."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes) -> None:
    """Writes to a temporary name beside it, then renames: a reader sees the old file or the new one."""
    write_with(path, lambda temporary: temporary.write_bytes(content))


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """The same for content too large to be held in memory twice: `write` is given the temporary name."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        write(temporary)
        os.fsync(handle)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def write_json(path: Path, content: Any) -> None:
    """As `write_bytes`, JSON that a person can read."""
    write_bytes(path, (json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
