"""`unsee serve`: a model as a service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.inputs import own_folders, read_model
from unsee.cli.options import make_console, shared
from unsee.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from unsee.models.black_box import BlackBox
    from unsee.serve.keys import Client


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
@click.option(
    "--another-key",
    metavar="CLIENT",
    show_default="none",
    help="Add a second key for this client to --keys, print it once, and stop: to replace the first one later.",
)
@click.option("--no-keys", is_flag=True, help="Serve anyone who can reach the port.")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    show_default="addresses, and names without a dot",
    help="A name of this service, where there are no keys: requests to others are refused. Repeatable.",
)
@click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="NAME",
    help="Every answer leaves under this deployed prompt and its rule, for all keys but those of role operate. "
    "Repeatable: callers may then choose.",
)
@click.option(
    "--deploy",
    "deployed",
    multiple=True,
    metavar="NAME=RUN",
    help="Deploy the prompt of a run under this name before starting. Repeatable.",
)
@click.option(
    "--other-names",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default="none",
    help='Other names of forgotten classes, removed like them: JSON such as {"cat": ["kitty"]}.',
)
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
    help="Folder for clients' spending, image features and prompts; or postgresql://HOST/NAME, for several servers.",
)
@click.option(
    "--access-log",
    type=click.Path(path_type=Path),
    show_default="none",
    help="Write one JSON line per request to this file; - is stderr.",
)
@click.option(
    "--audit-log",
    type=click.Path(path_type=Path),
    show_default="none",
    help="Write one JSON line per refusal, deployment and withdrawal to this file; - is stderr.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    show_default="none",
    help="Port for Prometheus, without a key.",
)
@click.option("--metrics-host", default="127.0.0.1", help="Address of --metrics-port.")
@click.option("--tls-cert", type=click.Path(path_type=Path), show_default="none", help="Certificate chain, for https.")
@click.option("--tls-key", type=click.Path(path_type=Path), show_default="none", help="Private key of --tls-cert.")
@click.option("--queue", default=512, type=click.IntRange(1), help="How many requests may wait.")
@click.option("--timeout", default=60.0, type=click.FloatRange(1), help="Seconds until a request is given up.")
@click.option("--max-body", default=32, type=click.IntRange(1, 4096), help="Largest request, in MiB.")
@click.option("--threads", type=click.IntRange(1), show_default="all cores but one", help="Cores for the model.")
@shared("device", "dtype")
def serve(
    model: str,
    host: str,
    port: int,
    keys: Path | None,
    new_key: str | None,
    another_key: str | None,
    no_keys: bool,
    hosts: tuple[str, ...],
    prompts: tuple[str, ...],
    deployed: tuple[str, ...],
    other_names: Path | None,
    answers: str,
    card: str,
    state: str | None,
    access_log: Path | None,
    audit_log: Path | None,
    metrics_port: int | None,
    metrics_host: str,
    tls_cert: Path | None,
    tls_key: Path | None,
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

    for option, client in (("--new-key", new_key), ("--another-key", another_key)):
        if client is not None:
            if keys is None:
                raise InputError(f"{option} needs --keys FILE, where its hash is kept")
            click.echo(add_key(keys, client, another=option == "--another-key"))
            return
    if keys is not None and no_keys:
        raise InputError("--keys and --no-keys exclude each other")
    if model.startswith(("http://", "https://")):
        raise InputError(f"{model} is served already; serve a model of this machine")
    if (tls_cert is None) != (tls_key is None):
        raise InputError("--tls-cert and --tls-key go together")
    found = None if keys is None else read_keys(keys, prompts)
    try:
        from unsee.serve.access_log import ServiceLog
        from unsee.serve.databases import is_database
        from unsee.serve.disclosure import Disclosure
        from unsee.serve.limits import Limits
        from unsee.serve.process import model_threads
        from unsee.serve.server import listen, make_server, run
    except ImportError as error:
        raise MissingExtra(str(error.name or "fastapi"), "serve") from None
    from unsee.data.other_names import read_names_file
    from unsee.models.local import LocalModel

    console = make_console()
    disclosure = Disclosure.parse(answers, card)
    import torch

    cores = threads or model_threads()
    torch.set_num_threads(cores)
    loaded = read_model(model, console, cache_dir=None, no_cache=True, threads=cores, **where)
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
        hosts=hosts,
        prompts=prompts,
        deploy=read_prompts(deployed, loaded),
        other_names=None if other_names is None else read_names_file(other_names),
        log=ServiceLog(access_log, audit_log),
        tls=None if tls_cert is None or tls_key is None else (tls_cert, tls_key),
        metrics=None if metrics_port is None else (metrics_host, metrics_port),
    )
    opened = listen(host, port)
    scheme = "http" if tls_cert is None else "https"
    console.say(f"{loaded.card.name} on {scheme}://{host}:{opened.getsockname()[1]} ({_who(found is not None)})")
    for line in [] if found is None else _policies(found.clients):
        console.say(line)
    run(server, opened)


def state_folder(given: Path | None) -> Path:
    """The folder of the service's memory."""
    return given or own_folders().user_state_path


def read_prompts(given: Sequence[str], model: BlackBox) -> dict[str, bytes]:
    """The prompts of --deploy NAME=RUN, as messages by name."""
    from unsee.models.remote.wire import CONTEXTS, pack
    from unsee.runs.prompt import load_prompt
    from unsee.serve.keys import PROMPT

    found = {}
    for pair in given:
        name, is_pair, run = pair.partition("=")
        if not is_pair or not PROMPT.fullmatch(name):
            raise InputError(f"--deploy is NAME=RUN, such as pets=runs/pets, not {pair!r}")
        prompt = load_prompt(run)
        prompt.check(model)
        found[name] = pack({CONTEXTS: prompt.contexts}, {"card": prompt.card().model_dump_json()})
    return found


def _who(keys: bool) -> str:
    return "for clients with a key" if keys else "without keys"


def _policies(clients: Sequence[Client]) -> list[str]:
    """What each client's answers leave under, one line each; many keys of one kind are one line."""
    names: dict[str, list[str]] = {}
    for client in clients:
        under = f"every answer under {' or '.join(client.prompts)}, labels {client.labels}"
        policy = f"{client.role}, {under if client.prompts else 'no prompt: answers of the model itself'}"
        mine = names.setdefault(policy, [])
        if client.name not in mine:
            mine.append(client.name)
    return [f"  {', '.join(mine[:8])}{' …' if len(mine) > 8 else ''}: {policy}" for policy, mine in names.items()]
