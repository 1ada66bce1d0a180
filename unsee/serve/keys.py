"""Keys of the service's clients: a TOML file with one table per client: hashes, role, prompts and limits.

A key is 256 random bits, so its SHA-256 cannot be guessed back; a slow password hash would only slow the service down.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from unsee.errors import InputError
from unsee.files import write_bytes

Role = Literal["classify", "tune", "operate"]
LabelPolicy = Literal["fixed", "any"]
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
PROMPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)  # the name of a deployed prompt
DIGITS = re.compile(r"[0-9a-f]{64}", re.ASCII)
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
    role: Role = "tune"  # what it may do
    prompts: tuple[str, ...] = ()  # of the operator: every answer leaves under one of these, the first unless named
    labels: LabelPolicy = "fixed"  # which it may ask for under such a prompt: the prompt's own, or any
    expires: float | None = None  # seconds since 1970


ANYONE = Client(
    "anyone", rate=1e6, role="operate"
)  # where there are no keys; the operator's prompts are under its name
_POLICY = ("role", "prompt", "labels", "expires")
_TYPES: dict[str, tuple[type, ...]] = {
    "candidates": (int,),
    "image_queries": (int,),
    "tokens": (int,),
    "rate": (int, float),
    "stored_bytes": (int,),
}


class Keys:
    """The clients by the hashes of their keys; a client may have several."""

    def __init__(self, read: Callable[[], Mapping[str, Client]]) -> None:
        self._read = read
        self.reload()

    def reload(self) -> None:
        """Reads them again; InputError says what is wrong, and those of before stay."""
        self._clients = [(bytes.fromhex(digest), client) for digest, client in self._read().items()]

    def find(self, key: str) -> Client | None:
        """Whose key this is. Every hash is compared, each in constant time, so the time leaks nothing."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, client in self._clients:
            if hmac.compare_digest(known, digest):
                found = client
        return None if found is None or (found.expires is not None and found.expires <= time.time()) else found

    @property
    def clients(self) -> Sequence[Client]:
        return [client for _, client in self._clients]


def read_keys(path: Path, prompts: Sequence[str] = ()) -> Keys:
    """The keys in a file; InputError says what is wrong with it.

    prompts are those of the operator that every client gets answers under unless its table says otherwise.
    """
    return Keys(lambda: _read_clients(path, tuple(prompts)))


def add_key(path: Path, name: str, another: bool = False) -> str:
    """Makes a key for this client, adds its hash to the file and returns the key, which is stored nowhere.

    another: a second one for a client that has one, so that the old key can be taken out once the new one is in use.
    """
    if not OWNER.fullmatch(name) or name == ANYONE.name:
        raise InputError(f"the name {name!r} must be 1 to 64 letters, digits, dashes or underscores, not anyone")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    known = tomllib.loads(text).get(name) if text else None
    if (known is not None) is not another:
        wrong = "there is no key" if another else "there is a key"
        hint = "use --new-key" if another else "use --another-key to add one"
        raise InputError(f"{path}: {wrong} for {name} {'yet' if another else 'already'}; {hint}")
    key = f"unsee_{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    if known is None:
        text += ("\n" if text else "") + f"[{json.dumps(name)}]\nsha256 = {json.dumps(digest)}\n"
    else:
        text = _with_digests(path, text, name, [*_digests(path, name, known), digest])
    write_bytes(path, text.encode())
    path.chmod(0o600)
    return key


def _with_digests(path: Path, text: str, name: str, digests: Sequence[str]) -> str:
    """The file with these hashes for a client; the rest stays as it was written."""
    table = rf"""^(\s*\[\s*["']?{re.escape(name)}["']?\s*\][^\[]*?^\s*sha256\s*=\s*)(\[[^\]]*\]|"[^"]*"|'[^']*')"""
    changed, times = re.subn(table, lambda found: found[1] + json.dumps(list(digests)), text, count=1, flags=re.M)
    if times != 1 or tomllib.loads(changed)[name].get("sha256") != list(digests):
        raise InputError(f"{path}: [{name}] could not be changed; add to its sha256 by hand: {digests[-1]}")
    return changed


def _read_clients(path: Path, prompts: tuple[str, ...]) -> dict[str, Client]:
    """The clients by the hashes of their keys."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; make one with: unsee serve --keys {path} --new-key NAME") from None
    except ValueError as error:
        raise InputError(f"{path}: not TOML ({error})") from None
    clients: dict[str, Client] = {}
    for name, table in tables.items():
        if not OWNER.fullmatch(name) or name == ANYONE.name or not isinstance(table, dict):
            raise InputError(f"{path}: {name!r} is not a table with the name of a client")
        client = _read_client(f"{path}: [{name}]", name, table, prompts)
        for digest in _digests(path, name, table):
            if digest in clients:
                raise InputError(f"{path}: {name} and {clients[digest].name} have the same key")
            clients[digest] = client
    if not clients:
        raise InputError(f"{path}: holds no key; make one with: unsee serve --keys {path} --new-key NAME")
    return clients


def _digests(path: Path, name: str, table: Mapping[str, Any]) -> list[str]:
    given = table.get("sha256")
    found: list[Any] = given if isinstance(given, list) else [given]
    if not found or not all(isinstance(digest, str) and DIGITS.fullmatch(digest) for digest in found):
        raise InputError(f"{path}: [{name}] needs sha256, 64 hexadecimal digits, or a list of such")
    return found


def _read_client(where: str, name: str, table: Mapping[str, Any], prompts: tuple[str, ...]) -> Client:
    limits: dict[str, Any] = {}
    for key, value in table.items():
        if key in ("sha256", *_POLICY):
            continue
        if key not in _TYPES:
            raise InputError(f"{where} has no limit {key!r}; there are {', '.join([*_POLICY, *_TYPES])}")
        number = value if isinstance(value, (int, float)) and isinstance(value, _TYPES[key]) else 0
        if isinstance(value, bool) or not 0 < number < float("inf"):
            raise InputError(f"{where} {key} must be a number above 0")
        limits[key] = value
    own = _read_prompts(where, table.get("prompt", []))
    role = table.get("role", "classify" if own or prompts else "tune")
    if role not in get_args(Role):
        raise InputError(f"{where} role is one of {', '.join(get_args(Role))}, not {role!r}")
    granted = own or (() if role == "operate" else prompts)
    if granted and role != "classify":
        raise InputError(f"{where} has a prompt, so its role must be classify: role {role} sees the model without it")
    labels = table.get("labels", "fixed")
    if labels not in get_args(LabelPolicy) or ("labels" in table and not granted):
        raise InputError(f"{where} labels is fixed or any, for a key with a prompt, not {labels!r}")
    return Client(name, **limits, role=role, prompts=granted, labels=labels, expires=_read_time(where, table))


def _read_prompts(where: str, given: Any) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(each, str) and PROMPT.fullmatch(each) for each in names):
        raise InputError(f"{where} prompt is the name of a deployed prompt, or a list of such, not {given!r}")
    return tuple(names)


def _read_time(where: str, table: Mapping[str, Any]) -> float | None:
    given = table.get("expires")
    if given is None:
        return None
    if not isinstance(given, date):  # a datetime is one too
        raise InputError(f"{where} expires is a date such as 2030-12-31, without quotes, not {given!r}")
    moment = given if isinstance(given, datetime) else datetime(given.year, given.month, given.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
