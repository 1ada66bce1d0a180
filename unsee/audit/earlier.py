"""An earlier audit of the same answers: what a shorter one keeps of it."""

from __future__ import annotations

from unsee.audit.part import Part
from unsee.audit.parts import PARTS
from unsee.audit.record import AuditRecord

SAME = ("version", "method", "serve", "seed", "model", "data", "forget", "images", "before", "after", "serving")
DERIVED = ("attacks", "fragility")  # of what other parts have asked: with fewer parts they say less


def same_answers(found: AuditRecord, earlier: AuditRecord) -> bool:
    """Whether both audits are of the same answers: measured from the same state of the run, on the same images."""
    return all(getattr(found, key) == getattr(earlier, key) for key in SAME)


def keep_parts(found: AuditRecord, earlier: AuditRecord) -> tuple[AuditRecord, list[str]]:
    """The audit with each part that only the earlier one has, and the names of these parts."""
    missing = [name for name, part in PARTS.items() if _has(earlier, name, part) and not _has(found, name, part)]
    also = [name for name in DERIVED if missing and name not in missing and _has(earlier, name, PARTS[name])]
    kept = [name for name in PARTS if name in (*missing, *also)]
    fields: dict[str, object] = {field: getattr(earlier, field) for name in kept if (field := PARTS[name].field)}
    more = found.more | {name: earlier.more[name] for name in kept if PARTS[name].field is None}
    known = set(found.not_audited)
    notes = [note for note in earlier.not_audited if note not in known and _about(note, missing)]
    update = {**fields, "more": more, "not_audited": (*found.not_audited, *notes)}
    return found.model_copy(update=update), kept


def _has(record: AuditRecord, name: str, part: Part) -> bool:
    return bool(getattr(record, part.field)) if part.field else name in record.more


def _about(note: str, missing: list[str]) -> bool:
    """Whether a note is about a part that was left out now: it still holds for what is kept."""
    return any(note.startswith((f"{name}:", f"other {name} ")) for name in missing)
