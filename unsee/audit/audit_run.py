"""The audit from Python: a run by its folder or as it was tuned, its model and data found by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from unsee.audit.audit import audit
from unsee.audit.record import AuditRecord
from unsee.data import load_data
from unsee.data.data_set import Data
from unsee.data.other_names import OtherNames
from unsee.errors import InputError
from unsee.models.black_box import BlackBox
from unsee.runs.folder import read_config
from unsee.runs.given import given_data, given_folder, given_model
from unsee.runs.records import ConfigRecord
from unsee.runs.tuning import TunedRun
from unsee.types import Say


@runtime_checkable
class FittedTuner(Protocol):
    """A tuner after `fit`: its run, and the folder that it is kept in."""

    run_: TunedRun
    folder_: Path | None


def audit_run(
    run: str | Path | TunedRun | FittedTuner,
    model: BlackBox | str | Path | None = None,
    data: Data | str | Path | None = None,
    *,
    parts: Sequence[str] | None = None,
    other_names: OtherNames | None = None,
    other_data: Data | str | Path | None = None,
    say: Say = lambda text: None,
) -> AuditRecord:
    """What the answers of a finished run leak: findings, worst first. Also written to `audit.json` in its folder.

    run is a folder, or a tuner that was saved or fitted with out=. model and data are those of the run unless others
    are given, as for data that was moved. parts: what to measure; the usual parts if none are given.
    """
    tuned = run.run_ if isinstance(run, FittedTuner) else run if isinstance(run, TunedRun) else None
    folder = run.folder_ if isinstance(run, FittedTuner) else run.folder if isinstance(run, TunedRun) else run
    if folder is None:
        raise InputError("this run has no folder yet; save it first: tuner.save(FOLDER)")
    folder = given_folder(folder)
    config = read_config(folder)
    if model is None:
        model = config.model.address or config.model.name if tuned is None else tuned.task.model
    if data is None and tuned is not None:
        data = tuned.task.data
    return audit(
        folder,
        given_model(model),
        _run_data(config, data),
        parts=parts,
        other_names=other_names,
        other_data=None if other_data is None else given_data(other_data, 0),
        say=say,
    )


def _run_data(config: ConfigRecord, given: Data | str | Path | None) -> Data:
    """The data as given, or those of the run, divided as they were then."""
    if isinstance(given, Data):
        return given
    name = config.data.name if given is None else str(given)
    data = load_data(name, seed=config.data.split_seed or 0, names=config.data.names or None)
    return replace(data, test=data.test.readable()[0]) if config.settings.skip_bad_images else data
