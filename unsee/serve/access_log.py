"""What is written down of requests: an access log, and an audit log of what was refused or changed; never contents.

Both are JSON, one line per event. Whoever rotates the files sends SIGHUP, and they are opened again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from unsee.errors import InputError
from unsee.serve.guard import Scope
from unsee.serve.ledger import Price

CHANGES = {"PUT": "deployed", "DELETE": "withdrawn"}  # of prompts
STDERR = "-"


class ServiceLog:
    """The two logs; either may be absent."""

    def __init__(self, access: Path | None = None, audit: Path | None = None) -> None:
        self._paths = access, audit
        self._files: tuple[TextIO | None, TextIO | None] = (None, None)
        self.reopen()

    def reopen(self) -> None:
        """Opens the files, which others may have renamed."""
        opened = _open(self._paths[0]), _open(self._paths[1])
        self.close()
        self._files = opened

    def close(self) -> None:
        for file in self._files:
            if file is not None and file is not sys.stderr:
                file.close()

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Notes one request that was answered or refused."""
        state = scope.get("state", {})
        client, charged = state.get("client"), state.get("charged") or Price()
        route = getattr(scope.get("route"), "path", "none")  # a path that no route has could be anything
        facts = {
            "id": state.get("id", ""),
            "client": None if client is None else client.name,
            "method": scope["method"] if route != "none" else None,
            "route": route,
            "status": status,
        }
        self._write(self._files[0], facts | {"milliseconds": round(1000 * seconds, 1), "charged": asdict(charged)})
        if status >= 400:
            self.event("refused", facts | {"field": state.get("refused", "")})
        elif route == "/v1/prompts/{name}" and scope["method"] in CHANGES:
            self.event(CHANGES[scope["method"]], facts | {"prompt": scope["path_params"]["name"]})

    def event(self, what: str, facts: Mapping[str, object] | None = None) -> None:
        """Notes something in the audit log."""
        self._write(self._files[1], {"event": what, **(facts or {})})

    def _write(self, file: TextIO | None, facts: Mapping[str, object]) -> None:
        if file is None:
            return
        with suppress(OSError):  # a full disk is no reason to answer nobody
            file.write(json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}) + "\n")
            file.flush()


def _open(path: Path | None) -> TextIO | None:
    if path is None or str(path) == STDERR:
        return None if path is None else sys.stderr
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
