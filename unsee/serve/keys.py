"""Keys of the service's clients: a TOML file with one table per client, holding a hash and the client's limits.

A key is 256 random bits, so its SHA-256 cannot be guessed back; a slow password hash would only slow the service down.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsee.errors import InputError
from unsee.files import write_bytes

OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
STORED_BYTES = 2**30
RATE = 200.0


@dataclass(frozen=True)
class Client:
    """Who is asking, and how much they may ask for; None: without a limit."""

    name: str
    candidates: int | None = None
    image_queries: int | None = None
    tokens: int | None = None  # text tokens computed: for every candidate those of all names and their contexts
    rate: float = RATE  # requests a second; twice as many at once
    stored_bytes: int = STORED_BYTES  # of image features, prompts and answers not yet acknowledged


ANYONE = Client("anyone", rate=1e6)  # where there are no keys
_TYPES: dict[str, tuple[type, ...]] = {
    "candidates": (int,),
    "image_queries": (int,),
    "tokens": (int,),
    "rate": (int, float),
    "stored_bytes": (int,),
}


class Keys:
    """The clients by the hashes of their keys."""

    def __init__(self, clients: Mapping[str, Client]) -> None:
        self._clients = [(bytes.fromhex(digest), client) for digest, client in clients.items()]

    def find(self, key: str) -> Client | None:
        """Whose key this is. Every hash is compared, each in constant time, so the time tells nothing."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, client in self._clients:
            if hmac.compare_digest(known, digest):
                found = client
        return found

    @property
    def clients(self) -> Sequence[Client]:
        return [client for _, client in self._clients]


def read_keys(path: Path) -> Keys:
    """The keys in a file; InputError says what is wrong with it."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; make one with: unsee serve --keys {path} --new-key NAME") from None
    except ValueError as error:
        raise InputError(f"{path}: not TOML ({error})") from None
    clients: dict[str, Client] = {}
    for name, table in tables.items():
        digest, client = _read_client(path, name, table)
        if digest in clients:
            raise InputError(f"{path}: {name} and {clients[digest].name} have the same key")
        clients[digest] = client
    if not clients:
        raise InputError(f"{path}: holds no key; make one with: unsee serve --keys {path} --new-key NAME")
    return Keys(clients)


def add_key(path: Path, name: str) -> str:
    """Makes a key for this client, adds its hash to the file and returns the key, which is stored nowhere."""
    if not OWNER.fullmatch(name):
        raise InputError(f"the name {name!r} must be 1 to 64 letters, digits, dashes or underscores")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text and name in tomllib.loads(text):
        raise InputError(f"{path}: there is a key for {name} already; delete its table first")
    key = f"unsee_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    table = f"[{json.dumps(name)}]\nsha256 = {json.dumps(digest)}\n"
    write_bytes(path, (text + ("\n" if text else "") + table).encode())
    path.chmod(0o600)
    return key


def _read_client(path: Path, name: str, table: Any) -> tuple[str, Client]:
    if not OWNER.fullmatch(name) or not isinstance(table, dict):
        raise InputError(f"{path}: {name!r} is not a table with the name of a client")
    digest = table.get("sha256")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise InputError(f"{path}: [{name}] needs sha256, 64 hexadecimal digits")
    limits = {key: value for key, value in table.items() if key != "sha256"}
    for key, value in limits.items():
        if key not in _TYPES:
            raise InputError(f"{path}: [{name}] has no limit {key!r}; there are {', '.join(_TYPES)}")
        number = value if isinstance(value, (int, float)) and isinstance(value, _TYPES[key]) else 0
        if isinstance(value, bool) or not 0 < number < float("inf"):
            raise InputError(f"{path}: [{name}] {key} must be a number above 0")
    return digest, Client(name, **limits)
