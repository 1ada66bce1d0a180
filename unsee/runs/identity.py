"""What a run is: one record that `resume`, sweeps and finished results are all compared by.

Method, settings (but for iterations and budget, which may be raised later), classes to forget, seed, data with its
split and pixels, model with its tokenizer and preprocessing, and the epoch of the code. Where model and data are stored
is not part of it: both may be moved. The same holds for weights that a classifier starts from: their content counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from safetensors.numpy import save

from unsee import versions
from unsee.data.data_set import Data
from unsee.errors import RunError
from unsee.files import sha256_of
from unsee.methods.inherited import Inherited, KnownAnswers, as_arrays
from unsee.methods.task import Task
from unsee.runs.records import ConfigRecord, DataRecord, ModelRecord, ParentRecord, Record, SplitRecord
from unsee.settings import ADDED, EXTENDABLE, Value


class RunIdentity(Record):
    """Two runs with the same identity make the same numbers, as far as both have run."""

    settings: dict[str, Value]
    forget: tuple[str, ...]
    split_seed: int | None
    data: str
    pixels: str
    model: str
    epoch: int
    parent: str | None = None  # hash of the answers that it started from
    weights_path: str = Field(default="", exclude=True)  # not part of it: where the weights in `settings` were found

    @property
    def key(self) -> str:
        """A short name of it."""
        return short_hash(self.model_dump_json(exclude={"parent"} if self.parent is None else None))

    def difference(self, other: RunIdentity) -> str | None:
        """The first thing in which another identity differs, in words; None if it does not."""
        for name in sorted({*self.settings, *other.settings}, key=lambda name: (name != "method", name)):
            mine, theirs = (one.settings.get(name, ADDED.get(name)) for one in (self, other))
            if name == "weights" and _is_hash(mine) != _is_hash(theirs):  # one is of a version that knew the path alone
                mine, theirs = self.weights_path, other.weights_path
            if mine != theirs:
                return f"{name} was {_shown(mine)}, now it is {_shown(theirs)}"
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
    "parent": "another run that it starts from",
    "epoch": "another version of unsee, which makes other numbers",
}


HASHED = "sha256:"  # what the content of weights begins with
WEIGHT_FILES = ("config.json", "preprocessor_config.json", "*.safetensors")


def _is_hash(value: Value) -> bool:
    return isinstance(value, str) and value.startswith(HASHED)


def _shown(value: Value) -> str:
    return repr(f"{value[: len(HASHED) + 12]}…") if isinstance(value, str) and _is_hash(value) else repr(value)


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
            name=data.name,
            split_seed=data.split_seed,
            fingerprint=data.listing,
            pixels=_pixels(data, rows),
            names=dict(data.names),
        ),
        split=rows,
        skipped_images=tuple(error.name for error in split.skipped),
        versions=versions.versions(),
        weights=_weights(task.settings.weights),
        parent=_parent(task.inherited),
    )


def identify(config: ConfigRecord) -> RunIdentity:
    """The identity of the run with this config."""
    settings = {name: value for name, value in config.settings.as_dict().items() if name not in EXTENDABLE}
    for name, value in ADDED.items():
        if settings[name] == value:
            del settings[name]
    if config.weights is not None:
        settings["weights"] = HASHED + config.weights
    return RunIdentity(
        settings=settings,
        forget=config.forget,
        split_seed=config.data.split_seed,
        data=config.data.fingerprint,
        pixels=config.data.pixels,
        model=config.model.fingerprint,
        epoch=config.epoch,
        parent=None if config.parent is None else config.parent.answers,
        weights_path=config.settings.weights,
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


def _parent(inherited: Inherited | None) -> ParentRecord | None:
    if inherited is None:
        return None
    answers = hashlib.sha256(inherited_bytes(inherited.known)).hexdigest()
    return ParentRecord(run=inherited.run, forget=inherited.forget, answers=answers)


def inherited_bytes(known: Sequence[KnownAnswers]) -> bytes:
    """What `inherited.safetensors` holds."""
    return save(as_arrays(known))


def _weights(folder: str) -> str | None:
    """Hash of the weights to start from; None without any. Missing ones are refused where they are loaded."""
    return sha256_of(Path(folder), WEIGHT_FILES) if folder and Path(folder).is_dir() else None


def _pixels(data: Data, split: SplitRecord) -> str:
    """Hash of the content of the images to tune, validate and test on."""
    digest = hashlib.blake2b(digest_size=16)
    for rows in (split.train, split.valid):
        digest.update(data.train.subset(rows).content_digest().encode())
    digest.update(data.test_pixels.encode())
    return digest.hexdigest()


def folder_key(config: ConfigRecord) -> str:
    """A short hash that also tells apart runs of other lengths, for the name of a run folder in a sweep."""
    s = config.settings
    lengths = [s.iterations, s.budget, *([] if s.image_queries is None else [s.image_queries])]
    return short_hash(json.dumps([identify(config).key, lengths]))


def short_hash(text: str) -> str:
    """Twelve hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
