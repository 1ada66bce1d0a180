"""Connections: how many there may be, and how long a client may take to send a request's head or to read an answer."""

from __future__ import annotations

import asyncio
import json
import resource
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from unsee.serve.guard import PIECE
from unsee.serve.limits import Limits, Refused


def limited_protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP/1.1 that hangs up on slow senders and readers, and on the idlest when there are too many connections."""
    most = min(limits.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    connected: dict[LimitedProtocol, None] = {}  # those with a request least lately come first

    class LimitedProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.max_size = PIECE  # bytes that are read at once, in asyncio's transports
            self._deadline = self.loop.call_later(limits.head_seconds, self._hang_up)
            connected[self] = None
            if len(connected) > most:
                ended = (other for other in connected if other.transport.is_closing())  # yet with an answer to be read
                idle = (other for other in connected if other.idle)
                next(ended, next(idle, self))._hang_up()

        def connection_lost(self, exc: Exception | None) -> None:
            connected.pop(self, None)
            self._disarm()
            self.resume_writing()
            super().connection_lost(exc)

        @property
        def idle(self) -> bool:
            """Whether no request is being answered."""
            return self.cycle is None or self.cycle.response_complete

        def pause_writing(self) -> None:
            """The client does not read as fast as it is answered."""
            super().pause_writing()
            self._unread = self.loop.call_later(limits.body_seconds, self._hang_up)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self in connected:
                connected[self] = connected.pop(self)
            if self.conn.their_state is h11.IDLE and self.idle:  # part of a head
                if self._deadline is None:
                    self._deadline = self.loop.call_later(limits.head_seconds, self._hang_up)
            else:
                self._disarm()

        def send_400_response(self, msg: str) -> None:
            """A head that is no HTTP, or too large: JSON like every other error."""
            body = json.dumps(Refused(400, "head", "not an HTTP request, or its head is too large").as_dict()).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def timeout_keep_alive_handler(self) -> None:
            self._hang_up()

        def _hang_up(self) -> None:
            self.transport.abort()  # close() would wait until everything is read

        def _disarm(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return LimitedProtocol
