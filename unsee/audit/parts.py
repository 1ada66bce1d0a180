"""Every part of an audit, by name, in the order they are measured: later parts use what earlier ones have asked."""

from __future__ import annotations

from collections.abc import Sequence

from unsee.audit.damage import FRAGILE, NEAR_KEPT, NEAR_OTHERS
from unsee.audit.membership import TUNING_SHOTS
from unsee.audit.other_data import OTHER_CLASSES
from unsee.audit.part import Part
from unsee.audit.rebuild import UNDOING
from unsee.audit.relearning import RELEARNING
from unsee.audit.renaming import UNDER_OTHER_NAMES
from unsee.audit.service_routes import SERVICE_ROUTES
from unsee.audit.variations import CHANGED_IMAGES, MORE_NAMES, OTHER_TEMPLATES
from unsee.audit.worst_case import ATTACKS
from unsee.errors import InputError, unknown

PARTS: dict[str, Part] = {
    "names": UNDER_OTHER_NAMES,
    "templates": OTHER_TEMPLATES,
    "distractors": MORE_NAMES,
    "pictures": CHANGED_IMAGES,
    "attacks": ATTACKS,
    "rebuild": UNDOING,
    "membership": TUNING_SHOTS,
    "relearning": RELEARNING,  # tunes prompts: minutes, not seconds
    "other data": OTHER_CLASSES,
    "near kept": NEAR_KEPT,
    "near others": NEAR_OTHERS,
    "fragility": FRAGILE,
    "service": SERVICE_ROUTES,  # of models behind unsee serve
}


def usual_parts() -> list[str]:
    """The parts that an audit has unless it is asked for others."""
    return [name for name, part in PARTS.items() if part.when == "usual"]


def choose_parts(skip: Sequence[str] = (), also: Sequence[str] = ()) -> list[str]:
    """The usual parts and others, without those to skip."""
    check_parts(skip, "part to skip")
    return [name for name in [*usual_parts(), *also] if name not in skip]


def check_parts(names: Sequence[str], what: str = "part of an audit") -> None:
    """Refuses names of parts that do not exist, or that are measured whatever is asked for."""
    known = [name for name, part in PARTS.items() if part.when != "always"]
    for name in names:
        if name not in known:
            raise InputError(unknown(what, name, known))
