"""`unsee serve`: a model as a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unsee.cli.inputs import own_folders, read_model
from unsee.cli.options import make_console, shared
from unsee.errors import InputError, MissingExtra


@click.command()
@click.option("--model", default="mini", help="mini (embedded), or a CLIP: hub id, folder or .pt.")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=8000, type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option(
    "--keys",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default="none",
    help="TOML file with each client's hashed key and limits.",
)
@click.option(
    "--new-key",
    metavar="CLIENT",
    show_default="none",
    help="Add a key for this client to --keys, print it once, and stop.",
)
@click.option("--no-keys", is_flag=True, help="Serve anyone who can reach the port.")
@click.option(
    "--answers", default="all", metavar="WHAT", help="What clients get: all confidences, top-K (e.g. top-3), or label."
)
@click.option(
    "--card",
    default="full",
    type=click.Choice(["full", "none"]),
    help="Whether clients get the mean and spread of the model's token embeddings (full) or not (none).",
)
@click.option(
    "--state",
    envvar="UNSEE_STATE",
    show_envvar=True,
    show_default="the user's state folder",
    metavar="WHERE",
    help="Folder for clients' spending, image features and prompts; or postgresql://…, for several servers.",
)
@click.option("--queue", default=512, type=click.IntRange(1), help="How many requests may wait.")
@click.option("--timeout", default=60.0, type=click.FloatRange(1), help="Seconds until a request is given up.")
@click.option("--max-body", default=64, type=click.IntRange(1, 4096), help="Largest request, in MiB.")
@click.option("--threads", type=click.IntRange(1), show_default="all cores", help="Cores for the model.")
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
    state: str | None,
    queue: int,
    timeout: float,
    max_body: int,
    threads: int | None,
    **where: Any,
) -> None:
    """Serve a model as a black box over HTTP.

    Clients send images and prompts, and get confidences. Tune against it with: unsee forget DATA --forget NAMES --model
    http://HOST:PORT
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
        from unsee.serve.databases import is_database
        from unsee.serve.disclosure import Disclosure
        from unsee.serve.limits import Limits
        from unsee.serve.server import listen, make_server
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
        state if state and is_database(state) else state_folder(Path(state) if state else None),
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
