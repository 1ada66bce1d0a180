"""What one client can do against the service, as bytes made before: an attacker must not use up the machine itself.

Each attack runs in a process of its own, over plain sockets, until it is killed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import numpy as np
from PIL import Image

from unsee.models.remote.wire import pack, set_digest

NAMES = [f"thing {i}" for i in range(2000)]
PATIENCE = 2.0  # seconds that an attacker waits for an answer before it leaves and asks anew
PIECE = 2**16


@dataclass(frozen=True)
class Target:
    """Whom to attack: the service's port, the attacker's key, a small and a large set of its images, and a photo."""

    port: int
    key: str
    width: int
    fingerprint: str
    few: str
    many: Sequence[str]  # hashes of 8,000 images
    photo: bytes

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        """A whole request."""
        given = {"host": "x", "authorization": f"Bearer {self.key}", **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
        length = "" if "content_length" in headers else f"content-length: {len(body)}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{lines}{length}\r\n".encode() + body

    def confidences(self, b: int, names: Sequence[str], images: str, seed: int, **headers: str) -> bytes:
        contexts = np.random.default_rng(seed).normal(0, 0.02, (b, 4, self.width)).astype(np.float32)
        body = pack({"contexts": contexts}, {"images": images, "class_names": json.dumps(names)})
        return self.request("POST", "/v1/confidences", body, **headers)

    def classify(self, content: bytes, labels: Sequence[str], **headers: str) -> bytes:
        asked = {"inputs": base64.b64encode(content).decode(), "parameters": {"candidate_labels": list(labels)}}
        return self.request("POST", "/v1/classify", json.dumps(asked).encode(), **headers)


def much_work(to: Target) -> list[bytes]:
    """As many tokens as one request may have."""
    return [to.confidences(40, NAMES, to.few, seed) for seed in range(4)]


def too_much_work(to: Target) -> list[bytes]:
    """More than that."""
    return [to.confidences(256, NAMES, to.few, 0)]


def many_candidates(to: Target) -> list[bytes]:
    return [to.confidences(256, NAMES[:10], to.few, seed) for seed in range(8)]


def large_answers(to: Target) -> list[bytes]:
    """Answers of 16 MB."""
    return [to.confidences(50, NAMES[:10], set_digest(to.many), 0)]


def kept_answers(to: Target) -> list[bytes]:
    """Answers of 3 MB that are to be kept and are never acknowledged."""
    asked = to.confidences(10, NAMES[:10], set_digest(to.many), 0, idempotency_key="KEY")
    return [asked.replace(b"idempotency-key: KEY", b"idempotency-key: %d" % i) for i in range(400)]


def many_labels(to: Target) -> list[bytes]:
    """Labels that were never asked for."""
    return [to.classify(to.photo, [f"{name} {seed}" for name in NAMES]) for seed in range(400)]


def large_images(to: Target) -> list[bytes]:
    """Photos of five million pixels of noise."""
    pixels = np.random.default_rng(0).integers(0, 255, (2200, 2200, 3), dtype=np.uint8)
    return [to.classify(png(pixels), ["cat", "dog"])]


def packed_images(to: Target) -> list[bytes]:
    """Small files of 25 million pixels."""
    return [to.classify(png(np.zeros((5000, 5000, 3), np.uint8), 9), ["cat", "dog"])]


def many_images(to: Target) -> list[bytes]:
    """Uploads of 500 images that are all new."""

    def upload(seed: int) -> bytes:
        draw = np.random.default_rng(seed)
        files = [png(draw.integers(0, 255, (32, 32, 3), dtype=np.uint8)) for _ in range(500)]
        head = b'--b\r\ncontent-disposition: form-data; name="images"; filename="x"\r\n\r\n'
        body = b"".join(head + file + b"\r\n" for file in files) + b"--b--\r\n"
        return to.request("POST", "/v1/images?set=no", body, content_type="multipart/form-data; boundary=b")

    return [upload(seed) for seed in range(20)]


def many_requests(to: Target) -> list[bytes]:
    return [to.classify(to.photo, ["cat", "dog"])]


def sets_made_and_deleted(to: Target) -> list[bytes]:
    """Sets of 2,000 of 8,000 images; deleting one took 42 s."""
    found = []
    for start in range(0, 8000, 2000):
        some = to.many[start : start + 2000]
        found.append(to.request("POST", "/v1/images", json.dumps({"images": some}).encode()))
        found.append(to.request("DELETE", f"/v1/images/{set_digest(some)}"))
    return found


def sets_looked_up(to: Target) -> list[bytes]:
    """Lists of 20,000 images, none of which is stored."""
    listed = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(20_000)]
    return [to.request("POST", "/v1/images", json.dumps({"images": listed}).encode())]


def tiny_arrays(to: Target) -> list[bytes]:
    """A message of 90,000 arrays; reading one took 7 s."""
    header = {f"a{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(90_000)}
    text = json.dumps(header).encode()[: 4 * 2**20]
    return [to.request("POST", "/v1/confidences", len(text).to_bytes(8, "little") + text)]


def long_lists(to: Target) -> list[bytes]:
    """JSON of as many values as are read, and of far more."""
    deep = b'{"inputs": "", "parameters": ' + b"[" * 40_000 + b"]" * 40_000 + b"}"
    many = b'{"inputs": "", "parameters": {"candidate_labels": [' + b'"a",' * 49_000 + b'"a"]}}'
    more = b'{"images": [' + b"1," * 4_000_000 + b"1]}"
    return [
        to.request("POST", path, body)
        for path, body in (("/v1/classify", deep), ("/v1/classify", many), ("/v1/images", more))
    ]


def prompts_deployed(to: Target) -> list[bytes]:
    """Prompts of 2,000 names, each deployed and asked about."""
    found = []
    for seed in range(50):
        names = [f"{name} {seed}" for name in NAMES]
        card = {"prompt": "", "contexts": 4, "width": to.width, "class_names": names, "forget": names[:1]}
        card |= {"model": "m", "model_fingerprint": to.fingerprint, "template": "a {}.", "sha256": ""}
        contexts = np.full((4, to.width), 0.01, np.float32)
        body = pack({"contexts": contexts}, {"card": json.dumps(card)})
        found.append(to.request("PUT", "/v1/prompts/p", body))
        asked = {"inputs": base64.b64encode(to.photo).decode(), "parameters": {"prompt": "p"}}
        found.append(to.request("POST", "/v1/classify", json.dumps(asked).encode()))
    return found


def wrong_keys(to: Target) -> list[bytes]:
    """Requests without a key, and for what needs none."""
    asked = to.classify(to.photo, ["cat"])
    return [asked.replace(b"Bearer", b"Bearer x"), to.request("GET", "/openapi.json"), to.request("GET", "/readyz")]


ASKED: dict[str, tuple[Callable[[Target], list[bytes]], int]] = {  # name -> what is sent, on how many connections
    "much work": (much_work, 8),
    "too much work": (too_much_work, 8),
    "many candidates": (many_candidates, 8),
    "large answers": (large_answers, 8),
    "kept answers": (kept_answers, 8),
    "many labels": (many_labels, 8),
    "large images": (large_images, 8),
    "packed images": (packed_images, 8),
    "many images": (many_images, 4),
    "many requests": (many_requests, 64),
    "sets made and deleted": (sets_made_and_deleted, 4),
    "sets looked up": (sets_looked_up, 8),
    "tiny arrays": (tiny_arrays, 8),
    "long lists": (long_lists, 8),
    "prompts deployed": (prompts_deployed, 4),
    "wrong keys": (wrong_keys, 8),
}
HELD = ("idle connections", "stalled bodies", "unread answers")
ATTACKS = (*ASKED, *HELD)
FREE = ("too much work", "large images", "sets made and deleted", "sets looked up", "tiny arrays", "long lists")
WORK = tuple(name for name in ATTACKS if name not in (*FREE, "wrong keys", *HELD[:2]))  # the model works, for money


def attack(name: str, to: Target, begun: Event) -> None:
    """Does one thing over and over; ended by a kill. Says when all is made ready and the first request leaves."""
    if name in ASKED:
        make, connections = ASKED[name]
        turns = itertools.cycle(make(to))
        jobs = [lambda: _ask(to.port, turns)] * connections
    elif name == "idle connections":
        jobs = [lambda: _hold(to.port, b"", 300)] * 2
    elif name == "stalled bodies":
        jobs = [lambda: _hold(to.port, to.request("POST", "/v1/images", b"x" * 999, content_length="9999999"), 60)]
    else:
        asked = large_answers(to)[0]
        jobs = [lambda: _hold(to.port, asked, 12, 4096)]
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    begun.set()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _ask(port: int, turns: itertools.cycle[bytes]) -> None:
    """Sends one request after the other, and leaves when an answer takes too long."""
    while True:
        with suppress(OSError), socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE)  # not megabytes, for what may be refused
            raw.settimeout(PATIENCE)
            raw.connect(("127.0.0.1", port))
            while True:
                raw.sendall(next(turns))
                if not read_answer(raw):
                    break


def read_answer(raw: socket.socket) -> bool:
    """Reads one answer; -> whether another request may follow."""
    found = b""
    while b"\r\n\r\n" not in found:
        piece = raw.recv(PIECE)
        if not piece:
            return False
        found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    lowered = head.lower()
    left = int(lowered.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0) - len(body)
    while left > 0:
        left -= len(raw.recv(min(left, PIECE)) or b" " * left)
    if b" 429 " in head[:20]:
        time.sleep(0.1)  # to send at once what is refused would cost this machine more than the service
    return b"connection: close" not in lowered


def _hold(port: int, start: bytes, count: int, room: int = 0) -> None:
    """Keeps this many connections open: each sends `start`, then one byte a second. Lost ones are opened again."""
    held: list[socket.socket] = []
    said = time.monotonic()
    while True:
        with suppress(OSError):
            if len(held) < count:
                raw = socket.socket()
                if room:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
                raw.settimeout(PATIENCE)
                held.append(raw)
                raw.connect(("127.0.0.1", port))
                raw.sendall(start)
                raw.setblocking(False)
        time.sleep(0.002 if len(held) < count else 0.05)
        if time.monotonic() - said > 1:
            said = time.monotonic()
            held = [raw for raw in held if _lives(raw, b"" if room else start[:1])]


def _lives(raw: socket.socket, more: bytes) -> bool:
    """Whether the other side still holds this connection."""
    try:
        raw.send(more)
        if not more and raw.recv(1, socket.MSG_PEEK) == b"":
            raise ConnectionError
    except BlockingIOError:
        return True
    except OSError:
        raw.close()
        return False
    return True


def png(pixels: np.ndarray, level: int = 1) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=level)
    return out.getvalue()
