"""Other names of a class: synonyms and kinds from WordNet for everyday classes, or a user's own list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from unsee.data.class_names import plain
from unsee.errors import InputError

LIST = Path(__file__).parent.parent / "assets" / "other_names.json"
# Everyday things of no data set here that a label list might also hold.
DISTRACTORS = (
    "accordion",
    "anchor",
    "candle",
    "cannon",
    "carpet",
    "cheese",
    "fountain",
    "glove",
    "guitar",
    "ladder",
    "lighthouse",
    "necklace",
    "pizza",
    "puppet",
    "sandwich",
    "scissors",
    "statue",
    "toothbrush",
    "umbrella",
    "waterfall",
)
OtherNames = Mapping[str, Sequence[str]]


def known_names(class_names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Other names of these classes from the list that comes with the package, synonyms first."""
    listed = _read_list()
    found = {}
    for name in class_names:
        wanted = plain(name).lower()
        entry = listed.get(wanted) or listed.get(wanted.removesuffix("s"))
        if entry is not None:
            found[name] = (*entry.get("near", ()), *entry["synonyms"], *entry["kinds"])
    return found


@cache
def _read_list() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = json.loads(LIST.read_text(encoding="utf-8"))["names"]
    return found


def without_other_names(class_names: Sequence[str], forget: Sequence[str], other_names: OtherNames) -> list[str]:
    """The forgotten classes for which no other name can be tried."""
    tried = {name for used in rounds(class_names, forget, other_names) for name in used}
    return [name for name in forget if name not in tried]


def read_names_file(path: Path) -> dict[str, tuple[str, ...]]:
    """A user's list: JSON such as {"cat": ["kitty", "tabby"]}."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no list of other names ({error})") from None
    wanted = f'{path}: must be JSON such as {{"cat": ["kitty", "tabby"]}}'
    if not isinstance(content, dict):
        raise InputError(wanted)
    found: dict[str, tuple[str, ...]] = {}
    for name, others in content.items():
        if not isinstance(others, list) or not all(isinstance(other, str) and other.strip() for other in others):
            raise InputError(f"{wanted}; {name!r} has {others!r}")
        found[name] = tuple(other.strip() for other in others)
    return found


def rounds(class_names: Sequence[str], forget: Sequence[str], other_names: OtherNames) -> list[dict[str, str]]:
    """Which forgotten class is asked for under which other name: in each round at most one name per class.

    A name that some class already has is left out: it would be on the label list twice.
    """
    taken = {plain(name).lower() for name in class_names}
    left = {name: [o for o in other_names.get(name, ()) if plain(o).lower() not in taken] for name in forget}
    found = []
    for i in range(max((len(names) for names in left.values()), default=0)):
        used: dict[str, str] = {}
        for name, names in left.items():
            if i < len(names) and names[i] not in used.values():
                used[name] = names[i]
        found.append(used)
    return found
