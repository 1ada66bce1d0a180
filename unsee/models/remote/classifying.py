"""Images that a service classifies one by one: all that a key of role `classify` has."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from unsee.data.images import Images
from unsee.errors import ModelError
from unsee.models.remote.connection import Connection
from unsee.types import Floats

AT_THE_SAME_TIME = 4  # requests in flight
Rows = list[tuple[str, float | None]]  # labels with their scores, highest first
T = TypeVar("T")


def classify_file(
    connection: Connection,
    content: bytes,
    labels: Sequence[str] | None = None,
    template: str | None = None,
    prompt: str | None = None,
) -> Rows | None:
    """What the service says of an image file; None if it refuses the labels, the template or the prompt."""
    given = {"candidate_labels": labels, "hypothesis_template": template, "prompt": prompt}
    parameters = {name: value for name, value in given.items() if value is not None}
    body = {"inputs": base64.b64encode(content).decode(), "parameters": parameters}
    sent = json.dumps(body).encode()
    reply = connection.send("POST", "/v1/classify", sent, "application/json", accept=(403, 404, 422))
    if reply.status >= 400:
        return None
    try:
        return [(str(row["label"]), None if row["score"] is None else float(row["score"])) for row in reply.json()]
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"{connection.url} answered with something else than labels") from None


def ask_each(rows: int, ask: Callable[[int], T]) -> list[T]:
    """The answers for each row, a few asked at the same time."""
    with ThreadPoolExecutor(AT_THE_SAME_TIME) as pool:
        return list(pool.map(ask, range(rows)))


class ServedBound:
    """Images and class names of a service whose key may classify and no more."""

    def __init__(
        self, connection: Connection, files: Callable[[int], bytes], images: Images, class_names: Sequence[str]
    ) -> None:
        self._connection = connection
        self._files = files
        self._count = len(images)
        self._names = tuple(class_names)

    def confidences(self, contexts: Floats) -> Floats:
        """A key of this role brings no contexts."""
        raise ModelError(f"{self._connection.url}: this key may classify, but not try prompts of its own")

    def served(self) -> Floats:
        """What this key sees of the images. -> (n, C); confidences that are withheld are spread evenly."""
        found = ask_each(self._count, lambda row: classify_file(self._connection, self._files(row), self._names))
        return np.stack([self._fill(rows) for rows in found])

    def _fill(self, rows: Rows | None) -> Floats:
        if rows is None or not {label for label, _ in rows} <= set(self._names):
            raise ModelError(f"{self._connection.url} does not classify into these classes: {', '.join(self._names)}")
        known = {label: 0.9 if score is None else score for label, score in rows}
        rest = max(0.0, 1 - sum(known.values())) / max(1, len(self._names) - len(known))
        return np.array([known.get(name, rest) for name in self._names], dtype=np.float32)
