"""Class names: read as a user gives them, checked against the data, listed in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from unsee.errors import InputError, unknown
from unsee.types import Mask

FORGET_SHARE = 0.4  # of the classes, the first ones: what the paper forgets unless it says otherwise
T = TypeVar("T")
_SYNSET = re.compile(r" \(n\d{8}\)$")


def read_names(text: str | Sequence[str]) -> tuple[str, ...]:
    """Class names from a comma-separated text or a list."""
    if not isinstance(text, Iterable):
        raise InputError(f"classes to forget are a name or a list of names, not {text!r}")
    parts = text.split(",") if isinstance(text, str) else list(text)
    for part in parts:
        if not isinstance(part, str):
            raise InputError(f"class names are text, not {part!r}")
    names = tuple(part.strip() for part in parts if part.strip())
    if not names:
        raise InputError("no class to forget was named")
    return names


def forget_mask(class_names: Sequence[str], forget: Sequence[str]) -> Mask:
    """True for each class to forget; refuses unknown names, and forgetting all or nothing.

    Capitals may differ where it is clear which class is meant.
    """
    names = [plain(name) for name in class_names]
    wanted = [_meant(plain(name).strip(), names) for name in forget]
    for name in wanted:
        if name not in names:
            raise InputError(unknown("class to forget", name, names))
    mask = np.array([name in wanted for name in names], dtype=np.bool_)
    if not mask.any():
        raise InputError(f"no class to forget was named; the data has: {', '.join(names[:12])}")
    if mask.all():
        raise InputError(f"all {len(names)} classes are to be forgotten; at least one must be kept")
    return mask


def _meant(name: str, names: Sequence[str]) -> str:
    """The class of this name; but for capitals, if there is none and one differs in these alone."""
    alike = [known for known in names if known.lower() == name.lower()]
    return alike[0] if name not in names and len(alike) == 1 else name


def first_share(class_names: Sequence[T], share: float = FORGET_SHARE) -> tuple[T, ...]:
    """The first classes, this share of them rounded to the nearest number: what the paper forgets. At least one."""
    return tuple(class_names[: max(1, round(share * len(class_names)))])


def plain(class_name: str) -> str:
    """A class name with spaces for underscores."""
    return class_name.replace("_", " ")


def in_prompt(class_name: str) -> str:
    """A class name as it appears in a prompt: without the synset that tells two classes of one name apart in tables."""
    return _SYNSET.sub("", plain(class_name))


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names in a sentence, the rest of a long list counted."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
