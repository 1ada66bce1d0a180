"""The command that serves a model: unsee serve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unsee.cli.options import make_console, own_folders, read_model, shared
from unsee.errors import InputError, MissingExtra


@click.command()
@click.option("--model", default="mini", show_default=True, help="mini, or a CLIP: hub id, folder, .pt.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--keys", type=click.Path(path_type=Path), help="TOML file of the clients' hashed keys and limits.")
@click.option("--new-key", metavar="NAME", help="Add a key for this client to --keys, print it once, and stop.")
@click.option("--no-keys", is_flag=True, help="Serve anyone who can reach the port.")
@click.option("--answers", default="all", show_default=True, help="What is told: all confidences, top-K, or label.")
@click.option(
    "--card",
    default="full",
    show_default=True,
    type=click.Choice(["full", "none"]),
    help="none withholds the mean and spread of the model's tokens.",
)
@click.option(
    "--state",
    envvar="UNSEE_STATE",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where spending, image features and prompts are kept.  [default: the user's state folder]",
)
@click.option("--queue", default=512, show_default=True, type=click.IntRange(1), help="Requests that may wait.")
@click.option("--timeout", default=60.0, show_default=True, type=click.FloatRange(1), help="Seconds for one request.")
@click.option("--max-body", default=64, show_default=True, type=click.IntRange(1, 4096), help="MiB of one request.")
@click.option("--threads", type=click.IntRange(1), help="Cores for the model.  [default: all]")
@shared("device", "dtype")
def serve(
    model: str,
    host: str,
    port: int,
    keys: Path | None,
    new_key: str | None,
    no_keys: bool,
    answers: str,
    card: str,
    state: Path | None,
    queue: int,
    timeout: float,
    max_body: int,
    threads: int | None,
    **where: Any,
) -> None:
    """Serve a model as a black box over HTTP: images and prompts in, confidences out.

    Use it with: unsee forget DATA --forget NAMES --model http://HOST:PORT
    """
    from unsee.serve.keys import add_key, read_keys

    if new_key is not None:
        if keys is None:
            raise InputError("--new-key needs --keys FILE, where its hash is kept")
        click.echo(add_key(keys, new_key))
        return
    if keys is not None and no_keys:
        raise InputError("--keys and --no-keys exclude each other")
    if model.startswith(("http://", "https://")):
        raise InputError(f"{model} is served already; serve a model of this machine")
    found = None if keys is None else read_keys(keys)
    try:
        from unsee.serve.limits import Limits
        from unsee.serve.server import listen, make_server
        from unsee.serve.service import Disclosure
    except ImportError as error:
        raise MissingExtra(str(error.name or "fastapi"), "serve") from None
    from unsee.models.local import LocalModel

    console = make_console()
    disclosure = Disclosure.parse(answers, card)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    loaded = read_model(model, console, cache_dir=None, no_cache=True, threads=threads, **where)
    if not isinstance(loaded, LocalModel):
        raise InputError(f"{model} cannot be served")
    limits = Limits(queue=queue, seconds=timeout, body_bytes=max_body * 2**20)
    server = make_server(
        loaded,
        state_folder(state),
        host=host,
        port=port,
        keys=found,
        no_keys=no_keys,
        limits=limits,
        disclosure=disclosure,
    )
    opened = listen(host, port)
    console.say(f"{loaded.card.name} on http://{host}:{opened.getsockname()[1]} ({_who(found is not None)})")
    server.run(sockets=[opened])


def state_folder(given: Path | None) -> Path:
    """The folder of the service's memory."""
    return given or own_folders().user_state_path


def _who(keys: bool) -> str:
    return "for clients with a key" if keys else "without keys"
