"""The door of the service: who may come in, how fast, and how much they may send. Runs before any route."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any

from unsee.models.remote.wire import ACKNOWLEDGE, MODEL, REQUEST_ID
from unsee.serve.accounts import Accounts
from unsee.serve.keys import ANYONE, Client, Keys
from unsee.serve.limits import TOKEN, Limits, Refused
from unsee.serve.shares import Held, Shares, Turns

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})  # these say nothing about anybody
GONE = 499  # the client left before it was answered
ACKNOWLEDGED = 64  # keys of one header
PIECE = 2**15  # bytes of a body that are dealt with at once
READ_PACE = 100_000  # bytes a second that a client reads at least
BODY_PACE = 32 * 2**20  # bytes a second that a client sends at most, in bodies of several pieces
STRANGER_SECONDS = 0.005  # for each request without a valid key
log = logging.getLogger("unsee.serve")


class Guard:
    """ASGI middleware: key, rate, size and pace of the body, request ids, and errors as JSON."""

    def __init__(
        self,
        app: App,
        keys: Keys | None,
        accounts: Accounts,
        limits: Limits,
        memory: Shares,
        watch: Callable[[Scope, int, float], None] = lambda scope, status, seconds: None,
        anyone: Client = ANYONE,
        model: str = "",
    ) -> None:
        self._app = app
        self._keys = keys
        self._accounts = accounts
        self._limits = limits
        self._memory = memory
        self._requests = Shares(limits.connections, "requests")
        self._turns = Turns()  # of clients, to read more of their bodies
        self._strangers = Turns()  # of addresses, to ask without a key
        self._watch = watch
        self._anyone = anyone  # who asks where there are no keys
        self._model = model  # its fingerprint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no websockets here
            raise RuntimeError(f"cannot serve {scope['type']}")
        started = time.perf_counter()
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        body = _Body(receive, headers, self._limits)
        sender = _Sender(send, headers.get(REQUEST_ID.encode(), ""), body, self._limits)
        state = scope.setdefault("state", {})
        state["id"] = sender.id
        try:
            await self._let_in(scope, headers, body, sender)
        except Refused as refused:
            state["refused"] = refused.field
            await sender.refuse(refused)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await sender.refuse(Refused(500, "server", "the service failed; its log says why"))
        finally:
            self._watch(scope, sender.status or GONE, time.perf_counter() - started)

    async def _let_in(self, scope: Scope, headers: dict[bytes, str], body: _Body, sender: _Sender) -> None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.head_bytes:
            raise Refused(431, "head", f"is larger than the {self._limits.head_bytes} bytes allowed")
        client = self._client(scope, headers)
        if client is None or scope["path"] in OPEN:  # who guesses keys, or asks for what needs none, has one turn
            await self._strangers.take(str((scope.get("client") or ("",))[0]), STRANGER_SECONDS)
        if client is None:
            raise Refused(401, "authorization", "needs a valid key: Authorization: Bearer KEY")
        scope["state"]["client"] = client
        if scope["path"] in OPEN:
            await self._app(scope, body, sender)
            return
        sender.model = self._model
        if headers.get(MODEL.encode(), self._model) != self._model:
            raise Refused(412, MODEL, f"this service's model is now {self._model}")
        self._accounts.admit(client)
        self._acknowledge(client, headers.get(ACKNOWLEDGE.encode(), ""))
        body.check()
        with self._requests.hold(client.name, 1), self._memory.holder(client.name) as held:
            body.held = sender.held = held
            body.wait = partial(self._turns.take, client.name)
            body.take()
            await _while_there(self._app(scope, body, sender), body)

    def _client(self, scope: Scope, headers: dict[bytes, str]) -> Client | None:
        """Who is asking; None without a valid key. Without a key and with a wrong one, the time is the same."""
        if self._keys is None or scope["path"] in OPEN:
            return self._anyone
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        client = self._keys.find(key.strip())
        return client if scheme.lower() == "bearer" else None

    def _acknowledge(self, client: Client, header: str) -> None:
        keys = [key.strip() for key in header.split(",") if key.strip()]
        if len(keys) > ACKNOWLEDGED or not all(TOKEN.fullmatch(key) for key in keys):
            raise Refused(422, ACKNOWLEDGE, f"must be up to {ACKNOWLEDGED} idempotency keys, separated by commas")
        if keys:
            self._accounts.acknowledge(client, keys)


class _Sender:
    """Sends a response, with the request's id and without saying what the service is made of."""

    def __init__(self, send: Send, request_id: str, body: _Body, limits: Limits) -> None:
        self._send = send
        self._body = body
        self._limits = limits
        self.held: Held | None = None
        self.id = request_id if TOKEN.fullmatch(request_id) else secrets.token_hex(16)
        self.status = 0
        self.model = ""  # that answers, for those who may know

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = [(REQUEST_ID.encode(), self.id.encode()), (b"cache-control", b"no-store")]
            if self.model:
                own.append((MODEL.encode(), self.model.encode()))
            if self._body.unread:  # hang up after the answer, rather than read on what nobody wants
                own.append((b"connection", b"close"))
            message["headers"] = [*message.get("headers", []), *own, (b"x-content-type-options", b"nosniff")]
        content = message.get("body", b"")
        if len(content) <= PIECE:
            await self._send(message)
            return
        if self.held is not None:
            self.held.add(len(content))
        async with asyncio.timeout(3 * self._limits.body_seconds + len(content) / READ_PACE):
            for start in range(0, len(content), PIECE):  # each waits until the client has read most of those before
                more = message.get("more_body", False) or start + PIECE < len(content)
                await self._send({**message, "body": content[start : start + PIECE], "more_body": more})
                await asyncio.sleep(0)

    async def refuse(self, refused: Refused) -> None:
        """The error as JSON; nothing if a response is already on its way."""
        if self.status:
            return
        body = json.dumps(refused.as_dict()).encode()
        own = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers()}
        headers = [(name.encode(), value.encode()) for name, value in own.items()]
        await self({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})


class _Body:
    """A request's body, refused while it arrives if it gets too large or comes too slowly."""

    def __init__(self, receive: Receive, headers: dict[bytes, str], limits: Limits) -> None:
        self._receive = receive
        self._limits = limits
        self._total = 0
        self._ends = time.monotonic() + 3 * limits.body_seconds
        length = headers.get(b"content-length", "0")
        self.unread = length != "0" or b"transfer-encoding" in headers
        self.held: Held | None = None
        self._expected = 0
        self.wait: Callable[[float], Awaitable[None]] | None = None  # for its turn
        self._rest = b""  # has arrived and was not handed on yet
        self._whole = asyncio.Event()
        if not (length.isascii() and length.isdigit()) or int(length) > limits.body_bytes:
            self._ends = 0.0  # nothing of it is wanted
        else:
            self._expected = int(length)

    def take(self) -> None:
        """Counts the bytes that are there or announced; 429 if the client has too many in flight."""
        more = max(self._expected, self._total) - (0 if self.held is None else self.held.size)
        if self.held is not None and more > 0:
            self.held.take(more)

    async def gone(self) -> None:
        """Returns when the client hangs up after it has sent the whole body."""
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def check(self) -> None:
        if self._ends == 0 or self._total > self._limits.body_bytes:
            raise Refused(413, "body", f"is larger than the {self._limits.body_bytes} bytes allowed")

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._total and self.wait is not None:  # however many bodies a client sends, others have their turn
            await self.wait(PIECE / BODY_PACE)
        if self._rest:
            return self._piece()
        if self._whole.is_set():  # whoever waits now waits for the client to leave, and is then cancelled
            await asyncio.Event().wait()
        pause = min(self._limits.body_seconds, self._ends - time.monotonic())
        try:
            async with asyncio.timeout(max(0.001, pause)):
                message = await self._receive()
        except TimeoutError:
            raise Refused(408, "body", "did not arrive in time") from None
        self._rest = message.get("body", b"")
        self._total += len(self._rest)
        self.check()
        self.take()
        self.unread = bool(message.get("more_body", False))
        if message["type"] != "http.request":
            self._whole.set()
            return message
        return self._piece()

    def _piece(self) -> MutableMapping[str, Any]:
        """The next bytes of those that have arrived."""
        found, self._rest = self._rest[:PIECE], self._rest[PIECE:]
        more = self.unread or bool(self._rest)
        if not more:
            self._whole.set()
        return {"type": "http.request", "body": found, "more_body": more}


async def _while_there(answering: Awaitable[None], body: _Body) -> None:
    """Answers, for as long as the client waits for it."""
    task, gone = asyncio.ensure_future(answering), asyncio.create_task(body.gone())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
    with suppress(asyncio.CancelledError):
        await task
