"""The files of a run as typed records: checked when they are read, so that damage is found at the door.

`docs/schemas/` has their JSON schemas.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from unsee.answers.evaluation import BeforeAfter, ServedScores
from unsee.errors import RunError
from unsee.files import write_json
from unsee.settings import Settings
from unsee.types import Ledger, Scores, TradeOff


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
    names: dict[str, str] = Field(default_factory=dict)  # folder or label -> class name, where they were given


class SplitRecord(Record):
    """Rows of the training images."""

    train: tuple[int, ...]
    valid: tuple[int, ...]


class ParentRecord(Record):
    """The run whose answers a run started from."""

    run: str  # its name
    forget: tuple[str, ...]  # what it forgets
    answers: str  # sha256 of `inherited.safetensors`


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
    weights: str | None = None  # sha256 of the files in settings.weights; left out where a run starts from none
    parent: ParentRecord | None = None  # left out where a run starts from no other

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        return {k: v for k, v in found.items() if v is not None or k not in ("weights", "parent")}


class JournalLine(Record):
    """A line of `journal.jsonl`: one generation, for people."""

    generation: int
    candidates: int
    best_loss: float
    mean_loss: float
    valid_h: float | None
    seconds: float
    image_queries: int | None = None  # so far; null in runs of earlier versions


class CheckpointLine(Record):
    """A line of `checkpoint.jsonl`, behind its checksum: one generation, for `resume`."""

    generation: int
    candidates: int
    losses: tuple[float, ...]
    chosen: int | None
    valid: Scores | None
    ledger: dict[str, int]
    seconds: float
    z_sum: float | None = None  # of the candidates, to notice a replay that proposes others
    best: str | None = None  # contexts of the chosen candidate: (m, D) as float32, little-endian, in base64
    shape: tuple[int, int] | None = None  # of these
    entered: int | None = None  # lines of this generation in `front.jsonl`; null in old runs
    answers: tuple[int, int, int] | None = None  # shape of its answers in `replies.bin`, if the search learns from them
    warnings: tuple[str, ...] = ()  # said before this generation's end and after that of the one before
    partial: bool = Field(default=False, exclude=True)  # of an old run, whose budget ended inside this generation


class FrontLine(Record):
    """A line of `front.jsonl`: a candidate that entered the Pareto front, with its contexts."""

    generation: int
    candidate: int  # in its generation
    loss: float
    valid: Scores
    trade_off: TradeOff
    contexts: str  # (m, D) as float32, little-endian, in base64
    shape: tuple[int, int]


class PickRecord(Record):
    """`pick.json`: where a picked prompt comes from, and what it forgets and keeps."""

    run: str
    asked: dict[str, float]
    generation: int
    candidate: int
    loss: float
    valid: Scores
    trade_off: TradeOff


class EstimateRecord(Record):
    """A measure and its 95 % interval, by the method that docs/audit.md names for it."""

    value: float
    low: float
    high: float


class Finding(Record):
    """One line of an audit's verdict."""

    mark: Literal["leak", "damage", "unclear", "ok"]
    finding: str
    evidence: str


class AuditSummary(Record):
    """The few figures of an audit that comparisons show: of answers after tuning. All are in `audit.json`."""

    serve: str = "as-is"  # the rule that the prompt carries
    entropy: EstimateRecord | None  # of answers to forgotten images, 1 = uniform
    mutual_information: EstimateRecord | None  # bits that the top label leaks about which forgotten class it is
    largest_share: EstimateRecord | None  # of forgotten images that land on one class
    auroc: EstimateRecord | None  # forgotten images told from kept ones by a logistic probe
    probe: dict[int, EstimateRecord | None]  # by shots: accuracy of a probe that recovers the forgotten class
    probe_chance: float
    calibration_error: float | None  # ECE on kept images
    verdict: tuple[str, ...]
    findings: tuple[Finding, ...] = ()  # the verdict, worst first; none in audits of earlier versions


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
    per_class: dict[str, BeforeAfter]  # accuracy of each class
    entropy_forgotten: BeforeAfter  # how uninformative answers to forgotten images are, 0 to 1
    access: str
    ledger: Ledger
    seconds: dict[str, float]
    train: Scores
    warnings: tuple[str, ...] = ()
    served: ServedScores | None = None  # where the prompt carries a rule for answers; all other scores are before it
    audit: AuditSummary | None = None  # once `unsee audit` has been run

    @field_validator("audit", mode="wrap")
    @classmethod
    def _of_this_version(cls, given: object, read: ValidatorFunctionWrapHandler) -> AuditSummary | None:
        """The summary; none if another version wrote it in another form, as a run can be read without."""
        try:
            found: AuditSummary | None = read(given)
        except ValidationError:
            return None
        return found


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
    serve: str | None = None  # what is done to answers before they leave; left out where that is nothing
    position: str | None = None  # of the class name among the contexts; left out where that is behind them

    @model_serializer(mode="wrap")
    def _leave_out_all(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what is None of these three: the file is then the same as that of earlier versions."""
        found: dict[str, Any] = dump(self)
        return {k: v for k, v in found.items() if v is not None or k not in ("applies_to", "serve", "position")}


RECORDS: dict[str, type[Record]] = {
    "config.json": ConfigRecord,
    "result.json": ResultRecord,
    "prompt.json": PromptCard,
    "journal.jsonl": JournalLine,
    "front.jsonl": FrontLine,
    "pick.json": PickRecord,
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
