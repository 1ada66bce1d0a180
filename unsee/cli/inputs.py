"""What options and arguments stand for: data, a model, a run, classes, settings, folders."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import click

from unsee.errors import ImageError, InputError, unknown
from unsee.methods.registry import METHODS
from unsee.runs.given import stable_name

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

    from unsee.cli.console import Console
    from unsee.data.data_set import Data
    from unsee.models.black_box import BlackBox
    from unsee.runs.records import ConfigRecord
    from unsee.settings import Value


OWN_OPTIONS = ("method", "preset", "seed")  # settings that --set does not take


@runtime_checkable
class Closes(Protocol):
    """A model that wants to be told when it is no longer needed."""

    def close(self) -> None: ...


def read_model(
    name: str,
    console: Console,
    cache_dir: Path | None,
    no_cache: bool,
    device: str,
    dtype: str,
    threads: int | None = None,
    key_file: Path | None = None,
    insecure: bool = False,
    key: str | None = None,
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
        key=key or read_key(key_file),
        insecure=insecure,
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
            found += read_names(file.read_text(encoding="utf-8-sig").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--forget-file {file}: cannot be read ({error})") from None
    return tuple(dict.fromkeys(found))


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


def without_bad_images(data: Data, skip: bool, console: Console) -> Data:
    """The data without test images that cannot be read, each of them named, if asked for."""
    if not skip:
        return data
    test, bad = data.test.readable()
    for error in bad:
        console.say(f"skipped: {error}")
    return dataclasses.replace(data, test=test)


@contextlib.contextmanager
def offering_to_skip() -> Iterator[None]:
    """An image that cannot be read ends the command with what can be done about it."""
    try:
        yield
    except ImageError as error:
        raise ImageError(error.name, f"{error.reason}; --skip-bad-images leaves such images out") from None


def read_pairs(pairs: Sequence[str]) -> dict[str, Value]:
    """Settings from `--set KEY=VALUE`."""
    from unsee.settings import parse_settings

    given: dict[str, str] = {}
    for text in pairs:
        key, value = split_pair(text)
        if key in given:
            raise InputError(f"--set {key} is given twice")
        if key in OWN_OPTIONS:
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
