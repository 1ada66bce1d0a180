"""Image features: computed once, then read from a cache on disk.

Images never change during tuning, so neither do their embeddings. Threads decode the next images while
the model runs. The cache is one SQLite file, keyed by image content and model: several processes can use
it at once, its size is limited, and damaged entries (or a damaged file) are computed again.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unsee.data.images import DECODING_THREADS, Images, in_batches
from unsee.types import Floats

Progress = Callable[[int, int], None]  # done, total
LIMIT = 2 * 2**30  # bytes of features kept on disk


class ImageEncoder(Protocol):
    """Turns images into embeddings; the same image always gives the same row."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def batch(self) -> int: ...
    def prepare(self, image: Any) -> Any:
        """Prepares one PIL image; called in threads."""

    def encode(self, prepared: Sequence[Any]) -> Floats:
        """Embeddings of length 1. -> (n, E)."""


@dataclass(frozen=True, eq=False)
class Encoded:
    """Features, and how many were computed; the others were in the cache, or are copies of images in the set."""

    features: Floats  # (n, E)
    computed: int
    cached: int


def encode_images(
    images: Images, encoder: ImageEncoder, cache: FeatureCache | None = None, progress: Progress | None = None
) -> Encoded:
    """Features of all images; those in the cache are not computed again."""
    found: dict[int, Floats] = {}
    keys: list[bytes] = []
    if cache is not None:
        with ThreadPoolExecutor(DECODING_THREADS) as pool:
            keys = list(pool.map(images.digest, range(len(images))))
        found = cache.get(encoder.fingerprint, keys)
    missing = [row for row in range(len(images)) if row not in found]
    copies: dict[int, int] = {}  # rows of images that came before in this set, the same file again
    if cache is not None:
        first: dict[bytes, int] = {}
        copies = {row: first[keys[row]] for row in missing if first.setdefault(keys[row], row) != row}
        missing = [row for row in missing if row not in copies]
    report = progress or (cache.progress if cache is not None else None)
    done = 0
    for rows, features in _forward(images, encoder, missing):
        for row, feature in zip(rows, features, strict=True):
            found[row] = feature
        if cache is not None:
            cache.put(encoder.fingerprint, [(keys[row], found[row]) for row in rows])
        done += len(rows)
        if report is not None:
            report(done, len(missing))
    found |= {row: found[same] for row, same in copies.items()}
    if cache is not None and missing:
        cache.trim()
    stacked = np.stack([found[row] for row in range(len(images))]) if found else np.zeros((0, 0), np.float32)
    return Encoded(stacked.astype(np.float32, copy=False), len(missing), len(images) - len(missing))


def _forward(images: Images, encoder: ImageEncoder, rows: list[int]) -> Iterator[tuple[list[int], Floats]]:
    """Features batch by batch, while the next two batches are decoded."""

    def one(row: int) -> Any:
        return encoder.prepare(images.read(row))

    def ready(batch: range) -> list[Future[Any]]:
        return [pool.submit(one, rows[i]) for i in batch]

    with ThreadPoolExecutor(DECODING_THREADS) as pool:
        waiting: list[tuple[range, list[Future[Any]]]] = []
        try:
            for batch in in_batches(len(rows), encoder.batch):
                waiting.append((batch, ready(batch)))
                if len(waiting) > 2:
                    now, futures = waiting.pop(0)
                    yield [rows[i] for i in now], encoder.encode([f.result() for f in futures])
            while waiting:
                now, futures = waiting.pop(0)
                yield [rows[i] for i in now], encoder.encode([f.result() for f in futures])
        finally:
            for _, futures in waiting:
                for future in futures:
                    future.cancel()


class FeatureCache:
    """Features on disk, by encoder fingerprint and image hash."""

    def __init__(self, folder: str | Path, limit: int = LIMIT, progress: Progress | None = None) -> None:
        self.path = Path(folder) / "features.sqlite"
        self.limit = limit
        self.progress = progress

    def get(self, model: str, keys: Sequence[bytes]) -> dict[int, Floats]:
        """The undamaged features in the cache, by their index in keys."""
        found: dict[int, Floats] = {}

        def read(db: sqlite3.Connection) -> None:
            for batch in in_batches(len(keys), 500):
                wanted = {keys[i]: [j for j in batch if keys[j] == keys[i]] for i in batch}
                marks = ",".join("?" * len(wanted))
                query = f"SELECT key, crc, data FROM features WHERE model = ? AND key IN ({marks})"
                for key, crc, data in db.execute(query, [model, *wanted]).fetchall():
                    if isinstance(data, bytes) and zlib.crc32(data) == crc and len(data) % 4 == 0:
                        for row in wanted[key]:
                            found[row] = np.frombuffer(data, dtype=np.float32)
                db.execute(
                    f"UPDATE features SET used = ? WHERE model = ? AND key IN ({marks})", [time.time(), model, *wanted]
                )

        self._with(read)
        return found

    def put(self, model: str, rows: Sequence[tuple[bytes, Floats]]) -> None:
        """Adds features to the cache."""
        now = time.time()
        entries = []
        for key, feature in rows:
            data = np.ascontiguousarray(feature, dtype=np.float32).tobytes()
            entries.append((model, key, zlib.crc32(data), now, len(data), data))

        def write(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?, ?, ?, ?)", entries)

        self._with(write)

    def trim(self) -> None:
        """If the cache is above its limit, deletes the least recently used entries down to 80 % of it."""

        def drop(db: sqlite3.Connection) -> None:
            (size,) = db.execute("SELECT coalesce(sum(size), 0) FROM features").fetchone()
            if size <= self.limit:
                return
            excess = size - int(0.8 * self.limit)
            for rowid, bytes_ in db.execute("SELECT rowid, size FROM features ORDER BY used").fetchall():
                db.execute("DELETE FROM features WHERE rowid = ?", [rowid])
                excess -= bytes_
                if excess <= 0:
                    break

        self._with(drop)

    def _with(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Does the work in one transaction. A damaged file is deleted; without a usable folder nothing is cached."""
        for _ in range(2):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with closing(sqlite3.connect(self.path, timeout=60)) as db, db:
                    db.execute("PRAGMA journal_mode=WAL")
                    db.execute("PRAGMA synchronous=OFF")
                    db.execute(
                        "CREATE TABLE IF NOT EXISTS features (model TEXT, key BLOB, crc INTEGER, used REAL, "
                        "size INTEGER, data BLOB, PRIMARY KEY (model, key))"
                    )
                    work(db)
                return
            except sqlite3.OperationalError:
                return  # locked for a minute, or read-only: work without a cache
            except sqlite3.DatabaseError:
                self._delete()
            except OSError:
                return

    def _delete(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
