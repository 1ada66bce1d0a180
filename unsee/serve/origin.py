"""Requests that are not what they seem: made by a page of another site, or framed in two ways. Runs before all else."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.responses import JSONResponse

from unsee.models.remote.connection import is_loopback
from unsee.models.remote.wire import REQUEST_ID
from unsee.serve.guard import OPEN, App, Receive, Scope, Send
from unsee.serve.limits import TOKEN, Refused


class OriginCheck:
    """ASGI middleware. Where there are no keys, a browser on this network must not be turned against the service.

    hosts are further names of the service. Names without a dot and addresses are always its own: nobody can make the
    pages of another site come from there.
    """

    def __init__(self, app: App, keys: bool, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._keys = keys
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            try:
                self._check(scope["path"], headers)
            except Refused as refused:
                given = headers.get(REQUEST_ID, "")
                own = {"connection": "close"} | ({REQUEST_ID: given} if TOKEN.fullmatch(given) else {})
                await JSONResponse(refused.as_dict(), refused.status, own)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, path: str, headers: dict[str, str]) -> None:
        if "transfer-encoding" in headers and "content-length" in headers:
            raise Refused(400, "transfer-encoding", "must not come with content-length")
        if self._keys or path in OPEN:
            return
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if not self._is_own(_hostname(f"//{host}")):
            raise Refused(403, "host", "is no name of this service; its operator can add one with --allow-host")
        if origin is not None and origin.lower().partition("://")[2] != host:
            raise Refused(403, "origin", "pages of other sites may not ask a service without keys")

    def _is_own(self, host: str) -> bool:
        return host != "" and ("." not in host or host in self._hosts or is_loopback(host) or _is_address(host))


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
