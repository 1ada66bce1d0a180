"""Options that several commands take, and what they give: a console, data, a model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import click

from unsee.errors import InputError, unknown
from unsee.methods.presets import PRESETS
from unsee.methods.registry import METHODS
from unsee.models.families import PRECISIONS

if TYPE_CHECKING:
    from unsee.cli.console import Console
    from unsee.data.data_set import Data
    from unsee.models.black_box import BlackBox
    from unsee.runs.records import ConfigRecord
    from unsee.settings import Value

Command = Callable[..., Any]


@runtime_checkable
class Closes(Protocol):
    """A model that wants to be told when it is no longer needed."""

    def close(self) -> None: ...


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
        "--forget", "names", multiple=True, metavar="NAME[,NAME]", show_default=default, help=f"{help_text} Repeatable."
    )


_OPTIONS: dict[str, Callable[[Command], Command]] = {
    "model": click.option("--model", default="mini", help=MODEL_HELP),
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
    "preset": click.option(
        "--preset",
        default="tuned",
        type=Name(PRESETS),
        help="Default sizes: tuned for the model's width, or as the paper states them.",
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
        help="Any other setting, e.g. search=separable. Repeatable.",
    ),
    "seeds": click.option("--seeds", default="0,1,2", metavar="SEED[,SEED]", help="One run per seed."),
    "out": click.option(
        "--out", type=_PATH, default=Path("runs"), help="Folder for the runs; finished ones are reused."
    ),
}
RUN = click.argument("run", type=_PATH)
MODEL_OPTIONS = ("data_dir", "cache", "no_cache", "device", "dtype", "key_file", "json")


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


def read_model(
    name: str,
    console: Console,
    cache_dir: Path | None,
    no_cache: bool,
    device: str,
    dtype: str,
    threads: int | None = None,
    key_file: Path | None = None,
) -> BlackBox:
    """The model of this name, with a feature cache unless it is switched off."""
    from unsee.models import FeatureCache, load_model

    cache = None if no_cache else FeatureCache(cache_folder(cache_dir), progress=console.encoding)
    loaded = load_model(
        stable_name(name),
        cache=cache,
        device=device,
        dtype=dtype,
        threads=threads,
        key=read_key(key_file),
        say=console.say,
    )
    if isinstance(loaded, Closes):
        click.get_current_context().call_on_close(loaded.close)
    if dtype != "float32":
        from unsee.models.check.proof import half_precision
        from unsee.models.local import LocalModel

        if isinstance(loaded, LocalModel) and loaded.tower.tokens.itemsize < 4:  # mini stays in float32
            full = load_model(stable_name(name), device=device, threads=threads)
            assert isinstance(full, LocalModel)  # as the same model is
            console.say(half_precision(loaded, full))
    return loaded


def read_key(path: Path | None) -> str | None:
    """The key to a served model, from a file or the environment."""
    if path is None:
        return os.environ.get("UNSEE_KEY") or None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise InputError(f"--key-file {path}: cannot be read ({error})") from None


def read_data(
    name: str, split_seed: int | None, data_dir: Path | None, names: Path | Mapping[str, str] | None = None
) -> Data:
    """The data set of this name; the seed divides a folder or list that has no train and test."""
    from unsee.data import load_data

    return load_data(stable_name(name), seed=split_seed or 0, data_dir=data_folder(data_dir), names=names)


def read_forget(names: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """Classes to forget, from options and a file; none if none was given."""
    from unsee.data.class_names import read_names

    found = [name for text in names for name in read_names(text)]
    if file is not None:
        try:
            found += read_names(file.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--forget-file {file}: cannot be read ({error})") from None
    return tuple(dict.fromkeys(found))


def cache_folder(given: Path | None) -> Path:
    """The folder of the feature cache."""
    return given or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unsee"


def data_folder(given: Path | None) -> Path:
    """The folder of the named data sets."""
    return given or Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "unsee"


def stable_name(given: str) -> str:
    """A known name as it is; a path made absolute, so that a run can be resumed from another folder."""
    from unsee.data import NAMED

    known = given in ("mini", "demo", *NAMED)
    return str(Path(given).resolve()) if not known and Path(given).exists() else given


def without_bad_images(data: Data, skip: bool, console: Console) -> Data:
    """The data without test images that cannot be read, each of them named, if asked for."""
    if not skip:
        return data
    test, bad = data.test.readable()
    for error in bad:
        console.say(f"skipped: {error}")
    return dataclasses.replace(data, test=test)


def read_pairs(pairs: Sequence[str]) -> dict[str, Value]:
    """Settings from `--set KEY=VALUE`."""
    from unsee.settings import parse_settings

    given: dict[str, str] = {}
    for text in pairs:
        key, value = split_pair(text)
        if key in given:
            raise InputError(f"--set {key} is given twice")
        if key in ("method", "preset", "seed"):
            raise InputError(f"--set does not take {key}; use --{key}{'s' if key == 'seed' else ''} instead")
        given[key] = value
    return parse_settings(given)


def join_settings(pairs: Sequence[str], options: Mapping[str, Value]) -> dict[str, Value]:
    """Settings from `--set` and from options of their own; one that is given both ways is refused."""
    settings = read_pairs(pairs)
    for name, value in options.items():
        if value is None or value is False:
            continue
        if name in settings:
            raise InputError(f"{name} is given twice: by --set and by --{name.replace('_', '-')}")
        settings[name] = value
    return settings


def split_pair(text: str) -> tuple[str, str]:
    """KEY=VALUE in two."""
    key, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"--set takes KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()


def read_seeds(text: str) -> list[int]:
    """Seeds from a comma-separated text, each once."""
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        raise InputError(f"--seeds are whole numbers separated by commas, not {text!r}") from None
    return list(dict.fromkeys(seeds))


def read_methods(text: str) -> tuple[str, ...]:
    """Names of methods, separated by commas."""
    names = tuple(split_list(text))
    for name in names:
        if name not in METHODS:
            raise InputError(unknown("method", name, METHODS))
    return names


def split_list(text: str) -> list[str]:
    """The parts of a list that is separated by commas; empty ones are left out."""
    return [part.strip() for part in text.split(",") if part.strip()]


def reload_run(
    run: Path, model: str | None, data: str | None, console: Console, data_dir: Path | None, **where: Any
) -> tuple[ConfigRecord, Data, BlackBox]:
    """A run's config, its data divided as it was then, and its model."""
    from unsee.runs.folder import read_config

    config = read_config(run)
    name = config.data.name if data is None else stable_name(data)
    images = read_data(name, config.data.split_seed, data_dir, config.data.names or None)
    images = without_bad_images(images, config.settings.skip_bad_images, console)
    return config, images, read_model(model or config.model.address or config.model.name, console, **where)
