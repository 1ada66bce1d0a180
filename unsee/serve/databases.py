"""Where the service's state is kept: an SQLite file for one server, or PostgreSQL for several. One schema for both.

Statements are written once, with `?` for their values. A transaction that has changed a row of `accounts` is alone with
that client until it ends, on both: SQLite has one writer at a time, PostgreSQL locks the row.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from unsee.errors import MissingExtra, RunError
from unsee.serve.limits import Refused

LOCKED = 5.0  # seconds to wait for a service that is just ending
REACH_SECONDS = 5  # seconds to reach PostgreSQL
DatabaseRow = tuple[Any, ...]
SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (owner TEXT PRIMARY KEY, candidates BIGINT NOT NULL DEFAULT 0,
    image_queries BIGINT NOT NULL DEFAULT 0, tokens BIGINT NOT NULL DEFAULT 0, stored BIGINT NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS servers (id TEXT PRIMARY KEY, seen DOUBLE PRECISION NOT NULL);
CREATE TABLE IF NOT EXISTS reservations (id TEXT PRIMARY KEY, server TEXT, owner TEXT, key TEXT, candidates BIGINT,
    image_queries BIGINT, tokens BIGINT, bytes BIGINT);
CREATE INDEX IF NOT EXISTS reservations_by_owner ON reservations (owner, key);
CREATE TABLE IF NOT EXISTS answers (owner TEXT, key TEXT, question BLOB, content BLOB, media TEXT, candidates BIGINT,
    image_queries BIGINT, time DOUBLE PRECISION, PRIMARY KEY (owner, key));
CREATE INDEX IF NOT EXISTS answers_by_time ON answers (time);
CREATE TABLE IF NOT EXISTS features (owner TEXT, digest BLOB, encoder TEXT, feature BLOB, uses BIGINT NOT NULL,
    time DOUBLE PRECISION, PRIMARY KEY (owner, digest, encoder));
CREATE INDEX IF NOT EXISTS unused_features ON features (time) WHERE uses = 0;
CREATE TABLE IF NOT EXISTS sets (owner TEXT, id BLOB, digests BLOB, PRIMARY KEY (owner, id));
CREATE TABLE IF NOT EXISTS held (id TEXT, part BIGINT, owner TEXT, digests BLOB, PRIMARY KEY (id, part));
CREATE TABLE IF NOT EXISTS prompts (owner TEXT, name TEXT, card TEXT, contexts BLOB, PRIMARY KEY (owner, name));
CREATE TABLE IF NOT EXISTS suspects (question BLOB PRIMARY KEY, deaths BIGINT NOT NULL, time DOUBLE PRECISION)
"""


def make_private(folder: Path) -> None:
    """Makes the folder, for its owner alone; what an earlier version left there is closed to others too."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder, *folder.glob("serve.*")):
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o700 if path == folder else 0o600)


class Database(Protocol):
    """A few tables, used from one thread at a time."""

    @property
    def shared(self) -> bool:
        """Whether other servers use it too."""

    @property
    def folder(self) -> Path | None:
        """Whose disk must have room, if that is known."""

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[DatabaseRow]:
        """The rows of one statement."""

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """One statement for each row of values."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is done within, or nothing of it."""
        yield

    def tidy(self) -> None:
        """Does what may take long and need not be waited for; in any thread."""

    def close(self) -> None: ...


class SqliteDatabase:
    """One file with a write-ahead log, for one server."""

    shared = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            make_private(folder)
            # Two services would each count what the other spends. The system lets go of it when a process is killed.
            self._lock = FileLock(folder / "serve.lock", thread_local=False, mode=0o600)
            self._lock.acquire(timeout=LOCKED)
            os.close(os.open(folder / "serve.sqlite", os.O_CREAT | os.O_RDWR, 0o600))  # SQLite's other files follow it
            self._db = sqlite3.connect(
                folder / "serve.sqlite", timeout=30, check_same_thread=False, isolation_level=None
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            # Handed to the system before an answer is sent: a killed process loses nothing. Waiting for the disk as
            # well would help against a power cut only, and takes milliseconds for every answer.
            self._db.execute("PRAGMA synchronous=NORMAL")
            # The log is written back beside all else: a client with large answers would hold up others at each commit.
            self._db.execute("PRAGMA wal_autocheckpoint=0")
            self._back = sqlite3.connect(folder / "serve.sqlite", timeout=1, check_same_thread=False)
            self._tidying = threading.Lock()
            with self.transaction():
                for statement in SCHEMA.split(";"):
                    self._db.execute(statement)
                self._take_over()
        except Timeout:
            raise RunError(
                f"{folder}: another service keeps its state there; give this one its own with --state"
            ) from None
        except (OSError, sqlite3.Error) as error:
            raise RunError(f"{folder}: cannot keep the service's state there ({error})") from None

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[DatabaseRow]:
        return self._db.execute(statement, values).fetchall()

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._db.executemany(statement, rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def tidy(self) -> None:
        with self._tidying, suppress(sqlite3.Error):  # closed, or busy: there is a next time
            for _ in range(2):  # the second is quick, and what it finds complete starts the log anew
                self._back.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        try:
            with self._tidying:
                self._back.close()
            self._db.close()
        finally:
            self._lock.release()

    def _take_over(self) -> None:
        """Keeps what clients have spent in a file of the first version; images are uploaded again."""
        if self.run("SELECT 1 FROM sqlite_master WHERE name = 'spent'"):
            self.run("INSERT INTO accounts SELECT owner, candidates, image_queries, 0, 0 FROM spent")
            self.run(
                "UPDATE accounts SET stored = (SELECT coalesce(sum(length(content)), 0) FROM answers AS a "
                "WHERE a.owner = accounts.owner) + (SELECT coalesce(sum(length(card) + length(contexts)), 0) "
                "FROM prompts AS p WHERE p.owner = accounts.owner)"
            )
            for statement in ("DELETE FROM sets", "DROP TABLE images", "DROP TABLE spent"):
                self.run(statement)


class PostgresDatabase:
    """One database for several servers. A lost connection is opened again by the next statement."""

    shared, folder = True, None

    def __init__(self, address: str) -> None:
        try:
            self._psycopg = import_module("psycopg")
        except ImportError:
            raise MissingExtra("psycopg", "postgresql") from None
        self._address = address
        self._db: Any = None
        try:
            with self.transaction():
                self.run("SELECT pg_advisory_xact_lock(27)")  # two servers that start at once would both make tables
                own = SCHEMA.replace("BLOB", "BYTEA").replace("key TEXT", 'key TEXT COLLATE "C"')  # in order of bytes
                for statement in own.split(";"):
                    self.run(statement)
        except (self._psycopg.Error, Refused) as error:
            reason = str(error.__cause__ or error).strip()
            raise RunError(f"cannot keep the service's state in PostgreSQL: {reason}") from None

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[DatabaseRow]:
        with self._connected() as db:
            done = db.execute(statement.replace("?", "%s"), values)
            return done.fetchall() if done.description is not None else []

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._connected() as db, db.cursor() as cursor:
            cursor.executemany(statement.replace("?", "%s"), rows)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._connected() as db, db.transaction():
            yield

    def tidy(self) -> None:
        return

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """The connection; 503 if it fails, and whoever asks again under the same key is not charged twice."""
        try:
            if self._db is None or self._db.closed:
                # Not prepared: a plan for any values would look at all images of a client for each list of hashes.
                self._db = self._psycopg.connect(
                    self._address, autocommit=True, connect_timeout=REACH_SECONDS, prepare_threshold=None
                )
            yield self._db
        except self._psycopg.OperationalError as error:
            if self._db is not None:
                self._db.close()
            raise Refused(503, "state", "the service cannot reach its database; try again", retry_after=1) from error


def open_database(state: Path | str) -> Database:
    """The database at this address: `postgresql://…`, or a folder."""
    return PostgresDatabase(str(state)) if is_database(str(state)) else SqliteDatabase(Path(state))


def is_database(state: str) -> bool:
    """Whether this is the address of a PostgreSQL database, not a folder."""
    return state.startswith(("postgresql://", "postgres://"))
