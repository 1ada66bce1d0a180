"""The door of the service: who may come in, how fast, and how much they may send. Runs before any route."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from unsee.models.wire import ACKNOWLEDGE, REQUEST_ID
from unsee.serve.accounts import Accounts
from unsee.serve.keys import ANYONE, Client, Keys
from unsee.serve.limits import TOKEN, Limits, Refused

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})  # these say nothing about anybody
ACKNOWLEDGED = 64  # keys of one header
log = logging.getLogger("unsee.serve")


class Guard:
    """ASGI middleware: key, rate, size and pace of the body, request ids, and errors as JSON."""

    def __init__(
        self,
        app: App,
        keys: Keys | None,
        accounts: Accounts,
        limits: Limits,
        watch: Callable[[Scope, int, float], None] = lambda scope, status, seconds: None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._accounts = accounts
        self._limits = limits
        self._watch = watch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            raise RuntimeError(f"cannot serve {scope['type']}")
        started = time.perf_counter()
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        sender = _Sender(send, headers.get(REQUEST_ID.encode(), ""))
        try:
            await self._let_in(scope, headers, receive, sender)
        except Refused as refused:
            await sender.refuse(refused)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await sender.refuse(Refused(500, "server", "the service failed; its log says why"))
        finally:
            self._watch(scope, sender.status, time.perf_counter() - started)

    async def _let_in(self, scope: Scope, headers: dict[bytes, str], receive: Receive, sender: _Sender) -> None:
        client = self._client(scope, headers)
        scope.setdefault("state", {})["client"] = client
        if scope["path"] not in OPEN:
            self._accounts.admit(client)
            self._acknowledge(client, headers.get(ACKNOWLEDGE.encode(), ""))
        length = headers.get(b"content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > self._limits.body_bytes:
            raise Refused(413, "body", f"is larger than the {self._limits.body_bytes} bytes allowed")
        await self._app(scope, _paced(receive, self._limits), sender)

    def _client(self, scope: Scope, headers: dict[bytes, str]) -> Client:
        """Who is asking. Without a key and with a wrong one, the answer and its time are the same."""
        if self._keys is None or scope["path"] in OPEN:
            return ANYONE
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        client = self._keys.find(key.strip())
        if client is None or scheme.lower() != "bearer":
            raise Refused(401, "authorization", "needs a valid key: Authorization: Bearer KEY")
        return client

    def _acknowledge(self, client: Client, header: str) -> None:
        keys = [key.strip() for key in header.split(",") if key.strip()]
        if len(keys) > ACKNOWLEDGED or not all(TOKEN.fullmatch(key) for key in keys):
            raise Refused(422, ACKNOWLEDGE, f"must be up to {ACKNOWLEDGED} idempotency keys, separated by commas")
        if keys:
            self._accounts.acknowledge(client, keys)


class _Sender:
    """Sends a response, with the request's id and without saying what the service is made of."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._id = request_id if TOKEN.fullmatch(request_id) else secrets.token_hex(16)
        self.status = 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [(REQUEST_ID.encode(), self._id.encode()), (b"cache-control", b"no-store")]
            message["headers"] = [*message.get("headers", []), *own, (b"x-content-type-options", b"nosniff")]
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        """The error as JSON; nothing if a response is already on its way."""
        if self.status:
            return
        body = json.dumps(refused.as_dict()).encode()
        own = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers()}
        headers = [(name.encode(), value.encode()) for name, value in own.items()]
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


def _paced(receive: Receive, limits: Limits) -> Receive:
    """The same body, refused while it arrives if it gets too large or comes too slowly."""
    total, ends, last = 0, time.monotonic() + 3 * limits.body_seconds, False

    async def paced() -> MutableMapping[str, Any]:
        nonlocal total, last
        if last:  # nothing more to read: whoever waits now waits for the client to leave
            return await receive()
        pause = min(limits.body_seconds, ends - time.monotonic())
        try:
            async with asyncio.timeout(max(0.001, pause)):
                message = await receive()
        except TimeoutError:
            raise Refused(408, "body", "did not arrive in time") from None
        total += len(message.get("body", b""))
        if total > limits.body_bytes:
            raise Refused(413, "body", f"is larger than the {limits.body_bytes} bytes allowed")
        last = not message.get("more_body", False)
        return message

    return paced
