"""What the service was computing when it died: a small file that outlives the process.

A request that brings the whole process down, such as an image that crashes a decoder written in C, is sent again by a
client that means no harm, and would bring it down again and again. So the hashes of what is being computed are in a
file, written where a killed process leaves them, and the ledger counts how often the service died with each of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

HASH_BYTES = 32


class RunningMarks:
    """The hashes of what this process computes, by part of the service."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.left = [each for path in sorted(folder.glob("running-*")) for each in _take(path)]
        self._path = folder / f"running-{os.getpid()}"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._parts: dict[str, Sequence[bytes]] = {}

    def set(self, part: str, hashes: Sequence[bytes]) -> None:
        """What this part computes from now on, in place of what it computed before."""
        self._parts[part] = hashes
        joined = b"".join(each for known in self._parts.values() for each in known)
        os.pwrite(self._file, joined + bytes(HASH_BYTES), 0)  # zeros end it; one write, so it is never half done

    def close(self) -> None:
        """An orderly end: nothing is suspected."""
        os.close(self._file)
        self._path.unlink(missing_ok=True)


def _take(path: Path) -> list[bytes]:
    """The hashes that a process left behind, and deletes its file; none if the process lives."""
    pid = int(path.name.removeprefix("running-")) if path.name[len("running-") :].isdecimal() else 0
    if pid != os.getpid() and _lives(pid):
        return []
    content = path.read_bytes()
    path.unlink(missing_ok=True)
    found = [content[start : start + HASH_BYTES] for start in range(0, len(content), HASH_BYTES)]
    ends = found.index(bytes(HASH_BYTES)) if bytes(HASH_BYTES) in found else len(found)
    return found[:ends]


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
