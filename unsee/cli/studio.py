"""`unsee studio`: the page."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.inputs import cache_folder, data_folder, read_data, read_key, read_model
from unsee.cli.options import make_console, shared
from unsee.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from unsee.data.data_set import Data
    from unsee.models.black_box import BlackBox


@click.command()
@click.argument("runs", type=click.Path(path_type=Path), default=Path("runs"))
@click.option("--host", default="127.0.0.1", help="Address to listen on; other machines need --key-file.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), show_default="a free one", help="Port to listen on.")
@click.option(
    "--key-file",
    "page_key",
    type=click.Path(path_type=Path),
    show_default="none",
    help="File with the key that visitors enter; needed for a --host that others can reach.",
)
@click.option("--no-browser", is_flag=True, help="Print the address and open nothing.")
@shared("data_dir", "cache", "device")
def studio(
    runs: Path,
    host: str,
    port: int,
    page_key: Path | None,
    no_browser: bool,
    data_dir: Path | None,
    cache_dir: Path | None,
    device: str,
) -> None:
    """Open a page to start, watch, judge and try runs.

    Looks in RUNS (default: runs) and below. Runs are processes of their own: they go on when the page or this command
    ends, and can be continued on the command line.
    """
    try:
        from unsee.studio.hosting import check_key, listen, make_page_server, open_studio
    except ImportError as error:
        raise MissingExtra(str(error.name or "fastapi"), "serve") from None
    from unsee.data import list_data_sets

    console = make_console()
    if runs.is_file():
        raise InputError(f"{runs} is a file, not a folder of runs")
    runs.mkdir(parents=True, exist_ok=True)
    key = read_key(page_key) if page_key is not None else None
    check_key(host, key)
    folders = {"--data-dir": data_folder(data_dir).resolve(), "--cache-dir": cache_folder(cache_dir).resolve()}
    where: dict[str, Any] = {"cache_dir": cache_dir, "no_cache": False, "device": device, "dtype": "float32"}

    def open_data(name: str, seed: int | None, names: Mapping[str, str] | None) -> Data:
        return read_data(name, seed, data_dir, names)

    context = click.get_current_context()

    def open_model(name: str) -> BlackBox:
        with context.scope(cleanup=False):  # in a thread of the page
            return read_model(name, console, **where)

    app, visitors = open_studio(
        runs,
        open_data,
        open_model,
        data_sets=list_data_sets(data_folder(data_dir)),
        options=[*(f"{name}={path}" for name, path in folders.items()), f"--device={device}"],
        key=key,
    )
    opened = listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{opened.getsockname()[1]}/"
    start = address if key is not None else f"{address}?token={visitors.token}"
    console.say(f"studio of {runs}: {start}")
    console.say("the address works once, in one browser; Ctrl-C ends the page, not its runs")
    if not no_browser:
        webbrowser.open(start)
    make_page_server(app).run(sockets=[opened])
