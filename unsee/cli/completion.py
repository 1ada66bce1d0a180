"""What a shell completes: data sets, classes, run folders, models, lists of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import click

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_data(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Data sets by name, and folders."""
    return [*complete_named_data(context, parameter, incomplete), *_folders(incomplete)]


def complete_named_data(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Data sets by name."""
    from unsee.data import NAMED

    return _beginning(incomplete, ["demo", *NAMED])


def complete_classes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Classes of the data named before, as the last part of a list; spaces as underscores, which mean the same."""
    from unsee.cli.inputs import read_data
    from unsee.errors import UnseeError

    # Behind an option without its value yet, click leaves arguments where they are.
    data = context.params.get("data") or next(iter(context.args), None)
    if data is None:
        return []
    try:
        names = read_data(data, 0, context.params.get("data_dir"), context.params.get("names_file")).class_names
    except (UnseeError, OSError):
        return []
    shown = [name.replace(" ", "_") for name in names if "," not in name and name.isprintable()]
    return _last_of_list(incomplete, shown)


def complete_runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Run folders: those in the folder `runs` and below, else in what is typed."""
    from unsee.runs.listing import find_runs

    found = _beginning(incomplete, (str(path) for path in find_runs(Path("runs"))))
    return sorted(found) or _folders(incomplete)


def complete_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Models: the embedded one, ids of the hub, and folders."""
    from unsee.models.families import FAMILIES

    names = [family.write for family in FAMILIES if " " not in family.write and "." not in family.write]
    return [*_beginning(incomplete, (name for name in names if name.lower() == name)), *_folders(incomplete)]


def complete_setting_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Settings that `--set` takes."""
    from unsee.cli.inputs import OWN_OPTIONS
    from unsee.settings import FIELDS

    return _beginning(incomplete, (name for name in FIELDS if name not in OWN_OPTIONS))


def complete_pairs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """KEY= of a setting; or KEY=VALUE, if its values have names."""
    from typing import get_args

    from unsee.settings import FIELDS

    key, sign, value = incomplete.partition("=")
    if not sign:
        return [f"{name}=" for name in complete_setting_names(context, parameter, key)]
    values = get_args(FIELDS[key].annotation) if key in FIELDS else ()
    return [f"{key}={name}" for name in _beginning(value, (each for each in values if isinstance(each, str)))]


def complete_list(names: Iterable[str]) -> Complete:
    """Completes the last part of a list of these names, separated by commas."""
    known = list(names)
    return lambda context, parameter, incomplete: _last_of_list(incomplete, known)


def complete_experiments(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Tables and figures of the paper."""
    from unsee.report.paper.experiments import experiment_names

    return _beginning(incomplete, [*experiment_names(), "all"])


def _last_of_list(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, names) if name not in given]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _folders(incomplete: str) -> list[str]:
    """Folders that begin as what is typed, ending in a slash."""
    before, slash, last = incomplete.rpartition("/")
    try:
        found = sorted(path.name for path in Path(f"{before}{slash}" or ".").iterdir() if path.is_dir())
    except OSError:
        return []
    return [f"{before}{slash}{name}/" for name in _beginning(last, found) if last or not name.startswith(".")]
