"""Where contexts and class names are in a prompt, and whether they fit: the same for every text tower."""

from __future__ import annotations

from unsee.errors import InputError
from unsee.settings import POSITIONS


def check_position(position: str) -> None:
    """Refuses a position of the class name that does not exist."""
    if position not in POSITIONS:
        raise InputError(f"the class position is one of {', '.join(POSITIONS)}, not {position!r}")


def contexts_before(position: str, contexts: int) -> int:
    """How many of the contexts are before the class name."""
    return {"end": contexts, "middle": contexts // 2, "front": 0}[position]


def check_context_room(shape: tuple[int, ...], width: int, limit: int, room: int, special: str) -> None:
    """Refuses contexts (b, m, D) of another width than the model's tokens, and more than there is room for."""
    _, m, given = shape
    if given != width:
        raise InputError(f"contexts are {given} wide, the model's tokens {width}")
    if m > room:
        raise InputError(
            f"{m} contexts do not fit: of the model's {limit} tokens, {special} and the longest class name take "
            f"{limit - room}, which leaves {room}"
        )
