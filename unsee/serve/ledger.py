"""What the service must not forget: what was spent, answers not yet acknowledged, image features and prompts.

What a request may cost is reserved before any of it is computed, and an answer and its price are written in one
transaction before the answer is sent. So after a `kill -9` a request is either answered and paid for, or neither:
reservations of a server that is gone count no longer. Everything belongs to a client: a row of another client is as
absent as one that was never there. Used from one thread at a time.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unsee.data.images import in_batches
from unsee.serve.databases import open_database
from unsee.serve.keys import Client
from unsee.serve.limits import Refused
from unsee.types import Floats

LEASE = 30.0  # seconds without a sign of life after which a server's reservations end
FREE_BYTES = 64 * 2**20  # of the disk, below which the service is not ready
ROWS_AT_ONCE = 500  # rows of one statement
SET_PART = 250  # images of a set that are counted in one transaction: others use the ledger in between
DEATHS = 2  # of the service while it computed the same request; from then on it is refused
SUSPECTED = 3600.0  # seconds that a death is remembered
COUNTED = ("candidates", "image_queries", "tokens")


@dataclass(frozen=True)
class Price:
    """What an answer costs: prompts tried, images scored under them, and text tokens computed."""

    candidates: int = 0
    image_queries: int = 0
    tokens: int = 0

    def __add__(self, other: Price) -> Price:
        return Price(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class StoredAnswer:
    """An answer that was paid for. Its content is None once the client has said that it arrived."""

    question: bytes  # hash of the request
    content: bytes | None
    media: str


@dataclass(frozen=True)
class StoredPrompt:
    """A deployed prompt: its card as JSON, and its contexts as safetensors."""

    card: str
    contexts: bytes

    @property
    def size(self) -> int:
        return len(self.card) + len(self.contexts)


class ServiceLedger:
    """The service's memory: a folder with an SQLite file, or the address of a PostgreSQL database."""

    def __init__(self, state: Path | str) -> None:
        self._db = open_database(state)
        self.shared = self._db.shared
        self._server = secrets.token_hex(8)
        if not self.shared:  # whatever is reserved was reserved by a service that is gone
            self._db.run("DELETE FROM reservations")
            self._db.run("DELETE FROM servers")
        self.tidy = self._db.tidy
        self.probe()

    def close(self) -> None:
        try:
            self._db.run("DELETE FROM servers WHERE id = ?", (self._server,))
        finally:
            self._db.close()

    def probe(self) -> None:
        """Shows that this server lives; fails where nothing can be written, or the disk is nearly full."""
        now = time.time()
        with self._db.transaction():
            values = (self._server, now)
            alive = "INSERT INTO servers VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET seen = excluded.seen"
            self._db.run(alive, values)
            self._db.run("DELETE FROM servers WHERE seen < ?", (now - LEASE,))
            self._db.run("DELETE FROM reservations WHERE server NOT IN (SELECT id FROM servers)")
        if self._db.folder is not None and shutil.disk_usage(self._db.folder).free < FREE_BYTES:
            raise OSError(f"less than {FREE_BYTES} bytes are free on the disk of the service's state")

    def usage(self, owner: str) -> tuple[Price, int]:
        """What a client has spent, and how many bytes it keeps here."""
        query = "SELECT candidates, image_queries, tokens, stored FROM accounts WHERE owner = ?"
        found = self._db.run(query, (owner,))
        return (Price(*found[0][:3]), found[0][3]) if found else (Price(), 0)

    def find(self, owner: str, key: str) -> StoredAnswer | None:
        """The answer that was given under this idempotency key."""
        found = self._db.run("SELECT question, content, media FROM answers WHERE owner = ? AND key = ?", (owner, key))
        return StoredAnswer(*found[0]) if found else None

    def reserve(
        self, client: Client, price: Price, size: int = 0, key: str | None = None, about: Iterable[bytes] = ()
    ) -> str | StoredAnswer | None:
        """A reservation of this price and so many bytes, or the answer that is there already under this key.

        None: another server is about to answer. Refused says which of the client's limits this would pass, or that
        one of the hashes in `about` has stopped the service before.
        """
        with self._db.transaction():
            spent, stored = self._account(client.name)
            if key is not None:
                found = self.find(client.name, key)
                if found is not None:
                    return found
                if self._db.run("SELECT 1 FROM reservations WHERE owner = ? AND key = ?", (client.name, key)):
                    return None
            self._check_suspects(about)
            held = self._check_budgets(client, spent, price)
            if size and stored + held + size > client.stored_bytes:
                message = f"{stored} bytes are stored, {size} more would pass {client.stored_bytes}"
                raise Refused(403, "stored_bytes", message)
            made = secrets.token_hex(16)
            row = (made, self._server, client.name, key, *astuple(price), size)
            self._db.run("INSERT INTO reservations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            return made

    def reserve_more(self, client: Client, reserved: str, price: Price) -> None:
        """Adds this to a reservation, or refuses as `reserve` does."""
        with self._db.transaction():
            self._check_budgets(client, self._account(client.name)[0], price)
            changes = ", ".join(f"{name} = {name} + ?" for name in COUNTED)
            self._db.run(f"UPDATE reservations SET {changes} WHERE id = ?", (*astuple(price), reserved))

    def settle(
        self, reserved: str, owner: str, price: Price, key: str | None = None, answer: StoredAnswer | None = None
    ) -> None:
        """Charges a price in place of its reservation, and keeps the answer, in one transaction."""
        with self._db.transaction():
            kept = 0
            if key is not None and answer is not None:
                kept = len(answer.content or b"")
                row = (answer.question, answer.content, answer.media, price.candidates, price.image_queries)
                self._db.run("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (owner, key, *row, time.time()))
            self._charge(reserved, owner, price, kept)

    def acknowledge(self, owner: str, keys: Sequence[str]) -> None:
        """Drops the content of answers that have arrived; their keys stay for a while: a late copy may yet come."""
        marks = ",".join("?" * len(keys))
        with self._db.transaction():
            self._account(owner)
            there = f"owner = ? AND key IN ({marks}) AND content IS NOT NULL"
            sizes = self._db.run(f"SELECT length(content) FROM answers WHERE {there}", (owner, *keys))
            statement = f"UPDATE answers SET content = NULL, time = ? WHERE {there}"
            self._db.run(statement, (time.time(), owner, *keys))
            self._add_stored(owner, -sum(size for (size,) in sizes))

    def turns(self, owner: str, name: str) -> int:
        """How many keys NAME.0, NAME.1, … a client has used: the number of the next."""
        found = self._db.run(
            "SELECT key FROM answers WHERE owner = ? AND key >= ? AND key < ?", (owner, f"{name}.", f"{name}/")
        )
        numbers = [key.rpartition(".")[2] for (key,) in found]
        return 1 + max((int(number) for number in numbers if number.isdecimal() and len(number) < 10), default=-1)

    def expire(self, before: float, acknowledged: float, unused: float) -> bool:
        """Forgets some old answers, acknowledged keys and images that are in no set; True if there are more."""
        with self._db.transaction():
            old = "time < ? OR (content IS NULL AND time < ?)"
            gone = self._db.run(
                f"DELETE FROM answers WHERE (owner, key) IN (SELECT owner, key FROM answers WHERE {old} LIMIT ?) "
                "RETURNING owner, coalesce(length(content), 0)",
                (before, acknowledged, ROWS_AT_ONCE),
            )
            images = self._db.run(
                "DELETE FROM features WHERE uses = 0 AND (owner, digest, encoder) IN (SELECT owner, digest, encoder "
                "FROM features WHERE uses = 0 AND time < ? LIMIT ?) RETURNING owner, length(feature)",
                (unused, ROWS_AT_ONCE),
            )
            self._db.run("DELETE FROM suspects WHERE time < ?", (time.time() - SUSPECTED,))
            for owner in sorted({owner for owner, _ in gone + images}):
                self._add_stored(owner, -sum(size for whose, size in gone + images if whose == owner))
        return max(len(gone), len(images)) == ROWS_AT_ONCE

    def count_deaths(self, hashes: Iterable[bytes]) -> None:
        """The service died while it computed these."""
        more = "ON CONFLICT (question) DO UPDATE SET deaths = suspects.deaths + 1, time = excluded.time"
        for each in hashes:
            self._db.run(f"INSERT INTO suspects VALUES (?, 1, ?) {more}", (each, time.time()))

    def missing(self, owner: str, encoder: str, digests: Sequence[str]) -> list[str]:
        """Those of these images that are not here, each once."""
        known: set[str] = set()
        for some in _some(digests):
            marks = ",".join("?" * len(some))
            query = f"SELECT digest FROM features WHERE owner = ? AND digest IN ({marks}) AND encoder = ?"
            known |= {bytes(digest).hex() for (digest,) in self._db.run(query, (owner, *some, encoder))}
        return [digest for digest in dict.fromkeys(digests) if digest not in known]

    def put_images(
        self, reserved: str, owner: str, encoder: str, rows: Sequence[tuple[str, Floats]], price: Price
    ) -> None:
        """Keeps features by image, and charges for them in place of the reservation."""
        with self._db.transaction():
            self._account(owner)
            missing = set(self.missing(owner, encoder, [digest for digest, _ in rows]))
            new = [(bytes.fromhex(digest), row) for digest, row in rows if digest in missing]
            uses: dict[bytes, int] = {}  # a set may hold an image whose features are those of another encoder
            for some in _some([digest for digest, _ in new]):
                marks = ",".join("?" * len(some))
                query = f"SELECT digest, uses FROM features WHERE owner = ? AND digest IN ({marks})"
                uses |= {bytes(digest): count for digest, count in self._db.run(query, (owner, *some))}
            now = time.time()
            values = [(owner, digest, encoder, row.tobytes(), uses.get(digest, 0), now) for digest, row in new]
            self._db.many("INSERT INTO features VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)
            self._charge(reserved, owner, price, sum(row.nbytes for _, row in new))

    def hold_images(self, reserved: str, owner: str, encoder: str, part: int, digests: Sequence[str]) -> list[str]:
        """Counts some images as used by a set that is being made; -> those that are missing, and then none is."""
        with self._db.transaction():
            self._account(owner)
            missing = self.missing(owner, encoder, digests)
            if not missing:
                self._use(owner, digests, 1)
                self._hold(reserved, part, owner, _join(digests))
        return missing

    def put_set(self, reserved: str, owner: str, name: str, digests: Sequence[str]) -> None:
        """Keeps which images are in a set, in order; all of them are held under this reservation."""
        joined = _join(digests)
        with self._db.transaction():
            self._account(owner)
            statement = "INSERT INTO sets VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1"
            made = self._db.run(statement, (owner, bytes.fromhex(name), joined))
            if made:
                self._db.run("DELETE FROM held WHERE id = ?", (reserved,))
            self._charge(reserved, owner, Price(), len(joined) if made else 0)

    def has_set(self, owner: str, name: str) -> bool:
        return bool(self._db.run("SELECT 1 FROM sets WHERE owner = ? AND id = ?", (owner, bytes.fromhex(name))))

    def set_digests(self, owner: str, name: str) -> list[bytes] | None:
        """The hashes of the images in a set, in order; None if the client has no such set."""
        row = self._db.run("SELECT digests FROM sets WHERE owner = ? AND id = ?", (owner, bytes.fromhex(name)))
        return _cut(row[0][0]) if row else None

    def features(self, owner: str, encoder: str, digests: Sequence[bytes]) -> dict[bytes, Floats]:
        """The features (E,) of those of these images that are here."""
        found: dict[bytes, Floats] = {}
        for some in _some(digests):
            marks = ",".join("?" * len(some))
            query = f"SELECT digest, feature FROM features WHERE owner = ? AND digest IN ({marks}) AND encoder = ?"
            for digest, feature in self._db.run(query, (owner, *some, encoder)):
                found[bytes(digest)] = np.frombuffer(feature, dtype=np.float32)
        return found

    def delete_set(self, owner: str, name: str) -> bool:
        """Deletes a set; `give_back` deletes the images that no other set of the client holds, part by part."""
        with self._db.transaction():
            self._account(owner)
            statement = "DELETE FROM sets WHERE owner = ? AND id = ? RETURNING digests"
            row = self._db.run(statement, (owner, bytes.fromhex(name)))
            if not row:
                return False
            gone, unique = f"deleted-{secrets.token_hex(16)}", list(dict.fromkeys(_cut(row[0][0])))
            for part, rows in enumerate(in_batches(len(unique), SET_PART)):
                self._hold(gone, part, owner, b"".join(unique[i] for i in rows))
            self._add_stored(owner, -len(row[0][0]))
            return True

    def give_back(self) -> bool:
        """Counts off some images of a set that was deleted, or was never finished; False if there are none."""
        with self._db.transaction():
            left = "SELECT id, part FROM held WHERE id NOT IN (SELECT id FROM reservations) LIMIT 1"
            row = self._db.run(f"DELETE FROM held WHERE (id, part) IN ({left}) RETURNING owner, digests")
            for owner, digests in row:
                self._account(owner)
                self._add_stored(owner, -self._use(owner, _cut(digests), -1))
        return bool(row)

    def put_prompt(self, reserved: str, owner: str, name: str, prompt: StoredPrompt, price: Price) -> None:
        """Deploys a prompt, in place of an earlier one of this name."""
        with self._db.transaction():
            self._account(owner)
            before = self.prompt(owner, name)
            self._db.run(
                "INSERT INTO prompts VALUES (?, ?, ?, ?) ON CONFLICT (owner, name) DO UPDATE SET "
                "card = excluded.card, contexts = excluded.contexts",
                (owner, name, prompt.card, prompt.contexts),
            )
            self._charge(reserved, owner, price, prompt.size - (0 if before is None else before.size))

    def prompt(self, owner: str, name: str) -> StoredPrompt | None:
        """A deployed prompt of this client."""
        found = self._db.run("SELECT card, contexts FROM prompts WHERE owner = ? AND name = ?", (owner, name))
        return StoredPrompt(*found[0]) if found else None

    def prompts(self, owner: str) -> dict[str, str]:
        """The cards of this client's prompts, by name."""
        rows = self._db.run("SELECT name, card FROM prompts WHERE owner = ? ORDER BY name", (owner,))
        return dict(rows)

    def delete_prompt(self, owner: str, name: str) -> bool:
        """Withdraws a prompt; False if there is none."""
        with self._db.transaction():
            self._account(owner)
            gone = self.prompt(owner, name)
            if gone is None:
                return False
            self._db.run("DELETE FROM prompts WHERE owner = ? AND name = ?", (owner, name))
            self._add_stored(owner, -gone.size)
            return True

    def release(self, reserved: str) -> None:
        """Nothing of this is charged."""
        self._db.run("DELETE FROM reservations WHERE id = ?", (reserved,))

    def _account(self, owner: str) -> tuple[Price, int]:
        """What a client has spent and stored; until the transaction ends, nobody else changes it."""
        self._db.run("INSERT INTO accounts (owner) VALUES (?) ON CONFLICT DO NOTHING", (owner,))
        columns = "candidates, image_queries, tokens, stored"
        row = self._db.run(f"UPDATE accounts SET stored = stored WHERE owner = ? RETURNING {columns}", (owner,))[0]
        return Price(*row[:3]), row[3]

    def _check_budgets(self, client: Client, spent: Price, price: Price) -> int:
        """Refused if this price would pass one of the client's budgets; -> bytes that it has reserved."""
        sums = ", ".join(f"coalesce(sum({name}), 0)" for name in (*COUNTED, "bytes"))
        held = self._db.run(f"SELECT {sums} FROM reservations WHERE owner = ?", (client.name,))[0]
        for name, before, reserved, asked in zip(COUNTED, astuple(spent), held, astuple(price), strict=False):
            limit = getattr(client, name)
            if limit is not None and asked and before + reserved + asked > limit:
                left = max(0, limit - before)
                raise Refused(403, name, f"the budget is {limit}, {left} are left, {asked} were asked")
        return int(held[3])

    def _charge(self, reserved: str, owner: str, price: Price, kept: int) -> None:
        if not self._db.run("DELETE FROM reservations WHERE id = ? RETURNING 1", (reserved,)):
            raise Refused(503, "time", "the service was away for too long; ask again", retry_after=1)
        changes = ", ".join(f"{name} = {name} + ?" for name in COUNTED)
        self._db.run(f"UPDATE accounts SET {changes} WHERE owner = ?", (*astuple(price), owner))
        self._add_stored(owner, kept)

    def _add_stored(self, owner: str, more: int) -> None:
        self._db.run("UPDATE accounts SET stored = stored + ? WHERE owner = ?", (more, owner))

    def _hold(self, holder: str, part: int, owner: str, digests: bytes) -> None:
        self._db.run("INSERT INTO held VALUES (?, ?, ?, ?)", (holder, part, owner, digests))

    def _use(self, owner: str, digests: Sequence[str] | Sequence[bytes], more: int) -> int:
        """Counts in how many sets these images are; -> bytes of those that were in the last one, and are deleted."""
        freed = 0
        for some in _some(digests):
            there = f"owner = ? AND digest IN ({','.join('?' * len(some))})"
            self._db.run(f"UPDATE features SET uses = uses + ? WHERE {there}", (more, owner, *some))
            if more < 0:
                statement = f"DELETE FROM features WHERE {there} AND uses = 0 RETURNING length(feature)"
                freed += sum(size for (size,) in self._db.run(statement, (owner, *some)))
        return freed

    def _check_suspects(self, about: Iterable[bytes]) -> None:
        given = list(about)
        for some in _some(given):
            marks = ",".join("?" * len(some))
            query = f"SELECT 1 FROM suspects WHERE question IN ({marks}) AND deaths >= ? AND time > ?"
            if self._db.run(query, (*some, DEATHS, time.time() - SUSPECTED)):
                message = f"stopped the service {DEATHS} times; it is not computed again within an hour"
                raise Refused(422, "request", message)


def _join(digests: Sequence[str]) -> bytes:
    return b"".join(bytes.fromhex(digest) for digest in digests)


def _cut(joined: bytes) -> list[bytes]:
    return [bytes(joined[start : start + 32]) for start in range(0, len(joined), 32)]


def _some(digests: Sequence[Any]) -> Iterable[list[bytes]]:
    """Hashes as bytes, as many at a time as one statement takes."""
    for batch in in_batches(len(digests), ROWS_AT_ONCE):
        yield [digest if isinstance(digest, bytes) else bytes.fromhex(digest) for digest in (digests[i] for i in batch)]
