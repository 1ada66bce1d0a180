"""Runs the service until it is told to stop: sockets, and an orderly end."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import uvicorn

from unsee.data.other_names import OtherNames
from unsee.errors import InputError
from unsee.models.local import LocalModel
from unsee.serve.access_log import ServiceLog
from unsee.serve.app import make_app
from unsee.serve.connections import limited_protocol
from unsee.serve.disclosure import Disclosure
from unsee.serve.keys import ANYONE, Keys
from unsee.serve.limits import Limits
from unsee.serve.meters import Meters
from unsee.serve.origin import OriginCheck
from unsee.serve.process import share_evenly
from unsee.serve.service import open_service

LOOPBACK = ("127.0.0.1", "::1", "localhost")
GRACE = 30  # seconds that requests in flight get on SIGTERM, beyond their own time limit
KEEP_ALIVE = 75  # seconds between two requests on one connection
LOG = logging.getLogger("unsee.serve")


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
    hosts: Sequence[str] = (),
    prompts: Sequence[str] = (),
    deploy: Mapping[str, bytes] | None = None,
    other_names: OtherNames | None = None,
    log: ServiceLog | None = None,
    tls: tuple[Path, Path] | None = None,
    metrics: tuple[str, int] | None = None,
) -> uvicorn.Server:
    """A server that is ready to run. Without keys it listens on this machine only, unless no_keys says otherwise.

    hosts are the names, beside host, under which web browsers may reach a service without keys. prompts: of the
    operator, for all where there are no keys. deploy: prompts to deploy first, as messages by name. tls: files of
    certificate and key. metrics: host and port of their own.
    """
    if keys is None and not no_keys and host not in LOOPBACK:
        raise InputError(f"without keys the service is for this machine only, not for {host}: use --keys or --no-keys")
    limits, meters, log = limits or Limits(), Meters(), log or ServiceLog()
    if tls is not None:
        _check_certificate(*tls)
    if metrics is not None:
        meters.listen(*metrics)
    service = open_service(model, state, limits, disclosure, meters.merged, other_names)
    for name, body in (deploy or {}).items():
        service.deploy_at_start(name, body)
    granted = dict.fromkeys([*prompts, *(name for client in (keys.clients if keys else ()) for name in client.prompts)])
    for name in granted:
        if service.ledger.prompt(ANYONE.name, name) is None:
            LOG.warning("the prompt %r is granted, but not deployed: no answer leaves until it is (--deploy)", name)
    anyone = replace(ANYONE, role="classify", prompts=tuple(prompts)) if prompts else ANYONE

    def hang_up() -> None:
        """Reads keys and certificate again, and opens the logs again; what cannot be read stays as it was."""
        try:
            log.reopen()
            if keys is not None:
                keys.reload()
            if tls is not None and config.ssl is not None:
                config.ssl.load_cert_chain(*tls)
            log.event("reloaded")
        except (InputError, OSError) as error:
            LOG.error("not reloaded: %s", error)
            log.event("not reloaded", {"error": str(error)})

    config = uvicorn.Config(
        OriginCheck(make_app(service, keys, meters, log, anyone, hang_up), keys is not None, (host, *hosts)),
        host=host,
        port=port,
        ssl_certfile=None if tls is None else tls[0],
        ssl_keyfile=None if tls is None else tls[1],
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


def run(server: uvicorn.Server, opened: socket.socket) -> None:
    """Serves in a process of its own, until a signal ends it."""
    share_evenly()
    server.run(sockets=[opened])


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


def _check_certificate(certificate: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:  # that of ssl is one too
        raise InputError(f"{certificate} and {key} are no certificate with its key ({error})") from None
