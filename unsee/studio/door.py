"""Who may come in, and what every answer carries: cookie, Host, Origin, size of the body, content-security-policy."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from unsee.files import write_bytes
from unsee.serve.guard import App, Receive, Scope, Send

Refuse = Callable[[int, str], Response]  # status and sentence -> a page that says so

HERE = frozenset({"127.0.0.1", "localhost", "[::1]"})
POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{what}-src 'self'" for what in ("script", "style", "img", "connect")),
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
MB = 2**20
LIMITS = {"/upload": 2048 * MB, "/try": 32 * MB}  # largest body by path; the first is read in pieces
FORM = 2 * MB  # of every other path


@dataclass
class Pass:
    """What lets a visitor in: a token that works once, a key where the page is not for this machine alone, a cookie."""

    cookie: str  # its name: cookies know no ports, and two pages on one machine must not share one
    session: str  # its value
    key: str | None = None
    token: str | None = field(default_factory=lambda: secrets.token_urlsafe(24))

    def use_token(self, given: str) -> bool:
        """Whether this is the token; it is then used up."""
        if self.token is None or not secrets.compare_digest(given.encode(), self.token.encode()):
            return False
        self.token = None
        return True

    def is_key(self, given: str) -> bool:
        return self.key is not None and secrets.compare_digest(given.encode(), self.key.encode())

    def let_in(self, response: Response) -> Response:
        """The response with the cookie."""
        response.set_cookie(self.cookie, self.session, max_age=30 * 86400, httponly=True, samesite="strict")
        return response

    def known(self, header: str) -> bool:
        """Whether this Cookie header has the cookie."""
        try:
            found = SimpleCookie(header).get(self.cookie)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self.session.encode())


def read_session(path: Path) -> str:
    """The cookie's value, made once and kept: a page stays open while the server is restarted."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, secrets.token_urlsafe(32).encode())
        path.chmod(0o600)
    return path.read_text(encoding="utf-8").strip()


class Door:
    """ASGI middleware in front of every page."""

    def __init__(self, app: App, visitors: Pass, refuse: Refuse) -> None:
        self._app = app
        self._visitors = visitors
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        answering = _Headers(send)
        refused = self._check(scope, headers)
        if refused is not None:
            await refused(scope, receive, answering)
            return
        await self._app(scope, _Body(receive, LIMITS.get(scope["path"], FORM)), answering)

    def _check(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """The answer to a request that goes no further; None if it does."""
        host, method, path = headers.get("host", ""), scope["method"], scope["path"]
        if self._visitors.key is None and re.sub(r":\d+$", "", host) not in HERE:
            return self._refuse(421, f"This page is for this computer alone and does not answer for {host!r}.")
        if method not in ("GET", "HEAD") and headers.get("origin") not in (f"http://{host}", f"https://{host}"):
            return self._refuse(403, "This request came from another page, so it was not carried out.")
        elsewhere = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        if elsewhere and headers.get("sec-fetch-mode") != "navigate":
            return self._refuse(403, "This request came from another page.")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LIMITS.get(path, FORM):
            return self._refuse(413, _too_large(LIMITS.get(path, FORM)))
        if path.startswith("/static/") or path == "/enter":
            return None
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if path == "/" and token and self._visitors.use_token(token):
            return self._visitors.let_in(RedirectResponse("/", 303))
        if self._visitors.known(headers.get("cookie", "")):
            return None
        return self._refuse(401, "")


class _Body:
    """A request's body, refused while it arrives if it grows beyond what is allowed, whatever its head said."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._left = receive, most, most

    async def __call__(self) -> Scope:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, _too_large(self._most))
        return message


class _Headers:
    """Sends an answer with the headers that all of them carry."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Scope) -> None:
        if message["type"] == "http.response.start":
            own = {name.decode("latin-1").lower() for name, _ in message["headers"]}
            added = HEADERS if "cache-control" in own else {**HEADERS, "cache-control": "no-store"}
            message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in added.items())]
        await self._send(message)


def _too_large(most: int) -> str:
    return f"What was sent is larger than the {most // MB} MB allowed here. Send less at a time, or name a folder."
