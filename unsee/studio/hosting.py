"""Runs the page until it is told to stop."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from unsee.errors import InputError
from unsee.serve.guard import App
from unsee.serve.server import LOOPBACK, listen
from unsee.studio.catalogue import OWN_FOLDER, Catalogue
from unsee.studio.door import Pass, read_session
from unsee.studio.examples import Examples
from unsee.studio.forms import form_routes
from unsee.studio.jobs import Queue
from unsee.studio.pages import Pages
from unsee.studio.routes import Studio, make_pages
from unsee.studio.shelf import OpenData, OpenModel, Shelf
from unsee.studio.uploads import Uploads

SHORTEST_KEY = 16  # characters

__all__ = ["check_key", "listen", "make_page_server", "open_studio"]


def open_studio(
    root: Path,
    open_data: OpenData,
    open_model: OpenModel,
    *,
    data_sets: Sequence[Mapping[str, Any]] = (),
    options: Sequence[str] = (),
    key: str | None = None,
) -> tuple[App, Pass]:
    """The page of these runs as an ASGI application, and what lets a visitor in."""
    root = root.resolve()
    own = root / OWN_FOLDER
    name = f"unsee-{hashlib.blake2b(str(root).encode(), digest_size=4).hexdigest()}"
    visitors = Pass(name, read_session(own / "session"), key)
    queue, shelf = Queue(own / "jobs"), Shelf(open_data, open_model)
    studio = Studio(
        catalogue=Catalogue(root, queue),
        queue=queue,
        shelf=shelf,
        examples=Examples(shelf),
        uploads=Uploads(own / "images"),
        pages=Pages(root, key is not None),
        visitors=visitors,
        data_sets=data_sets,
        options=tuple(options),
    )
    studio.catalogue.read_ahead()
    return make_pages(studio, form_routes(studio)), visitors


def check_key(host: str, key: str | None) -> None:
    """Refuses to open the page to other machines without a key, or with one that can be guessed."""
    if key is None and host not in LOOPBACK:
        raise InputError(f"without a key the page is for this machine only, not for {host}: use --key-file FILE")
    if key is not None and len(key) < SHORTEST_KEY:
        raise InputError(f"the key has {len(key)} characters; use at least {SHORTEST_KEY}")


def make_page_server(app: App) -> uvicorn.Server:
    """A server that is ready to run on a socket of `listen`."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,  # streams stay open for as long as their tabs
        )
    )
