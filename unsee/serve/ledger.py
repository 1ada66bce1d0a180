"""What the service must not forget: what was spent, answers not yet acknowledged, image features and prompts.

One SQLite file with a write-ahead log. An answer and its price are written in one transaction before the answer is
sent, so after a `kill -9` a request is either answered and paid for, or neither. Everything belongs to a client: a row
of another client is as absent as one that was never there. Used from one thread at a time.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from unsee.data.images import in_batches
from unsee.errors import RunError
from unsee.types import Floats

LOCKED = 5.0  # seconds to wait for a service that is just ending
SCHEMA = """
CREATE TABLE IF NOT EXISTS spent (owner TEXT PRIMARY KEY, candidates INTEGER NOT NULL, image_queries INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS answers (owner TEXT, key TEXT, question BLOB, content BLOB, media TEXT, candidates INTEGER,
    image_queries INTEGER, time REAL, PRIMARY KEY (owner, key));
CREATE INDEX IF NOT EXISTS answers_by_time ON answers (time);
CREATE TABLE IF NOT EXISTS images (owner TEXT, encoder TEXT, digest BLOB, feature BLOB,
    PRIMARY KEY (owner, encoder, digest)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sets (owner TEXT, id BLOB, digests BLOB, PRIMARY KEY (owner, id));
CREATE TABLE IF NOT EXISTS prompts (owner TEXT, name TEXT, card TEXT, contexts BLOB, PRIMARY KEY (owner, name));
"""


@dataclass(frozen=True)
class Price:
    """What an answer costs: prompts tried, and images scored under them."""

    candidates: int = 0
    image_queries: int = 0

    def __add__(self, other: Price) -> Price:
        return Price(self.candidates + other.candidates, self.image_queries + other.image_queries)

    def __sub__(self, other: Price) -> Price:
        return Price(self.candidates - other.candidates, self.image_queries - other.image_queries)


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


def make_private(folder: Path) -> None:
    """Makes the folder, for its owner alone; what an earlier version left there is closed to others too."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder, *folder.glob("serve.*")):
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o700 if path == folder else 0o600)


class ServiceLedger:
    """The service's memory, in one SQLite file."""

    def __init__(self, folder: Path) -> None:
        try:
            make_private(folder)
            # Two services would each count what the other spends. The system lets go of it when a process is killed.
            self._lock = FileLock(folder / "serve.lock", thread_local=False, mode=0o600)
            self._lock.acquire(timeout=LOCKED)
            os.close(os.open(folder / "serve.sqlite", os.O_CREAT | os.O_RDWR, 0o600))  # SQLite's other files follow it
            self._db = sqlite3.connect(folder / "serve.sqlite", timeout=30, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            # Handed to the system before an answer is sent: a killed process loses nothing. Waiting for the disk as
            # well would help against a power cut only, and takes milliseconds for every answer.
            self._db.execute("PRAGMA synchronous=NORMAL")
            with self._db:
                self._db.executescript(SCHEMA)
        except Timeout:
            raise RunError(
                f"{folder}: another service keeps its state there; give this one its own with --state"
            ) from None
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"{folder}: cannot keep the service's state there ({error})") from None

    def close(self) -> None:
        self._db.close()
        self._lock.release()

    def spent(self) -> dict[str, Price]:
        """What every client has spent."""
        rows = self._db.execute("SELECT owner, candidates, image_queries FROM spent").fetchall()
        return {owner: Price(candidates, queries) for owner, candidates, queries in rows}

    def stored_bytes(self) -> dict[str, int]:
        """What every client keeps here."""
        found: dict[str, int] = {}
        for table, size in (
            ("answers", "coalesce(length(content), 0)"),
            ("images", "length(feature)"),
            ("sets", "length(digests)"),
            ("prompts", "length(card) + length(contexts)"),
        ):
            for owner, total in self._db.execute(f"SELECT owner, sum({size}) FROM {table} GROUP BY owner"):
                found[owner] = found.get(owner, 0) + total
        return found

    def find(self, owner: str, key: str) -> StoredAnswer | None:
        """The answer that was given under this idempotency key."""
        query = "SELECT question, content, media FROM answers WHERE owner = ? AND key = ?"
        row = self._db.execute(query, (owner, key)).fetchone()
        return None if row is None else StoredAnswer(*row)

    def record(self, owner: str, price: Price, key: str | None = None, answer: StoredAnswer | None = None) -> None:
        """Adds to what was spent, and keeps the answer, in one transaction."""
        with self._db:
            self._db.execute(
                "INSERT INTO spent VALUES (?, ?, ?) ON CONFLICT (owner) DO UPDATE SET "
                "candidates = candidates + excluded.candidates, image_queries = image_queries + excluded.image_queries",
                (owner, price.candidates, price.image_queries),
            )
            if key is not None and answer is not None:
                row = (answer.question, answer.content, answer.media, price.candidates, price.image_queries)
                self._db.execute("INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (owner, key, *row, time.time()))

    def acknowledge(self, owner: str, keys: Iterable[str]) -> int:
        """Drops the content of answers that have arrived; their keys stay, so that a late copy of a request is known.

        -> bytes that were freed.
        """
        freed = 0
        with self._db:
            for key in keys:
                query = "SELECT length(content) FROM answers WHERE owner = ? AND key = ? AND content IS NOT NULL"
                for (size,) in self._db.execute(query, (owner, key)).fetchall():
                    freed += size
                self._db.execute("UPDATE answers SET content = NULL WHERE owner = ? AND key = ?", (owner, key))
        return freed

    def expire(self, before: float) -> None:
        """Forgets answers from before this time."""
        with self._db:
            self._db.execute("DELETE FROM answers WHERE time < ?", (before,))

    def missing(self, owner: str, encoder: str, digests: Sequence[str]) -> list[str]:
        """Those of these images that are not here, each once."""
        known: set[str] = set()
        for batch in in_batches(len(digests), 500):
            marks = ",".join("?" * len(batch))
            query = f"SELECT digest FROM images WHERE owner = ? AND encoder = ? AND digest IN ({marks})"
            rows = self._db.execute(query, (owner, encoder, *(bytes.fromhex(digests[i]) for i in batch))).fetchall()
            known |= {digest.hex() for (digest,) in rows}
        return [digest for digest in dict.fromkeys(digests) if digest not in known]

    def put_images(self, owner: str, encoder: str, rows: Iterable[tuple[str, Floats]]) -> None:
        """Keeps features by image."""
        entries = [(owner, encoder, bytes.fromhex(digest), feature.tobytes()) for digest, feature in rows]
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?)", entries)

    def put_set(self, owner: str, name: str, digests: Sequence[str]) -> None:
        """Keeps which images are in a set, in order."""
        joined = b"".join(bytes.fromhex(digest) for digest in digests)
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO sets VALUES (?, ?, ?)", (owner, bytes.fromhex(name), joined))

    def features(self, owner: str, encoder: str, name: str) -> Floats | None:
        """The features of a set (n, E); None if the client has no such set, or images of it are gone."""
        query = "SELECT digests FROM sets WHERE owner = ? AND id = ?"
        row = self._db.execute(query, (owner, bytes.fromhex(name))).fetchone()
        if row is None:
            return None
        found: list[Floats] = []
        query = "SELECT feature FROM images WHERE owner = ? AND encoder = ? AND digest = ?"
        for start in range(0, len(row[0]), 32):
            image = self._db.execute(query, (owner, encoder, row[0][start : start + 32])).fetchone()
            if image is None:
                return None
            found.append(np.frombuffer(image[0], dtype=np.float32))
        return np.stack(found)

    def delete_set(self, owner: str, name: str) -> bool:
        """Deletes a set, and the features of images that no other set of the client holds."""
        with self._db:
            row = self._db.execute(
                "DELETE FROM sets WHERE owner = ? AND id = ? RETURNING digests", (owner, bytes.fromhex(name))
            ).fetchall()
            if not row:
                return False
            kept: set[bytes] = set()
            for (joined,) in self._db.execute("SELECT digests FROM sets WHERE owner = ?", (owner,)):
                kept |= {joined[i : i + 32] for i in range(0, len(joined), 32)}
            gone = {row[0][0][i : i + 32] for i in range(0, len(row[0][0]), 32)} - kept
            self._db.executemany("DELETE FROM images WHERE owner = ? AND digest = ?", [(owner, d) for d in gone])
            return True

    def put_prompt(self, owner: str, name: str, prompt: StoredPrompt) -> None:
        """Deploys a prompt, in place of an earlier one of this name."""
        with self._db:
            row = (owner, name, prompt.card, prompt.contexts)
            self._db.execute("INSERT OR REPLACE INTO prompts VALUES (?, ?, ?, ?)", row)

    def prompt(self, owner: str, name: str) -> StoredPrompt | None:
        """A deployed prompt of this client."""
        query = "SELECT card, contexts FROM prompts WHERE owner = ? AND name = ?"
        row = self._db.execute(query, (owner, name)).fetchone()
        return None if row is None else StoredPrompt(*row)

    def prompts(self, owner: str) -> dict[str, str]:
        """The cards of this client's prompts, by name."""
        query = "SELECT name, card FROM prompts WHERE owner = ? ORDER BY name"
        return dict(self._db.execute(query, (owner,)).fetchall())

    def delete_prompt(self, owner: str, name: str) -> bool:
        """Withdraws a prompt; False if there is none."""
        with self._db:
            done = self._db.execute("DELETE FROM prompts WHERE owner = ? AND name = ?", (owner, name))
        return done.rowcount > 0
