"""Reads files straight out of a git repository, bare or with a work tree, without checking it out."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_folder(path: Path) -> Path:
    """Where git keeps the history of a repository, bare or with a work tree."""
    return path / ".git" if (path / ".git").exists() else path


class Repository:
    """The newest commit of a git repository."""

    def __init__(self, path: Path) -> None:
        self._git = ["git", "--git-dir", str(git_folder(path))]
        self._reader: subprocess.Popen[bytes] | None = None

    def files(self, folder: str = "") -> dict[str, str]:
        """Every file below a folder: path relative to the folder, and the id of its content."""
        listing = subprocess.run(
            [*self._git, "ls-tree", "-r", "-z", f"HEAD:{folder}"], capture_output=True, check=True
        ).stdout.decode()
        rows = (line.split("\t", 1) for line in listing.split("\0") if line)
        return {name: facts.split()[2] for facts, name in rows}

    def read(self, content: str) -> bytes:
        """The bytes of a file, by the id of its content."""
        if self._reader is None:
            self._reader = subprocess.Popen(
                [*self._git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        reader = self._reader
        if reader.stdin is None or reader.stdout is None:
            raise OSError("git cat-file has no pipes")
        reader.stdin.write(f"{content}\n".encode())
        reader.stdin.flush()
        header = reader.stdout.readline().split()
        if len(header) != 3:
            raise FileNotFoundError(f"{content} is missing from {self._git[-1]}")
        found = reader.stdout.read(int(header[2]))
        reader.stdout.read(1)
        return found

    def text(self, path: str) -> str:
        """The text of one file."""
        return subprocess.run([*self._git, "show", f"HEAD:{path}"], capture_output=True, check=True).stdout.decode(
            "utf-8", "replace"
        )
