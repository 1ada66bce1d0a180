"""Is it really forgotten? Asks a finished run again, in more ways than its scores do, and says what it finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from unsee.answers.intervals import paired_difference
from unsee.answers.metrics import top_classes
from unsee.audit.answers import estimate, measure_answers, measure_membership, measure_served
from unsee.audit.attack_records import WorstCase
from unsee.audit.damage import fragility, kept_damage, sibling_damage
from unsee.audit.other_names import OtherNames, known_names
from unsee.audit.rebuild import rebuild
from unsee.audit.record import VERSION, Answers, AuditRecord, Membership, Variation
from unsee.audit.relearning import relearn
from unsee.audit.robustness import (
    AskedAgain,
    AskedOthers,
    Changed,
    Renamed,
    add_distractors,
    ask_other_data,
    ask_other_names,
    disturb_images,
    sample,
    sample_rows,
    swap_templates,
)
from unsee.audit.subject import Subject, open_subject
from unsee.audit.verdict import eligibility, judge, sentences
from unsee.audit.worst_case import make_attackers, worst_case
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.errors import InputError, RunError, unknown
from unsee.methods.recorder import Say
from unsee.models.black_box import BlackBox
from unsee.runs.folder import AUDIT, PICK, RESULT, is_finished, read_result
from unsee.runs.lock import FolderLock
from unsee.runs.records import EstimateRecord, write_record
from unsee.types import Floats

PARTS = ("membership", "names", "templates", "distractors", "pictures", "attacks", "rebuild", "relearning")
USUAL = tuple(part for part in PARTS if part != "relearning")  # relearning tunes prompts: minutes, not seconds
T = TypeVar("T")


def audit(
    run: str | Path,
    model: BlackBox,
    data: Data,
    *,
    parts: Sequence[str] = USUAL,
    other_names: OtherNames | None = None,
    other_data: Data | None = None,
    say: Say = lambda text: None,
) -> AuditRecord:
    """Audits a finished run, writes `audit.json` into its folder and a summary into its `result.json`."""
    for part in parts:
        if part not in PARTS:
            raise InputError(unknown("part of an audit", part, PARTS))
    if not is_finished(run) and not (Path(run) / PICK).is_file():
        raise RunError(f"{run} is not a finished run (no result.json); continue it with: unsee resume {run}")
    found = audit_subject(
        open_subject(run, model, data), parts=parts, other_names=other_names, other_data=other_data, say=say
    )
    if (Path(run) / PICK).is_file():  # nothing else writes to it, and it has no result of its own
        write_record(Path(run) / AUDIT, found)
        return found
    with FolderLock(Path(run), wait=60):
        write_record(Path(run) / AUDIT, found)
        write_record(Path(run) / RESULT, read_result(run).model_copy(update={"audit": found.summary()}))
    return found


def audit_subject(
    subject: Subject,
    *,
    parts: Sequence[str] = USUAL,
    other_names: OtherNames | None = None,
    other_data: Data | None = None,
    say: Say = lambda text: None,
) -> AuditRecord:
    """The audit of anything that answers."""
    started, task, data = time.perf_counter(), subject.task, subject.data
    for name in other_names or ():
        if name not in task.forgotten:
            raise InputError(unknown("forgotten class in the list of other names", name, task.forgotten))
    test, some = data.test, sample_rows(data.test.labels, subject.seed)
    few = test.subset(some)
    if len(test) == 0:
        raise InputError("there are no test images to audit on")
    bound = subject.bind(test)
    before, unserved = subject.before(bound), subject.unserved(bound)
    after = subject.seen(unserved)
    say(f"auditing answers to {len(test)} test images")
    names, seed = data.class_names, subject.seed
    missing: list[str] = []

    def part(name: str, make: Callable[[], T], otherwise: T) -> T:
        """This part of the audit, or a note that this method or model does not allow it."""
        if name not in parts:
            return otherwise
        say(f"auditing {name}")
        try:
            return make()
        except InputError as error:
            missing.append(f"{name}: {error}")
            return otherwise

    known = known_names(task.forgotten) if other_names is None else other_names
    nothing: list[Changed] = []
    renamed: list[Renamed] = []
    asked = AskedAgain(
        labels=few.labels,
        before=None if before is None else top_classes(before[some]),
        after=after[some],
        renamed=part("names", lambda: ask_other_names(subject, few, known), renamed),
        templates=part("templates", lambda: swap_templates(subject, few), nothing),
        distractors=part("distractors", lambda: [add_distractors(subject, few)], nothing),
        pictures=part("pictures", lambda: disturb_images(subject, few), nothing),
    )
    others = None if other_data is None else _other_data(subject, other_data, missing)

    def variations(changed: Sequence[Changed]) -> tuple[Variation, ...]:
        return tuple(each.variation(few.labels, subject.forget) for each in changed)

    then = None if before is None else measure_answers(before, test.labels, subject.forget, names, seed)
    now = measure_answers(after, test.labels, subject.forget, names, seed)
    found = AuditRecord(
        version=VERSION,
        method=task.settings.method,
        serve=subject.rule,
        seed=seed,
        model=subject.model.card.name,
        data=data.name,
        forget=task.forgotten,
        images=len(test),
        chance=1 / len(names),
        probe_chance=1 / len(task.forgotten),
        before=None if then is None else _noted(then, then, 1 / len(names)),
        after=now if then is None else _noted(now, then, 1 / len(names)),
        serving=measure_served(unserved, test.labels, subject.forget, seed),
        membership=part("membership", lambda: _membership(subject), None),
        other_names=tuple(record for each in asked.renamed for record in each.records(few.labels, names)),
        templates=variations(asked.templates),
        distractors=next(iter(variations(asked.distractors)), None),
        pictures=variations(asked.pictures),
        relearned=part("relearning", lambda: relearn(subject, few, say=say), None),
        other_data=None if others is None else others.record(),
        change_kept=None if before is None else _change_kept(subject, before, after),
        worst_case=part("attacks", lambda: _worst_case(subject, asked), None),
        near_kept=None if before is None else kept_damage(before, after, test.labels, subject.forget, names),
        near_others=None if others is None or before is None else sibling_damage(subject, others),
        fragility=fragility(asked, subject.forget),
        rebuilt=part("rebuild", lambda: rebuild(subject, few, known), None),
        not_audited=tuple(missing),
        image_queries=subject.ledger.image_queries,
        seconds=round(time.perf_counter() - started, 3),
    )
    findings = judge(found)
    return found.model_copy(
        update={"findings": findings, "verdict": sentences(findings), "not_audited": tuple(missing)}
    )


def _noted(found: Answers, before: Answers, chance: float) -> Answers:
    """These answers, with a note of each forgotten class whether it was known before."""
    noted = {
        name: each.model_copy(update={"eligibility": eligibility(before.per_class[name].accuracy, chance)})
        for name, each in found.per_class.items()
    }
    return found.model_copy(update={"per_class": noted})


def _change_kept(subject: Subject, before: Floats, after: Floats) -> EstimateRecord | None:
    labels = subject.data.test.labels
    kept = ~subject.forget[labels]
    return estimate(paired_difference(*((top_classes(p) == labels)[kept] for p in (before, after))))


def _worst_case(subject: Subject, asked: AskedAgain) -> WorstCase | None:
    gone, names = asked.labels[subject.forget[asked.labels]], subject.data.class_names
    return worst_case(make_attackers(asked, subject.forget, names), gone, len(names), subject.seed)


def _membership(subject: Subject) -> Membership:
    """The shots against training images that were not tuned or validated on; where there are none, test images."""
    train, split = subject.data.train, subject.task.split
    free = np.setdiff1d(np.arange(len(train)), np.concatenate([split.train, split.valid]))
    unused = sample(train.subset(free), subject.seed, 100)
    which = "training images that were not used"
    if len(np.unique(unused.labels)) < len(np.unique(train.labels)):
        unused, which = subject.data.test, "test images"
    shots, others = train.subset(split.train), _labelled(unused)
    mine, theirs = (subject.after(subject.bind(images)) for images in (shots, others))
    return measure_membership(mine, shots.labels, theirs, others.labels, subject.forget, which)


def _labelled(images: Images) -> Images:
    return images.subset(np.flatnonzero(images.labels >= 0))


def _other_data(subject: Subject, data: Data, missing: list[str]) -> AskedOthers | None:
    try:
        return ask_other_data(subject, data, sample(data.test, subject.seed))
    except InputError as error:
        missing.append(f"other data: {error}")
        return None
