"""The files of a run as typed records: checked when they are read, so that damage is found at the door.

`docs/schemas/` has their JSON schemas.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from unsee.errors import RunError
from unsee.files import write_json
from unsee.settings import Settings
from unsee.types import Ledger, Scores


class Record(BaseModel):
    """A JSON object of a run folder. Fields may be added in later versions; those that are not known are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, protected_namespaces=())


class ModelRecord(Record):
    """Which model a run was tuned on."""

    name: str
    fingerprint: str  # of its weights, tokenizer and preprocessing
    address: str | None = None  # of the service that answered for it; left out where it ran in the same process

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        return found if self.address is not None else {k: v for k, v in found.items() if k != "address"}


class DataRecord(Record):
    """Which data a run was tuned and tested on."""

    name: str
    split_seed: int | None  # that divided one set of class folders into train and test
    fingerprint: str  # of class names, labels and image names
    pixels: str  # of the content of the images to tune, validate and test on


class SplitRecord(Record):
    """Rows of the training images."""

    train: tuple[int, ...]
    valid: tuple[int, ...]


class ConfigRecord(Record):
    """`config.json`: everything that a run is made of."""

    unsee: str  # version
    epoch: int
    settings: Settings
    forget: tuple[str, ...]
    class_names: tuple[str, ...]
    model: ModelRecord
    data: DataRecord
    split: SplitRecord
    skipped_images: tuple[str, ...]
    versions: dict[str, str]


class JournalLine(Record):
    """A line of `journal.jsonl`: one generation, for people."""

    generation: int
    candidates: int
    best_loss: float
    mean_loss: float
    valid_h: float | None
    seconds: float


class CheckpointLine(Record):
    """A line of `checkpoint.jsonl`, behind its checksum: one generation, for `resume`."""

    generation: int
    candidates: int
    losses: tuple[float, ...]
    chosen: int | None
    valid: Scores | None
    partial: bool
    validated: dict[int, Scores]
    ledger: dict[str, int]
    seconds: float


class ClassRecord(Record):
    """Accuracy of one class, null where there are no test images of it."""

    before: float | None
    after: float | None


class EntropyRecord(Record):
    """How uninformative the answers to forgotten images are, 0 to 1; null where there are none."""

    before: float | None
    after: float | None


class ResultRecord(Record):
    """`result.json`: what a finished run scored and cost; null where the model answers no plain-text prompt."""

    method: str
    preset: str
    seed: int
    model: str
    data: str
    forget: tuple[str, ...]
    zero_shot: Scores | None
    valid: Scores
    test: Scores
    label_mask: Scores | None
    per_class: dict[str, ClassRecord]
    entropy_forgotten: EntropyRecord
    access: str
    ledger: Ledger
    seconds: dict[str, float]
    train: Scores
    warnings: tuple[str, ...] = ()


class PromptCard(Record):
    """`prompt.json`: what a user of a tuned prompt needs to know."""

    prompt: str
    contexts: int
    width: int
    class_names: tuple[str, ...]
    forget: tuple[str, ...]
    model: str
    model_fingerprint: str
    template: str
    sha256: str  # of prompt.safetensors
    applies_to: tuple[str, ...] | None = None  # names that the contexts apply to; left out where that is all of them

    @model_serializer(mode="wrap")
    def _leave_out_all(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without applies_to where it is None: the file is then the same as that of earlier versions."""
        found: dict[str, Any] = dump(self)
        return found if self.applies_to is not None else {k: v for k, v in found.items() if k != "applies_to"}


RECORDS: dict[str, type[Record]] = {
    "config.json": ConfigRecord,
    "result.json": ResultRecord,
    "prompt.json": PromptCard,
    "journal.jsonl": JournalLine,
}
R = TypeVar("R", bound=Record)


def read_record(kind: type[R], path: Path, missing: str) -> R:
    """The record in this file; RunError says in one line what is wrong with it."""
    if not path.is_file():
        raise RunError(f"{path.parent}: {missing} (no {path.name})")
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: {explain(error)}") from None


def write_record(path: Path, record: Record) -> None:
    """Writes the record, whole or not at all."""
    write_json(path, record.model_dump(mode="json"))


def explain(error: Exception) -> str:
    """What is wrong with a record, in one line."""
    if not isinstance(error, ValidationError):
        return f"damaged ({error})"
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "missing":
        return f"{where} is missing; the run was made by another version, or the file is damaged"
    return f"damaged ({where}: {first['msg']})" if where else f"damaged ({first['msg']})"
