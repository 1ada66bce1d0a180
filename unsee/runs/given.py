"""A model, data or a folder as a user gives them: by name, or as what was loaded before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unsee.errors import InputError

if TYPE_CHECKING:
    from unsee.data.data_set import Data
    from unsee.models.black_box import BlackBox


def stable_name(given: str) -> str:
    """A known name as it is; a path made absolute, so that a run can be resumed from another folder."""
    from unsee.data import NAMED

    known = given in ("mini", "demo", *NAMED)
    return str(Path(given).resolve()) if not known and Path(given).exists() else given


def given_model(given: BlackBox | str | Path) -> BlackBox:
    """The model itself, or the one of this name."""
    if isinstance(given, str | Path):
        from unsee.models import load_model

        return load_model(stable_name(str(given)))
    if not hasattr(given, "card") or not hasattr(given, "bind"):
        raise InputError(f"model is a name, a folder or what load_model returns, not {given!r}")
    return given


def given_data(given: Data | str | Path, seed: int) -> Data:
    """The data itself, or those of this name; the seed divides images that are not split yet."""
    from unsee.data import load_data
    from unsee.data.data_set import Data

    if isinstance(given, str | Path):
        return load_data(stable_name(str(given)), seed=seed)
    if not isinstance(given, Data):
        raise InputError(f"data is a name, a folder or what load_data returns, not {given!r}")
    return given


def given_folder(given: str | Path) -> Path:
    """The folder of a run."""
    if not isinstance(given, str | Path):
        raise InputError(f"out is a folder, not {given!r}")
    return Path(given).expanduser()
