"""A disk that can crash: records every change of a run folder, and gives the folder as any crash would have left it.

All changes go through four functions of `unsee.files`; here they are recorded as they are made. A crash may come after
any of them. A kill leaves what was written, or half of the last write. A power cut may also take, file by file, what
was not yet synchronised: the end of a file that was appended to, a new name, a deletion.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from unsee import files

State = dict[str, bytes]


class Disk:
    """The changes of one folder, in order, as (what, name, content)."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.before = {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else State()
        self.changes: list[tuple[str, str, bytes]] = []
        for name in ("_extend", "_rename", "_unlink", "_sync"):
            monkeypatch.setattr(files, name, self._recorded(name, getattr(files, name)))

    def _recorded(self, what, real):
        def change(path, *more):
            target = more[0] if what == "_rename" else path
            content = {"_extend": lambda: more[0], "_rename": path.read_bytes}.get(what, lambda: b"")()
            real(path, *more)
            if target == self.folder or (target.parent == self.folder and not target.name.startswith(".")):
                self.changes.append((what, "" if target == self.folder else target.name, content))

        return change

    @property
    def end(self) -> State:
        """The folder after the last change; a file that was written past these functions is not in it."""
        return list(self._states())[-1]

    def crashes(self) -> Iterator[State]:
        """Every folder that a crash may leave, each once, from the first change to the last."""
        seen = set()
        for state in self._states():
            key = frozenset(state.items())
            if key not in seen:
                seen.add(key)
                yield state

    def _states(self) -> Iterator[State]:
        now, safe = self.before, self.before
        for what, name, content in self.changes:
            if what == "_extend":
                yield now | {name: now.get(name, b"") + content[: len(content) // 2]}
                now = now | {name: now.get(name, b"") + content}
            elif what == "_rename":
                yield now | {f".{name}.0123abcd": content[: len(content) // 2]}
                now = now | {name: content}
            elif what == "_unlink":
                now = {other: kept for other, kept in now.items() if other != name}
            elif name:
                safe = safe | {name: now[name]} if name in now else safe
            else:  # the folder: names, and what was deleted, are on disk; ends of files that were appended to are not
                safe = {other: safe.get(other, b"") if self._appended(other) else now[other] for other in now}
            yield now
            yield safe
            for lost in {*now, *safe}:
                changed = {other: kept for other, kept in now.items() if other != lost}
                yield changed | ({lost: safe[lost]} if lost in safe else {})
        yield now

    def _appended(self, name: str) -> bool:
        return any(what == "_extend" and other == name for what, other, _ in self.changes)


def write_state(state: State, folder: Path) -> Path:
    """The folder as this crash left it."""
    folder.mkdir()
    for name, content in state.items():
        (folder / name).write_bytes(content)
    return folder
