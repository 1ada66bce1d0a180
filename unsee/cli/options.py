"""Options that several commands take, and what they give: a console, data, a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.completion import complete_classes, complete_data, complete_models, complete_pairs, complete_runs
from unsee.errors import unknown
from unsee.methods.presets import PRESETS
from unsee.settings import PRECISIONS, TRACKER_NAMES

if TYPE_CHECKING:
    from unsee.cli.console import Console

Command = Callable[..., Any]


class Name(click.Choice):  # type: ignore[type-arg]  # not generic before click 8.2
    """One of these names; a wrong one is answered with the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            what = "name" if param is None or param.name is None else param.name.replace("_", " ")
            self.fail(unknown(what, str(value), [str(choice) for choice in self.choices]), param, ctx)
        return str(value)


MODEL_HELP = (
    "mini (embedded); a CLIP, SigLIP or other dual encoder: hub id, folder, .pt or ARCHITECTURE:FILE; or "
    "http://HOST:PORT of unsee serve."
)
_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


def _forget_option(help_text: str, default: str | bool) -> Callable[[Command], Command]:
    return click.option(
        "--forget",
        "names",
        multiple=True,
        metavar="NAME[,NAME]",
        shell_complete=complete_classes,
        show_default=default,
        help=f"{help_text} Repeatable.",
    )


_OPTIONS: dict[str, Callable[[Command], Command]] = {
    "model": click.option("--model", default="mini", shell_complete=complete_models, help=MODEL_HELP),
    "moved_model": click.option(
        "--model", show_default="the one the run was made with", help="Where the model is now, if it has moved."
    ),
    "moved_data": click.option("--data", show_default="the run's own", help="Where the data is now, if it has moved."),
    "forget": _forget_option("Classes to forget; this or --forget-file is required.", False),
    "first_forget": _forget_option("Classes to forget.", "the first 40 %, as in the paper"),
    "forget_file": click.option(
        "--forget-file",
        type=_PATH,
        metavar="FILE",
        show_default="none",
        help="File with one class to forget per line; names may have commas.",
    ),
    "track": click.option(
        "--track",
        "trackers",
        multiple=True,
        type=Name(TRACKER_NAMES),
        metavar="TRACKER",
        show_default="none",
        help=f"Also send the run to a tracker: {', '.join(TRACKER_NAMES)}. Repeatable.",
    ),
    "preset": click.option(
        "--preset",
        default="tuned",
        type=Name(PRESETS),
        help="Default sizes: tuned for the model's width, or as the paper states them.",
    ),
    "price": click.option(
        "--price",
        type=click.FloatRange(min=0),
        show_default="none",
        help="Price of 1,000 image queries; forecast and bill are then given in money too.",
    ),
    "data_dir": click.option(
        "--data-dir",
        envvar="UNSEE_DATA",
        show_envvar=True,
        show_default="the user's data folder",
        type=_FOLDER,
        help="Folder that holds the named data sets.",
    ),
    "json": click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON object on stdout, all else on stderr."
    ),
    "cache": click.option(
        "--cache-dir",
        envvar="UNSEE_CACHE",
        show_envvar=True,
        show_default="the user's cache folder",
        type=_FOLDER,
        help="Folder for encoded images, which are reused.",
    ),
    "no_cache": click.option("--no-cache", is_flag=True, help="Encode all images again and store nothing."),
    "device": click.option("--device", default="cpu", help="Where the model runs: cpu, cuda, cuda:N or mps."),
    "dtype": click.option(
        "--dtype", default="float32", type=Name(PRECISIONS), help="Precision of the model; half precision needs a GPU."
    ),
    "key_file": click.option(
        "--key-file",
        type=_PATH,
        show_default="UNSEE_KEY in the environment",
        help="File with the key to a model at http://HOST.",
    ),
    "insecure": click.option(
        "--insecure", is_flag=True, help="Send the key to http://HOST in plain text, over a network you trust."
    ),
    "names": click.option(
        "--names",
        "names_file",
        type=_PATH,
        metavar="FILE",
        show_default="the folders' own names",
        help="Class names of your folders or labels: a .csv or .json, e.g. n01440764,tench.",
    ),
    "set": click.option(
        "--set",
        "pairs",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=complete_pairs,
        help="Another setting, e.g. search=separable; unsee settings lists them. Repeatable.",
    ),
    "seeds": click.option("--seeds", default="0,1,2", metavar="SEED[,SEED]", help="One run per seed."),
    "out": click.option(
        "--out", type=_PATH, default=Path("runs"), help="Folder for the runs; finished ones are reused."
    ),
}
DATA = click.argument("data", shell_complete=complete_data)
RUN = click.argument("run", type=_PATH, shell_complete=complete_runs)
MODEL_OPTIONS = ("data_dir", "cache", "no_cache", "device", "dtype", "key_file", "insecure", "json")


def shared(*names: str) -> Callable[[Command], Command]:
    """Adds these options to a command."""

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            command = _OPTIONS[name](command)
        return command

    return decorate


def make_console(as_json: bool = False) -> Console:
    """What a command prints on."""
    from unsee.cli.console import Console

    return Console(as_json)
