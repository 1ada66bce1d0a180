"""A connection to `unsee serve` that survives: it retries what may be retried, and says so when the server is away."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import random
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from unsee.errors import InputError, MissingExtra, ModelError
from unsee.models.remote.wire import ACKNOWLEDGE, IDEMPOTENCY_KEY, MODEL, REQUEST_ID, SHA256

if TYPE_CHECKING:
    import httpx

PATIENCE = 600.0  # seconds without an answer before a run stops
FIRST_CONTACT = 5.0  # the same, before anything at the address has answered as unsee serve does
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 15.0
SILENT = 2.0  # seconds of trouble before anything is said
ACKNOWLEDGED_AT_ONCE = 32  # keys that one request acknowledges
CONNECT, READ = 5.0, 90.0  # seconds; reading is longer than the server's own limit on a request
BESIDE_ARRAYS = 8 * 2**20  # of an answer, beside the arrays that were asked for


@dataclass(frozen=True)
class Reply:
    """An answer: status, body, and whether it is one that the server means."""

    status: int
    content: bytes
    retry_after: float | None = None

    def json(self) -> Any:
        """The body as JSON; ModelError if it is none."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise ModelError("the server's answer is not JSON; is it unsee serve?") from None

    @property
    def error(self) -> str:
        """The server's own words."""
        try:
            found = json.loads(self.content)["error"]
            return f"{found['field']}: {found['message']}"
        except (ValueError, KeyError, TypeError, RecursionError):
            return self.content[:200].decode("utf-8", "replace")


class Lost(Exception):
    """An attempt that brought no trustworthy answer; the next one may."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class Connection:
    """HTTP with retries. Requests may be made from several threads.

    Time-outs, resets, cut or mixed-up answers, 429 and 5xx are tried again, with pauses that double up to a limit and
    are jittered; any other 4xx is final. An address that never answered as unsee serve does is given up within seconds:
    it is probably a wrong one. A request that costs something carries an idempotency key, the same in every
    attempt, so the server charges it once. The server is not trusted: answers are bounded in bytes and time, and a key
    crosses a network only encrypted, unless insecure says otherwise.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        say: Callable[[str], None] | None = None,
        patience: float = PATIENCE,
        insecure: bool = False,
    ) -> None:
        if key is not None and not insecure and not _keeps_secrets(url):
            danger = "the key would cross the network in plain text"
            raise InputError(f"{url}: {danger}; use https, or --insecure if you trust the network")
        try:
            import httpx
        except ImportError:
            raise MissingExtra("httpx", "remote") from None
        self.url = url.rstrip("/")
        self._httpx = httpx
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._say = say or (lambda text: None)
        self._patience = patience
        self._lock = threading.Lock()
        self._arrived: list[str] = []  # answers to acknowledge
        self.model: str | None = None  # fingerprint of the model that is meant, once it is known
        self._reached = False  # whether unsee serve has ever answered here
        self._client = self._open()

    def get(self, path: str) -> Reply:
        return self.send("GET", path)

    def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        media: str | None = None,
        key: str | None = None,
        files: Any = None,
        accept: tuple[int, ...] = (),
        array_bytes: int = 0,
    ) -> Reply:
        """A successful reply, or one of a status in accept; ModelError or InputError says why there is none.

        array_bytes is how large the arrays are that are asked for: a longer answer is not read.
        """
        first, attempt, said = time.monotonic(), 0, False
        while True:
            try:
                left = first + self._wait - time.monotonic()
                reply = self._try(method, path, content, media, key, files, array_bytes, left)
            except Lost as lost:
                away = time.monotonic() - first
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.0)
                pause = max(pause, lost.wait or 0.0)
                if away + pause > self._wait:
                    raise self._given_up(lost, away) from None
                if away > SILENT and not said:
                    self._say(f"{self.url} does not answer ({lost}); paused, trying for {self._patience:.0f} s")
                    said = True
                attempt += 1
                time.sleep(pause)
                continue
            if said:
                self._say(f"{self.url} answers again after {time.monotonic() - first:.0f} s")
            if reply.status < 300 or reply.status in accept:
                return reply
            raise self._final(reply)

    def arrived(self, key: str) -> None:
        """The answer under this key is safe here; the next request tells the server."""
        with self._lock:
            self._arrived.append(key)

    def close(self) -> None:
        """Acknowledges what is left, if the server is there, and closes."""
        if self._arrived:
            with suppress(Lost, ModelError):  # then the server forgets the answers by itself, after a day
                self._try("GET", "/v1/usage")
        self._client.close()

    @property
    def _wait(self) -> float:
        """Seconds until a request is given up."""
        return self._patience if self._reached else min(FIRST_CONTACT, self._patience)

    def _try(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        media: str | None = None,
        key: str | None = None,
        files: Any = None,
        array_bytes: int = 0,
        seconds: float = FIRST_CONTACT,
    ) -> Reply:
        """One attempt."""
        request_id, client, seconds = uuid.uuid4().hex, self._client, max(0.001, seconds)
        headers = {**self._headers, REQUEST_ID: request_id, "accept-encoding": "identity"}
        if self.model is not None:
            headers[MODEL] = self.model
        if media is not None:
            headers["content-type"] = media
        if key is not None:
            headers[IDEMPOTENCY_KEY] = key
        with self._lock:
            acknowledged = self._arrived[:ACKNOWLEDGED_AT_ONCE]
        if acknowledged:
            headers[ACKNOWLEDGE] = ",".join(acknowledged)
        timeout = self._httpx.Timeout(min(READ, seconds), connect=min(CONNECT, seconds))
        alarm = threading.Timer(seconds, self._renew, (client,))  # a byte now and then keeps other time-outs away
        alarm.daemon = True
        alarm.start()
        try:
            with client.stream(
                method, self.url + path, content=content, headers=headers, files=files, timeout=timeout
            ) as response:
                body = self._read(response, BESIDE_ARRAYS + array_bytes)
            self._check(response.status_code, response.headers, body, request_id)
        except self._httpx.TransportError as error:
            self._renew(client)
            self._check_certificate(error)
            raise Lost(str(error) or type(error).__name__) from None
        except self._httpx.InvalidURL as error:
            raise InputError(f"{self.url}: {error}") from None
        except ModelError:  # which is a RuntimeError, but final
            raise
        except (Lost, RuntimeError) as error:  # RuntimeError: another thread has just closed this client
            self._renew(client)
            raise error if isinstance(error, Lost) else Lost(str(error)) from None
        finally:
            alarm.cancel()
        self.check_model(response.headers.get(MODEL))
        reply = Reply(response.status_code, body)
        if reply.status == 429 or reply.status >= 500:
            raise Lost(f"{reply.status} {reply.error[:120]}", _seconds(response.headers.get("retry-after")))
        with self._lock:
            self._arrived = [known for known in self._arrived if known not in acknowledged]
        return reply

    def _read(self, response: httpx.Response, limit: int) -> bytes:
        """The body, as it was sent; ModelError if it is longer than it may be."""
        if response.headers.get("content-encoding", "identity") != "identity":
            if response.status_code < 300:
                raise ModelError(f"{self.url} compressed its answer, which nobody asked for: is a proxy in between?")
            return b""
        parts, size = [], 0
        for part in response.iter_raw():
            size += len(part)
            if size > limit:
                raise ModelError(f"{self.url} sends more than the {limit} bytes that its answer may have")
            parts.append(part)
        return b"".join(parts)

    def _check(self, status: int, headers: Mapping[str, str], content: bytes, request_id: str) -> None:
        """Is this whole, and the answer to this very request? A proxy may cut, delay and repeat answers."""
        echoed, digest = headers.get(REQUEST_ID), headers.get(SHA256)
        if echoed is not None and echoed != request_id:
            raise Lost("an answer to another request arrived")
        if status < 300 and echoed is None:
            raise Lost("an answer without a request id arrived; is this unsee serve?")
        if digest is not None and hashlib.sha256(content).hexdigest() != digest:
            raise Lost("a damaged answer arrived")
        self._reached = self._reached or echoed is not None

    def _check_certificate(self, error: BaseException | None) -> None:
        """Raises ModelError if this is why there is no connection: another attempt will not help."""
        while error is not None:
            if isinstance(error, ssl.SSLCertVerificationError):
                reason = error.verify_message or error.reason
                raise ModelError(
                    f"{self.url}: its certificate is not trusted ({reason}); if its authority is your own, name that "
                    "authority's certificate file in SSL_CERT_FILE"
                )
            error = error.__cause__ or error.__context__

    def check_model(self, found: str | None) -> None:
        """Refuses the answer of another model than the one that is meant; None: it does not say which."""
        if None not in (found, self.model) and found != self.model:
            raise ModelError(
                f"{self.url} has changed its model ({str(self.model)[:12]}, now {str(found)[:12]}); the run is kept: "
                "serve the old one again and continue it with unsee resume"
            )

    def _given_up(self, lost: Lost, away: float) -> ModelError:
        if not self._reached:
            return ModelError(f"{self.url} cannot be reached ({lost}): is unsee serve running there?")
        return ModelError(
            f"{self.url} has not answered for {away:.0f} s ({lost}); a run is kept as far as it got: "
            "continue it with unsee resume"
        )

    def _final(self, reply: Reply) -> Exception:
        if reply.status == 401:
            return InputError(f"{self.url} does not know this key; put one into UNSEE_KEY or name a file: --key-file")
        if not self._reached:
            return ModelError(f"{self.url} answers {reply.status}, and not as unsee serve does: check the address")
        if reply.status == 403:
            return ModelError(f"{self.url} refuses: {reply.error}; the run is kept: continue it with unsee resume")
        return ModelError(f"{self.url} refuses ({reply.status}): {reply.error}")

    def _open(self) -> httpx.Client:
        limits = self._httpx.Limits(max_connections=16, max_keepalive_connections=8, keepalive_expiry=30)
        timeout = self._httpx.Timeout(READ, connect=CONNECT)
        return self._httpx.Client(timeout=timeout, limits=limits, trust_env=True, follow_redirects=False)

    def _renew(self, used: httpx.Client) -> None:
        """Drops all connections: after a fault, bytes of an old answer may still be on their way in one."""
        with self._lock:
            if self._client is used:
                self._client = self._open()
                used.close()


def is_loopback(host: str) -> bool:
    """Whether this name or address can only be this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _keeps_secrets(url: str) -> bool:
    """Whether what is sent to this address stays on this machine or is encrypted."""
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" or is_loopback(parts.hostname or "")
    except ValueError as error:
        raise InputError(f"{url}: {error}") from None


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; None if it is absent or a date."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else None
