"""Is it really forgotten? Asks a finished run again, in more ways than its scores do, and says what it finds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from unsee.answers.intervals import paired_difference
from unsee.answers.metrics import top_classes
from unsee.audit.case import Case
from unsee.audit.earlier import keep_parts, same_answers
from unsee.audit.leakage import measure_answers, measure_served
from unsee.audit.part import Measured
from unsee.audit.parts import PARTS, check_parts, usual_parts
from unsee.audit.record import VERSION, Answers, AuditRecord, estimate, read_audit
from unsee.audit.subject import BY_SERVICE, Subject, open_subject
from unsee.audit.verdict import eligibility, judge, sentences
from unsee.data.data_set import Data
from unsee.data.other_names import OtherNames
from unsee.errors import InputError, RunError, unknown
from unsee.models.black_box import BlackBox
from unsee.runs.folder import AUDIT, PICK, RESULT, SERVICE_AUDIT, is_finished, read_result
from unsee.runs.lock import FolderLock
from unsee.runs.records import EstimateRecord, Record, write_record
from unsee.types import Floats, Say


def audit(
    run: str | Path,
    model: BlackBox,
    data: Data,
    *,
    parts: Sequence[str] | None = None,
    other_names: OtherNames | None = None,
    other_data: Data | None = None,
    all_images: bool = False,
    say: Say = lambda text: None,
) -> AuditRecord:
    """Audits a finished run, writes `audit.json` into its folder and a summary into its `result.json`.

    parts: names from `parts.py`; the usual ones if none are given. What is left out is kept from an earlier audit of
    the same answers, so that a shorter audit never replaces a fuller one. A service whose key may only classify is
    asked about a sample of the test images, or about all_images.
    """
    check_parts(parts or ())
    if not is_finished(run) and not (Path(run) / PICK).is_file():
        raise RunError(f"{run} is not a finished run (no result.json); continue it with: unsee resume {run}")
    found = audit_case(Case(open_subject(run, model, data, all_images), other_names, other_data, say), parts)
    if found.serve == BY_SERVICE:  # of the service's answers to a key, not of the run
        write_record(Path(run) / SERVICE_AUDIT, found)
        return found
    found = _with_earlier(Path(run), found, say)
    if (Path(run) / PICK).is_file():  # nothing else writes to it, and it has no result of its own
        write_record(Path(run) / AUDIT, found)
        return found
    with FolderLock(Path(run), wait=60):
        write_record(Path(run) / AUDIT, found)
        write_record(Path(run) / RESULT, read_result(run).model_copy(update={"audit": found.summary()}))
    return found


def _with_earlier(run: Path, found: AuditRecord, say: Say) -> AuditRecord:
    """The audit with the parts that it left out from an earlier one of the same answers; says which."""
    try:
        earlier = read_audit(run)
    except RunError:  # damaged: there is nothing to keep
        return found
    if earlier is None:
        return found
    if not same_answers(found, earlier):
        say("the earlier audit is of other answers and is replaced")
        return found
    whole, kept = keep_parts(found, earlier)
    if not kept:
        return found
    say(f"kept from the earlier audit: {', '.join(kept)}")
    findings = judge(whole)
    return whole.model_copy(update={"findings": findings, "verdict": sentences(findings)})


def audit_case(case: Case, parts: Sequence[str] | None = None) -> AuditRecord:
    """The audit of anything that answers."""
    started, subject = time.perf_counter(), case.subject
    for name in case.given_names or ():
        if name not in subject.task.forgotten:
            raise InputError(unknown("forgotten class in the list of other names", name, subject.task.forgotten))
    if len(case.test) == 0:
        raise InputError("there are no test images to audit on")
    all_of = f" of {len(case.test) + subject.left_out}" if subject.left_out else ""
    case.say(f"auditing answers to {len(case.test)}{all_of} test images")
    parts = usual_parts() if parts is None else parts
    if subject.one_by_one:
        _say_how_long(case, parts)
    found = _measure_parts(_measure_answers(case), case, parts)
    findings, seconds = judge(found), round(time.perf_counter() - started, 3)
    return found.model_copy(
        update={
            "findings": findings,
            "verdict": sentences(findings),
            "image_queries": subject.ledger.image_queries,
            "seconds": seconds,
        }
    )


def _say_how_long(case: Case, parts: Sequence[str]) -> None:
    """Asks a service about the test images, and says how long that took and the rest will take."""
    asked = sum(part.questions(case) for name, part in PARTS.items() if part.when == "always" or name in parts)
    case.say(f"the service is asked about {len(case.test) + asked} times, for one image each")
    started = time.perf_counter()
    count = len(case.unserved)
    seconds = time.perf_counter() - started
    case.say(f"{count} answers in {seconds:.0f} s; the rest takes about {asked * seconds / count:.0f} s")


def _measure_answers(case: Case) -> AuditRecord:
    """The audit so far: answers to all test images, before and as served."""
    subject, labels, names = case.subject, case.test.labels, case.subject.data.class_names
    chance, seed = 1 / len(names), subject.seed
    before = None if case.before is None else measure_answers(case.before, labels, subject.forget, names, seed)
    after = measure_answers(case.after, labels, subject.forget, names, seed)
    return AuditRecord(
        version=VERSION,
        method=subject.task.settings.method,
        serve=subject.rule,
        seed=seed,
        model=subject.model.card.name,
        data=subject.data.name,
        forget=subject.task.forgotten,
        images=len(labels),
        chance=chance,
        probe_chance=1 / len(subject.task.forgotten),
        before=None if before is None else _noted(before, before, chance),
        after=after if before is None else _noted(after, before, chance),
        serving={} if subject.rule == BY_SERVICE else measure_served(case.unserved, labels, subject.forget, seed),
        change_kept=None if case.before is None else _change_kept(subject, case.before, case.after),
    )


def _measure_parts(found: AuditRecord, case: Case, parts: Sequence[str]) -> AuditRecord:
    """The audit with these parts, and a note of each that this method or model does not allow."""
    fields: dict[str, Measured] = {}
    more: dict[str, dict[str, JsonValue]] = {}
    missing: list[str] = []
    if case.subject.left_out:
        missing.append(f"{case.subject.left_out} test images: this key is audited on a sample (--all-images: on all)")
    for name, part in PARTS.items():
        if part.when != "always" and name not in parts:
            continue
        if part.when != "always":
            case.say(f"auditing {name}")
        missing += part.not_tried(case)
        try:
            measured = part.measure(case)
        except InputError as error:
            missing.append(f"{name}: {error}")
            continue
        if part.field is not None:
            fields[part.field] = measured
        elif isinstance(measured, Record):
            more[name] = measured.model_dump(mode="json")
    return found.model_copy(update={**fields, "more": more, "not_audited": tuple(missing)})


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
