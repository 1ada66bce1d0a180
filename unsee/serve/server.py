"""Runs the service until it is told to stop: sockets, and an orderly end."""

from __future__ import annotations

import socket
from pathlib import Path

import uvicorn

from unsee.errors import InputError
from unsee.models.local import LocalModel
from unsee.serve.app import make_app
from unsee.serve.connections import limited_protocol
from unsee.serve.disclosure import Disclosure
from unsee.serve.keys import Keys
from unsee.serve.limits import Limits
from unsee.serve.meters import Meters
from unsee.serve.service import open_service

LOOPBACK = ("127.0.0.1", "::1", "localhost")
GRACE = 30  # seconds that requests in flight get on SIGTERM, beyond their own time limit
KEEP_ALIVE = 75  # seconds between two requests on one connection


def make_server(
    model: LocalModel,
    state: Path | str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: Keys | None = None,
    no_keys: bool = False,
    limits: Limits | None = None,
    disclosure: Disclosure | None = None,
) -> uvicorn.Server:
    """A server that is ready to run. Without keys it listens on this machine only, unless no_keys says otherwise."""
    if keys is None and not no_keys and host not in LOOPBACK:
        raise InputError(f"without keys the service is for this machine only, not for {host}: use --keys or --no-keys")
    limits, meters = limits or Limits(), Meters()
    service = open_service(model, state, limits, disclosure, meters.merged)
    config = uvicorn.Config(
        make_app(service, keys, meters),
        host=host,
        port=port,
        http=limited_protocol(limits),
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(limits.seconds) + GRACE,
        h11_max_incomplete_event_size=limits.head_bytes,
        backlog=512,
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio sends small answers at once (TCP_NODELAY) only where it is; else every
    # answer waits 40 ms for the client's delayed acknowledgement.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return found
