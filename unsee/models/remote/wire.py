"""What crosses the wire between `unsee serve` and its client: arrays with a few facts, as safetensors.

A message is one safetensors file. Its arrays are float32 or int32, and its metadata holds the facts, all of them text:
which images, which class names, which template. Nothing in it is executed. Both sides read with `unpack`, which trusts
nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

MEDIA = "application/octet-stream"  # safetensors has no media type of its own
DTYPES = {"F32": np.float32, "I32": np.int32}
HEADER_BYTES = 4 * 2**20  # of the JSON at the start of a message
ARRAYS = 16  # of one message; reading 90,000 tiny ones takes seconds

# Headers of our own. Every answer repeats the request's id, so that an answer to another question is noticed.
REQUEST_ID = "x-request-id"
SHA256 = "unsee-sha256"  # of an answer's body
IDEMPOTENCY_KEY = "idempotency-key"
MODEL = "unsee-model"  # fingerprint of the model: in a request the one that is meant, in an answer the one that gave it
RULE = "unsee-rule"  # what is to be said of the rule that an answer left under
ACKNOWLEDGE = "unsee-acknowledge"  # idempotency keys whose answers have arrived, separated by commas
NEXT_TURN = "next_turn"  # in the error that a key NAME.TURN is used up: the turn to ask under

# Arrays of a message.
CONTEXTS = "contexts"  # (b, m, D)
CONFIDENCES = "confidences"  # (b, n, C), or (b, n, k) of the top k
LOGS = "log_confidences"  # (b, n, C): the logs of the confidences, exact where those round to 0
TOP = "top"  # (b, n, k): which classes, int32, highest first


class WireError(ValueError):
    """Bytes that are no message."""


@dataclass(frozen=True, eq=False)
class Message:
    """Named arrays, and facts about them."""

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, str]

    def digest(self) -> bytes:
        """Hash of the content. Not of the bytes sent: safetensors writes metadata in any order."""
        digest = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode())
        for name, array in sorted(self.arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


def pack(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, str] | None = None) -> bytes:
    """A message as bytes."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, dict(facts or {}))


def unpack(content: bytes) -> Message:
    """The message in these bytes; WireError says what is wrong with them."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(len(content) - 8, HEADER_BYTES):
        raise WireError("not a safetensors file: it is cut short, or its header is too large")
    if content.count(b'"dtype"', 8, 8 + size) > ARRAYS:
        raise WireError(f"holds more than the {ARRAYS} arrays allowed")
    try:
        header = json.loads(content[8 : 8 + size])
    except (ValueError, RecursionError):
        raise WireError("not a safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise WireError("not a safetensors file: its header is not a JSON object")
    facts = header.pop("__metadata__", {})
    if not isinstance(facts, dict) or not all(isinstance(value, str) for value in facts.values()):
        raise WireError("the metadata must be text by name")
    for name, entry in header.items():
        dtype = entry.get("dtype") if isinstance(entry, dict) else None
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise WireError(f"array {name[:40]!r} must be float32 or int32, not {str(dtype)[:20]}")
    try:
        arrays = load(content)
    except Exception as error:  # the reader's errors have no common class
        raise WireError(f"not a safetensors file: {str(error)[:120]}") from None
    return Message(arrays, facts)


def image_digest(content: bytes) -> str:
    """The address of one image file: its SHA-256."""
    return hashlib.sha256(content).hexdigest()


def set_digest(digests: Iterable[str]) -> str:
    """The address of a set of images: the SHA-256 of theirs, in order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
