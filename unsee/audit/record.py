"""`audit.json`: what an audit of a run found. Shares and AUROCs are fractions; null where nothing could be measured."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from pydantic import Field, JsonValue

from unsee.answers.intervals import Estimate
from unsee.audit.attack_records import Fragility, NearDamage, Rebuilt, WorstCase
from unsee.runs.folder import AUDIT
from unsee.runs.records import AuditSummary, EstimateRecord, Finding, Record, read_record
from unsee.types import Scores

VERSION = 3  # of the measures; audits of an earlier one have other intervals, and are made again where one is asked for
R = TypeVar("R", bound=Record)
Eligibility = Literal["known", "never known", "too few images"]


class ForgottenClass(Record):
    """Answers to test images of one forgotten class."""

    images: int = 0  # test images of it
    eligibility: Eligibility | None = None  # whether it was recognised under the plain prompt; null if there is none
    accuracy: EstimateRecord | None
    entropy: EstimateRecord | None  # of the most uninformative answer
    kl: EstimateRecord | None
    largest_share: EstimateRecord | None
    lands_on: str | None  # the class that share lands on


class KeptClass(Record):
    """The kept class that is recognised least."""

    name: str
    accuracy: float


class Answers(Record):
    """What answers to the test images leak: under the plain prompt (before), or as served (after)."""

    images: int = 0  # test images of forgotten classes
    scores: Scores
    accuracy_forgotten: EstimateRecord | None
    times_chance: float | None  # that accuracy, with 1/C as the unit
    entropy: EstimateRecord | None  # of answers to forgotten images, 1 = uniform
    kl: EstimateRecord | None  # to the uniform answer, in nats
    largest_share: EstimateRecord | None  # of forgotten images that land on one class
    lands_on: str | None
    mutual_information: EstimateRecord | None  # bits that the top label leaks about which forgotten class it is
    auroc_confidence: EstimateRecord | None  # of detecting forgotten images among kept ones: by low confidence
    auroc_entropy: EstimateRecord | None  # by high entropy
    auroc_probe: EstimateRecord | None  # by a logistic probe on all confidences
    probe: dict[int, EstimateRecord | None]  # by shots: forgotten class recovered on held-out images
    prototype: dict[int, EstimateRecord | None] = Field(default_factory=dict)  # the same by the nearest class mean
    accuracy_kept: EstimateRecord | None
    calibration_error: float | None  # ECE on kept images
    worst_kept: KeptClass | None
    per_class: dict[str, ForgottenClass]


class Membership(Record):
    """AUROC of detecting tuning shots among other images of their classes by the confidence in the true class."""

    forgotten: EstimateRecord | None
    kept: EstimateRecord | None
    others: str  # which images the shots were compared with
    forgotten_shots: int = 0
    kept_shots: int = 0


class Served(Record):
    """What answers leak after a provider's rule; `as-is` is the prompt alone."""

    scores: Scores
    accuracy_forgotten: EstimateRecord | None = None
    entropy: float | None
    mutual_information: float | None
    auroc_probe: float | None
    probe: dict[int, float | None]


class OtherName(Record):
    """A forgotten class asked for under another name: accuracy on its images."""

    class_name: str
    name: str
    before: float | None
    after: float
    accuracy: EstimateRecord | None = None  # `after` with its interval
    images: int = 0


class Variation(Record):
    """Scores where something around the class names, or in the images, is not as it was in tuning."""

    name: str
    before: Scores | None
    after: Scores
    recognised: EstimateRecord | None = None  # forgotten images, after
    images: int = 0  # of forgotten classes


class Relearned(Record):
    """Labelled images per class with which a fresh prompt brings forgotten classes back."""

    method: str
    accuracy: dict[int, float]  # of forgotten classes together, by shots
    shots: int | None  # the fewest that bring them back to 90 % of their old accuracy; null if none of these did
    per_class: dict[str, int | None]
    recognised: dict[int, EstimateRecord] = Field(default_factory=dict)  # `accuracy` with its interval
    before: float | None = None  # their old accuracy on these images
    images: int = 0  # of forgotten classes


class OtherData(Record):
    """Accuracy on classes that were neither forgotten nor kept."""

    data: str
    classes: int
    before: float | None
    after: float
    change: EstimateRecord | None = None  # after minus before, of the same images


class AuditRecord(Record):
    """`audit.json`."""

    version: int = 1  # of the measures
    method: str
    serve: str = "as-is"  # the rule that the prompt carries; `after` is what it leaves, `serving` other rules instead
    seed: int
    model: str
    data: str
    forget: tuple[str, ...]
    images: int
    chance: float  # 1/C
    probe_chance: float  # 1 / number of forgotten classes
    before: Answers | None
    after: Answers
    serving: dict[str, Served]
    membership: Membership | None = None
    other_names: tuple[OtherName, ...] = ()
    templates: tuple[Variation, ...] = ()
    distractors: Variation | None = None
    pictures: tuple[Variation, ...] = ()
    relearned: Relearned | None = None
    other_data: OtherData | None = None
    worst_case: WorstCase | None = None
    near_kept: NearDamage | None = None  # kept classes nearest to the forgotten ones
    near_others: NearDamage | None = None  # classes of other data nearest to them
    fragility: Fragility | None = None
    rebuilt: Rebuilt | None = None
    more: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)  # parts without a field of their own, by name
    not_audited: tuple[str, ...] = ()  # parts that this method or model does not allow, and why
    change_kept: EstimateRecord | None = None  # accuracy on kept images, after minus before
    findings: tuple[Finding, ...] = ()  # the verdict, worst first
    verdict: tuple[str, ...] = ()  # the same as sentences
    image_queries: int = 0  # that the audit itself asked
    seconds: float = 0.0

    def part(self, name: str, record: type[R]) -> R | None:
        """A part that has no field of its own, as its record; None if it was not audited."""
        return record.model_validate(self.more[name]) if name in self.more else None

    def summary(self) -> AuditSummary:
        """The few figures that `result.json` and comparisons show."""
        after = self.after
        return AuditSummary(
            serve=self.serve,
            entropy=after.entropy,
            mutual_information=after.mutual_information,
            largest_share=after.largest_share,
            auroc=after.auroc_probe,
            probe=after.probe,
            probe_chance=self.probe_chance,
            calibration_error=after.calibration_error,
            verdict=self.verdict,
            findings=self.findings,
        )


def estimate(found: Estimate | None) -> EstimateRecord | None:
    """A measure as a record; None without images."""
    if found is None or np.isnan([found.value, found.low, found.high]).any():
        return None
    return EstimateRecord(value=found.value, low=found.low, high=found.high)


def read_audit(run: str | Path) -> AuditRecord | None:
    """The audit of a run folder; None if there is none, or one by other measures than today's.

    RunError if the file is damaged.
    """
    path = Path(run) / AUDIT
    if not path.is_file():
        return None
    if read_record(_Versioned, path, "holds no audit").version != VERSION:
        return None
    return read_record(AuditRecord, path, "holds no audit")


class _Versioned(Record):
    """All that is asked of an audit by another version."""

    version: int = 1
