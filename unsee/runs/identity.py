"""What a run is: one record that `resume`, sweeps and finished results are all compared by.

Method, settings (but for iterations and budget, which may be raised later), classes to forget, seed, data with its
split and pixels, model with its tokenizer and preprocessing, and the epoch of the code. Where model and data are stored
is not part of it: both may be moved.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from unsee import versions
from unsee.errors import RunError
from unsee.methods.task import Task
from unsee.runs.records import ConfigRecord, DataRecord, ModelRecord, Record, SplitRecord
from unsee.settings import ADDED, EXTENDABLE, Value
from unsee.types import Data


class RunIdentity(Record):
    """Two runs with the same identity make the same numbers, as far as both have run."""

    settings: dict[str, Value]
    forget: tuple[str, ...]
    split_seed: int | None
    data: str
    pixels: str
    model: str
    epoch: int

    @property
    def key(self) -> str:
        """A short name of it."""
        return short_hash(self.model_dump_json())

    def difference(self, other: RunIdentity) -> str | None:
        """The first thing in which another identity differs, in words; None if it does not."""
        for name in sorted({*self.settings, *other.settings}):
            mine, theirs = (one.settings.get(name, ADDED.get(name)) for one in (self, other))
            if mine != theirs:
                return f"{name} was {mine!r}, now it is {theirs!r}"
        if self.forget != other.forget:
            return f"it forgets {', '.join(self.forget)}, not {', '.join(other.forget)}"
        for name, what in _WORDS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{what} ({str(mine)[:12]} then, {str(theirs)[:12]} now)"
        return None


_WORDS = {
    "model": "another model",
    "split_seed": "another data split",
    "data": "another data set: other classes, labels or image names",
    "pixels": "other images under the same names: another data set",
    "epoch": "another version of unsee, which makes other numbers",
}


def describe_run(task: Task) -> ConfigRecord:
    """What `config.json` holds."""
    data, split, card = task.data, task.split, task.model.card
    rows = SplitRecord(train=tuple(split.train.tolist()), valid=tuple(split.valid.tolist()))
    return ConfigRecord(
        unsee=versions.version(),
        epoch=versions.EPOCH,
        settings=task.settings,
        forget=task.forgotten,
        class_names=data.class_names,
        model=ModelRecord(name=card.name, fingerprint=card.fingerprint, address=card.address),
        data=DataRecord(
            name=data.name, split_seed=data.split_seed, fingerprint=data.listing, pixels=_pixels(data, rows)
        ),
        split=rows,
        skipped_images=tuple(error.name for error in split.skipped),
        versions=versions.versions(),
    )


def identify(config: ConfigRecord) -> RunIdentity:
    """The identity of the run with this config."""
    settings = {name: value for name, value in config.settings.as_dict().items() if name not in EXTENDABLE}
    for name, value in ADDED.items():
        if settings[name] == value:
            del settings[name]
    return RunIdentity(
        settings=settings,
        forget=config.forget,
        split_seed=config.data.split_seed,
        data=config.data.fingerprint,
        pixels=config.data.pixels,
        model=config.model.fingerprint,
        epoch=config.epoch,
    )


def check_data(config: ConfigRecord, data: Data, run: Path) -> None:
    """Refuses data that is not the run's: its test images may be those the prompt was tuned on."""
    if data.listing != config.data.fingerprint:
        what = "images were added, removed or renamed"
    elif _pixels(data, config.split) != config.data.pixels:
        what = "images have changed under the same names"
    else:
        return
    raise RunError(f"{data.name} is no longer the data of {run}: {what}. To use it all the same, name it with --data")


def _pixels(data: Data, split: SplitRecord) -> str:
    """Hash of the content of the images to tune, validate and test on."""
    digest = hashlib.blake2b(digest_size=16)
    for rows in (split.train, split.valid):
        digest.update(data.train.subset(rows).content_digest().encode())
    digest.update(data.test_pixels.encode())
    return digest.hexdigest()


def folder_key(config: ConfigRecord) -> str:
    """A short hash that also tells apart runs of other lengths, for the name of a run folder in a sweep."""
    lengths = [config.settings.iterations, config.settings.budget]
    return short_hash(json.dumps([identify(config).key, lengths]))


def short_hash(text: str) -> str:
    """Twelve hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
