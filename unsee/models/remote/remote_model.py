"""A model behind `unsee serve`: the same border as a local one, asked over HTTP.

Images are uploaded once and addressed by content. A population goes in one request, or in a few at the same time where
it is too large for one. What leaves the server are confidences, as logs where it tells all of them, so a run gets the
same bits as on a local model; where it tells the top classes only, the rest of the mass is spread over the others.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from unsee.data.images import Anything, HoldsFiles, Images, as_images, as_rgb
from unsee.errors import ModelError, UnseeError
from unsee.models.black_box import safe_log
from unsee.models.remote.classifying import ServedBound
from unsee.models.remote.connection import PATIENCE, Connection
from unsee.models.remote.published_card import UNKNOWN_STD, read_card
from unsee.models.remote.wire import (
    CONFIDENCES,
    CONTEXTS,
    LOGS,
    MEDIA,
    NEXT_TURN,
    TOP,
    Message,
    WireError,
    image_digest,
    pack,
    set_digest,
    unpack,
)
from unsee.types import Floats, Ints

AT_ONCE = 4  # requests in flight
TURNS = 100  # that a question is asked under until its key is new; the server says which comes next
UPLOAD_BYTES, UPLOAD_FILES = 16 * 2**20, 256  # of one upload
MOST = 1e-3  # log of a confidence: 0, but for rounding
SURE = 0.9  # confidence that a bare label stands for


@dataclass
class Spent:
    """What the server was asked for: what its own ledger must show."""

    candidates: int = 0
    image_queries: int = 0


class RemoteModel:
    """A model that `unsee serve` answers for."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        say: Callable[[str], None] | None = None,
        patience: float = PATIENCE,
        insecure: bool = False,
    ) -> None:
        self.connection = Connection(url, key, say, patience, insecure)
        self.spent = Spent()
        try:
            published = read_card(self.connection.get("/v1/card").content, url)
        except UnseeError:
            self.connection.close()
            raise
        self.card, self.answers, self.limits = published.card(self.connection.url), published.answers, published.limits
        self.connection.model, self.role = self.card.fingerprint, published.role
        if published.token_mean is None and self.role != "classify" and say is not None:
            say(f"{url} withholds the token statistics: contexts start at 0, with a spread of {UNKNOWN_STD}")
        if self.answers == "label" and say is not None:
            say(f"{url} tells the top label only: losses then count labels, not how sure the model is")
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"RemoteModel({self.card.summary}, at {self.card.address})"

    def bind(self, images: Anything, class_names: Sequence[str]) -> RemoteBound | ServedBound:
        """Uploads the images that the server does not have yet; a key that may only classify sends them one by one."""
        given = as_images(images)
        if self.role == "classify":
            return ServedBound(self.connection, lambda row: image_file(given, row), given, class_names)
        return RemoteBound(self, given, class_names)

    def find_prompt(self, forget: Sequence[str]) -> str | None:
        """The name of a prompt of this key that forgets these classes."""
        found = self.connection.get("/v1/prompts").json()
        return next((name for name, card in found.items() if list(card["forget"]) == list(forget)), None)

    def usage(self) -> dict[str, dict[str, float | None]]:
        """What the server says this key has spent, and its limits."""
        found: dict[str, dict[str, float | None]] = self.connection.get("/v1/usage").json()
        return found

    def deploy(self, name: str, contexts: Floats, card: str) -> None:
        """Deploys a prompt on the server under this name, for its /v1/classify; card is the text of prompt.json."""
        body = pack({CONTEXTS: np.asarray(contexts, dtype=np.float32)}, {"card": card})
        self.connection.send("PUT", f"/v1/prompts/{name}", body, MEDIA)

    def withdraw(self, name: str) -> None:
        """Withdraws a deployed prompt."""
        self.connection.send("DELETE", f"/v1/prompts/{name}")

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Tells the server that all answers have arrived."""
        self.connection.close()

    def ask(self, question: Message, candidates: int, images: int) -> Message:
        """The answer to one message; counted once, however often it had to be sent.

        The idempotency key comes from the content and the model. So a run that was killed with an answer on its way,
        and asks the same again when it is resumed, gets the answer it has paid for. Only a question whose answer has
        been acknowledged is new, under the next key.
        """
        identity = self.card.fingerprint.encode() + b"\0" + question.digest()
        name, body = hashlib.sha256(identity).hexdigest()[:40], pack(question.arrays, question.facts)
        names, turn = len(json.loads(question.facts["class_names"])), 0
        room = 8 * candidates * images * names  # a confidence and, where not all are told, a place for each name
        for _ in range(TURNS):
            key = f"{name}.{turn}"
            reply = self.connection.send("POST", "/v1/confidences", body, MEDIA, key, accept=(409,), array_bytes=room)
            if reply.status != 409:
                break
            turn = _next_turn(reply.json(), self.connection.url)
        try:
            message = unpack(reply.content)
        except WireError as error:
            raise ModelError(f"{self.connection.url} answered with something else: {error}") from None
        self.connection.check_model(message.facts.get("model"))
        with self._lock:
            self.spent.candidates += candidates
            self.spent.image_queries += candidates * images
        self.connection.arrived(key)
        return message


class RemoteBound:
    """A remote model bound to images and class names."""

    def __init__(self, model: RemoteModel, images: Images, class_names: Sequence[str]) -> None:
        self._model = model
        self._names = tuple(class_names)
        self._images, self._count = images, len(images)
        self._facts = {"class_names": json.dumps(self._names)}
        self.images_encoded, self.images_from_cache = 0, len(images)
        self._facts["images"] = self._upload(images)

    def apply_to(self, names: Sequence[str], template: str) -> RemoteBound:
        """The same images, contexts before these names only; the others stay under the template."""
        mixed = copy.copy(self)
        mixed._facts = {**self._facts, "applies_to": json.dumps(list(names)), "template": template}
        return mixed

    def select(self, rows: Ints) -> RemoteBound:
        """Some of the images, as a set of their own; the server has them already."""
        some = copy.copy(self)
        some._images, some._count = self._images.subset(rows), len(rows)
        some._facts = {**self._facts, "images": some._upload(some._images)}
        some.images_encoded = some.images_from_cache = 0
        return some

    def confidences(self, contexts: Floats) -> Floats:
        """(b, m, D) -> (b, n, C); rows sum to 1."""
        return np.exp(self.sent_logs(contexts))

    def sent_logs(self, contexts: Floats) -> Floats:
        """Logs of the confidences. (b, m, D) -> (b, n, C)."""
        given = np.ascontiguousarray(contexts, dtype=np.float32)
        parts = np.split(given, range(self._step, len(given), self._step))
        if len(parts) == 1:
            return self._logs(parts[0])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return np.concatenate(list(pool.map(self._logs, parts)))

    def zero_shot(self, template: str) -> Floats:
        """Confidences under a plain-text prompt. -> (n, C)."""
        facts = {name: self._facts[name] for name in ("class_names", "images")} | {"template": template}
        found: Floats = np.exp(self._ask(Message({}, facts | self._form), 1))[0]
        return found

    @property
    def _form(self) -> dict[str, str]:
        return {"form": "logs" if self._model.answers == "all" else "confidences"}

    @property
    def _step(self) -> int:
        """How many candidates one request takes, by the server's limits."""
        limits, size = self._model.limits, 4 * self._count * len(self._names)
        width = 4 * self._model.card.width * self._model.card.token_limit
        tokens = limits.get("tokens", 2**62) // (self._model.card.token_limit * len(self._names))
        most = (limits["candidates"], limits["answer_bytes"] // size, limits["body_bytes"] // (2 * width), tokens)
        return max(1, min(most))

    def _logs(self, contexts: Floats) -> Floats:
        return self._ask(Message({CONTEXTS: contexts}, self._facts | self._form), len(contexts))

    def _ask(self, question: Message, candidates: int) -> Floats:
        """Logs of confidences (b, n, C) from what the server tells."""
        shape = (candidates, self._count, len(self._names))
        message = self._model.ask(question, candidates, self._count)
        if self._model.answers == "all":
            found = message.arrays.get(LOGS)
        else:
            found = fill_up(message.arrays.get(TOP), message.arrays.get(CONFIDENCES), shape)
            found = None if found is None else safe_log(found)
        if found is None or found.shape != shape or found.dtype != np.float32:
            raise ModelError(f"{self._model.connection.url} answered in another shape than {shape}")
        if found.max() > MOST:
            raise ModelError(f"{self._model.connection.url} answered with numbers that are no confidences")
        return found

    def _upload(self, images: Images) -> str:
        """Makes sure that the server has the images; -> the hash of the set."""
        connection, limits = self._model.connection, self._model.limits
        if len(images) > limits["images"]:
            raise ModelError(f"{connection.url} takes {limits['images']} images at once, not {len(images)}")
        digests = [image_digest(image_file(images, row)) for row in range(len(images))]
        body = json.dumps({"images": digests}).encode()
        for _ in range(3):  # a server that lost its memory in between is given the images again
            reply = connection.send("POST", "/v1/images", body, "application/json", accept=(404,))
            if reply.status != 404:
                return set_digest(digests)
            rows = first_rows(digests, _missing(reply.json()))
            if not rows:
                break
            self.images_encoded, self.images_from_cache = len(rows), len(images) - len(rows)
            parts = _parts(images, rows, min(UPLOAD_FILES, limits["files"]))
            with ThreadPoolExecutor(AT_ONCE) as pool:
                while some := list(islice(parts, AT_ONCE)):  # a few at a time: not all files are in memory at once
                    list(pool.map(self._upload_files, some))
        raise ModelError(f"{connection.url} does not keep the images it is sent")

    def _upload_files(self, files: Sequence[tuple[str, bytes]]) -> None:
        parts = [("images", (name, content, "application/octet-stream")) for name, content in files]
        self._model.connection.send("POST", "/v1/images?set=no", files=parts)


def first_rows(digests: Sequence[str], missing: Collection[str]) -> list[int]:
    """Rows of the missing images, each image once; one pass, as there may be tens of thousands."""
    places: dict[str, int] = {}
    for row, digest in enumerate(digests):
        places.setdefault(digest, row)
    return [row for digest, row in places.items() if digest in missing]


def image_file(images: Images, row: int) -> bytes:
    """An image as a file: its own where there is one, otherwise its pixels as PNG, which loses nothing."""
    if isinstance(images.source, HoldsFiles):
        return images.source.content(int(images.index[row]))
    out = io.BytesIO()
    as_rgb(images.read(row)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def fill_up(top: Any, confidences: Any, shape: tuple[int, int, int]) -> Floats | None:
    """Confidences (b, n, C) from the top classes alone: what they leave is spread evenly over the others.

    None if the arrays do not fit. Without confidences, a label counts as 0.9 sure.
    """
    if top is None or top.dtype != np.int32 or top.ndim != 3 or top.shape[:2] != shape[:2]:
        return None
    if not 1 <= top.shape[2] <= shape[2] or top.min() < 0 or top.max() >= shape[2]:
        return None
    known = np.full(top.shape, SURE, dtype=np.float32) if confidences is None else confidences
    if known.shape != top.shape or known.dtype != np.float32:
        return None
    others = max(1, shape[2] - top.shape[2])
    rest = np.clip(1 - known.sum(axis=-1, keepdims=True), 0, 1) / others
    found: Floats = np.broadcast_to(rest, shape).astype(np.float32)
    np.put_along_axis(found, top.astype(np.int64), known, axis=-1)
    return found


def _next_turn(refusal: Any, url: str) -> int:
    """Under which turn to ask again what was asked and acknowledged before."""
    try:
        return int(refusal["error"][NEXT_TURN])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ModelError(f"{url} does not say under which key to ask again; is it a newer unsee serve?") from None


def _missing(found: Any) -> set[str]:
    """The hashes that a server says are missing."""
    listed = found.get("missing") if isinstance(found, dict) else None
    return {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()


def _parts(images: Images, rows: Sequence[int], limit: int) -> Iterator[list[tuple[str, bytes]]]:
    """Files to upload, in parts of a few megabytes."""
    part: list[tuple[str, bytes]] = []
    size = 0
    for row in rows:
        content = image_file(images, row)
        if part and (len(part) >= limit or size + len(content) > UPLOAD_BYTES):
            yield part
            part, size = [], 0
        part.append((str(row), content))
        size += len(content)
    if part:
        yield part
