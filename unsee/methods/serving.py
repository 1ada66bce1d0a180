"""What a provider can do to answers before they leave: fewer digits, the top label alone, a mask, a gate.

Each rule takes confidences (n, C) and which names are on its list (C,), and gives what a caller sees: rows that sum
to 1.
"Suspect" answers are those whose top class is on the list.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsee.metrics import answers, mask_confidences
from unsee.seeds import stream
from unsee.types import Floats, Mask

TEMPERATURE = 10.0  # of suspect answers
Rule = Callable[[Floats, Mask, np.random.Generator], Floats]


def as_is(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """All confidences."""
    return p


def one_digit(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """Confidences with one decimal digit; the top one first among equals."""
    return _round(p, 1)


def two_digits(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """Confidences with two decimal digits; the top one first among equals."""
    return _round(p, 2)


def top_label(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The top label, and nothing of how sure it is."""
    found: Floats = np.eye(p.shape[1], dtype=np.float32)[answers(p)]
    return found


def mask(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The listed names struck, the rest made to sum to 1 again."""
    return mask_confidences(p, listed)


def gate(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """A suspect answer made uniform, its top class left to chance."""
    suspect = listed[answers(p)]
    uniform = 1 / p.shape[1] + 1e-6 * rng.random(p.shape)
    found: Floats = np.where(suspect[:, None], uniform, p).astype(np.float32)
    return found


def temperature(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """A suspect answer flattened: logs divided by TEMPERATURE."""
    suspect = listed[answers(p)]
    flat = np.maximum(p, 1e-12).astype(np.float64) ** (1 / TEMPERATURE)
    flat /= flat.sum(axis=1, keepdims=True)
    found: Floats = np.where(suspect[:, None], flat, p).astype(np.float32)
    return found


def mask_one_digit(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The listed names struck, the rest with one decimal digit: what is nearly uniform becomes the same for all."""
    return one_digit(mask(p, listed, rng), listed, rng)


def mask_top_label(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The top label among the names that are not struck."""
    return top_label(mask(p, listed, rng), listed, rng)


SERVING: dict[str, Rule] = {
    "as-is": as_is,
    "two-digits": two_digits,
    "one-digit": one_digit,
    "top-label": top_label,
    "mask": mask,
    "mask-one-digit": mask_one_digit,
    "mask-top-label": mask_top_label,
    "gate": gate,
    "temperature": temperature,
}


def serve(p: Floats, listed: Mask, rule: str, about: str = "") -> Floats:
    """What a caller sees of these answers under the rule of this name; the same each time.

    What is left to chance hangs on the row, and on what the answers are about: a name for images that are asked one
    by one, which would all be row 0.
    """
    return SERVING[rule](p, listed, stream(0, f"serve{about}"))


def _round(p: Floats, digits: int) -> Floats:
    """Rounded shares of the total; the top class keeps a hair's lead, as a list of answers has an order."""
    found = np.round(p.astype(np.float64), digits)
    found[np.arange(len(p)), answers(p)] += 1e-6
    shares: Floats = (found / found.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares
