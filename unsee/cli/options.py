"""Options that several commands take, and what they give: a console, data, a model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import click

from unsee.errors import InputError

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

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


MODEL_HELP = "mini, a CLIP, SigLIP … (hub id, folder, .pt, ARCHITECTURE:FILE), or http://HOST:PORT of unsee serve."

_OPTIONS = {
    "data_dir": click.option(
        "--data-dir",
        envvar="UNSEE_DATA",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where data sets are.  [default: the user's data folder]",
    ),
    "json": click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, all else on stderr."),
    "cache": click.option(
        "--cache-dir",
        envvar="UNSEE_CACHE",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where image features are kept.  [default: the user's cache folder]",
    ),
    "no_cache": click.option("--no-cache", is_flag=True, help="Encode all images again and keep nothing."),
    "device": click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or mps."),
    "dtype": click.option("--dtype", default="float32", show_default=True, help="Half precision is for GPUs."),
    "key_file": click.option(
        "--key-file",
        type=click.Path(path_type=Path),
        help="Holds the key to a model at http://….  [default: UNSEE_KEY in the environment]",
    ),
    "names": click.option(
        "--names",
        "names_file",
        type=click.Path(path_type=Path),
        help="What your folders or labels are called: a .csv or .json, e.g. n01440764,tench.",
    ),
    "set": click.option(
        "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Any other setting, e.g. search=separable."
    ),
    "seeds": click.option("--seeds", default="0,1,2", show_default=True, help="Seeds, separated by commas."),
    "out": click.option(
        "--out", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where runs are kept."
    ),
}
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


def cache_folder(given: Path | None) -> Path:
    """The folder of the feature cache."""
    return given or own_folders().user_cache_path


def data_folder(given: Path | None) -> Path:
    """The folder of the named data sets."""
    return given or own_folders().user_data_path


def own_folders() -> PlatformDirs:
    """The user's folders for unsee, where this system keeps such things."""
    import platformdirs

    return platformdirs.PlatformDirs("unsee", appauthor=False)


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
