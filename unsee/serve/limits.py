"""What the service refuses, and how it says so: every refusal is JSON that names the field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from unsee.data.class_names import in_prompt
from unsee.data.formats import lacking_for
from unsee.data.images import decode, pixel_count
from unsee.errors import ImageError
from unsee.serve.keys import PROMPT
from unsee.types import Card, Floats

T = TypeVar("T")
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
TOKEN = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)  # a request id or an idempotency key


class Refused(Exception):
    """A request that is not answered: an HTTP status, the field at fault, and a sentence."""

    def __init__(
        self,
        status: int,
        field: str,
        message: str,
        retry_after: float | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self._more = dict(more or {})  # facts for the client's program
        self.status = status
        self.field = field
        self.message = message
        self.retry_after = retry_after

    def as_dict(self) -> dict[str, dict[str, str]]:
        return {"error": {"field": self.field, "message": self.message, **self._more}}

    def headers(self) -> dict[str, str]:
        """Headers that say what to do next."""
        found = {"www-authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry_after is not None:
            found["retry-after"] = str(max(1, math.ceil(self.retry_after)))
        return found


@dataclass(frozen=True)
class Limits:
    """The most that one request may ask for."""

    body_bytes: int = 32 * 2**20
    classify_bytes: int = 20 * 2**20  # of a question about one image, in base64
    answer_bytes: int = 16 * 2**20
    values: int = 50_000  # of one JSON body
    images: int = 20_000  # of one set
    files: int = 2_000  # of one upload
    pixels: int = 25_000_000  # of one image, looked up before it is decoded
    classes: int = 2_000
    name_length: int = 200  # characters of a class name or template
    candidates: int = 256
    tokens: int = 1_000_000  # candidates times the tokens of all names and their contexts
    norm: float = 1e6  # of one context; far above any token's, far below what overflows
    seconds: float = 60.0  # to answer one request
    body_seconds: float = 30.0  # between two pieces of a body, and three times that for all of it
    head_seconds: float = 10.0  # to send a request's head
    head_bytes: int = 32 * 2**10
    queue: int = 512  # requests that wait for the model
    connections: int = 512  # half of them with requests of one client
    memory: int = 128 * 2**20  # bytes of bodies and answers in flight; half of it for one client

    def published(self) -> dict[str, int]:
        """Those that a client needs to cut its requests to size."""
        names = ("body_bytes", "answer_bytes", "images", "files", "classes", "candidates", "tokens")
        return {name: int(getattr(self, name)) for name in names}


def check_class_names(given: Any, limits: Limits, field: str = "class_names") -> tuple[str, ...]:
    """Class names: distinct, not too many, not too long, plain text."""
    if not isinstance(given, (list, tuple)) or not given:
        raise Refused(422, field, "must be a list of at least one name")
    if len(given) > limits.classes:
        raise Refused(422, field, f"{len(given)} names are more than the {limits.classes} allowed")
    names = tuple(check_text(name, limits, f"{field}[{i}]") for i, name in enumerate(given))
    if len(set(names)) != len(names):
        raise Refused(422, field, "a name is given twice")
    return names


def check_text(given: Any, limits: Limits, field: str) -> str:
    """One name: text that can be printed and put into a prompt."""
    if not isinstance(given, str):
        raise Refused(422, field, "must be text")
    if not in_prompt(given).strip() or len(given) > limits.name_length:
        raise Refused(422, field, f"must have 1 to {limits.name_length} characters")
    if not given.isprintable():  # control characters, and halves of surrogate pairs
        raise Refused(422, field, "has characters that cannot be printed")
    return given


def check_template(given: Any, limits: Limits, field: str = "template") -> str:
    """A plain-text prompt with one place for the class name."""
    template = check_text(given, limits, field)
    if template.count("{}") != 1:
        raise Refused(422, field, "must hold {} once, where the class name goes")
    return template


def check_contexts(given: NDArray[Any] | None, card: Card, limits: Limits, dims: int = 3) -> Floats:
    """Contexts of the right shape and type, finite and of a sane length."""
    shape = "(b, m, D)" if dims == 3 else "(m, D)"
    if given is None:
        raise Refused(422, "contexts", f"the array contexts {shape} is missing")
    if given.dtype != np.float32 or given.ndim != dims or 0 in given.shape:
        raise Refused(422, "contexts", f"must be float32 {shape}, none of them 0, not {given.dtype} {given.shape}")
    if given.shape[-1] != card.width:
        raise Refused(422, "contexts", f"are {given.shape[-1]} wide, the model's tokens {card.width}")
    if given.shape[-2] > card.token_limit - 2:
        raise Refused(422, "contexts", f"{given.shape[-2]} do not fit into the model's {card.token_limit} tokens")
    if dims == 3 and len(given) > limits.candidates:
        raise Refused(422, "contexts", f"{len(given)} candidates are more than the {limits.candidates} allowed")
    with np.errstate(over="ignore", invalid="ignore"):
        largest = float(np.sqrt((given.astype(np.float64) ** 2).sum(axis=-1)).max())
    if not np.isfinite(largest):
        raise Refused(422, "contexts", "must be finite")
    if largest > limits.norm:
        raise Refused(422, "contexts", f"a context is {largest:.3g} long, more than the {limits.norm:.3g} allowed")
    return given


def check_image_digest(given: Any, field: str) -> str:
    """A content hash, as 64 hexadecimal digits."""
    if not isinstance(given, str) or not DIGEST.fullmatch(given):
        raise Refused(422, field, "must be a SHA-256 as 64 lower-case hexadecimal digits")
    return given


def check_prompt_name(given: str) -> str:
    """The name of a deployed prompt: letters, digits, dot, dash and underscore; no path."""
    if not PROMPT.fullmatch(given):
        raise Refused(422, "name", "must be 1 to 64 letters, digits, dots, dashes or underscores, no path")
    return given


def read_list(facts: dict[str, str], field: str) -> Any:
    """A list that is written as JSON in a message's facts."""
    if field not in facts:
        raise Refused(422, field, "is missing in the metadata")
    try:
        return json.loads(facts[field])
    except (ValueError, RecursionError):
        raise Refused(422, field, "must be a JSON list") from None


def count_pixels(content: bytes, limits: Limits, field: str) -> int:
    """The pixels of the image in these bytes, by its head."""
    return _read_image(lambda: pixel_count(content, field, limits.pixels), content, field)


def decode_image(content: bytes, limits: Limits, field: str) -> Image.Image:
    """The image in these bytes, upright."""
    return _read_image(lambda: decode(content, field, limits.pixels), content, field)


def _read_image(read: Callable[[], T], content: bytes, field: str) -> T:
    if lacking_for(content) is not None:  # what to install is not for a client to know
        raise Refused(422, field, "this format is not installed here")
    try:
        return read()
    except ImageError as error:
        raise Refused(422, field, error.reason) from None
    except MemoryError:
        raise Refused(422, field, "does not fit into memory") from None


def answer_size(candidates: int, images: int, classes: Sequence[str], limits: Limits) -> int:
    """The bytes of an answer; refuses a question whose answer would be too large."""
    size = 4 * candidates * images * len(classes)
    if size > limits.answer_bytes:
        raise Refused(422, "contexts", f"the answer would be {size} bytes, more than the {limits.answer_bytes} allowed")
    return size
