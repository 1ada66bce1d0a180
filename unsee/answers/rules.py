"""Every rule on answers, in one dict: what a provider can do to them before they leave, and methods without tuning.

Each rule takes confidences (n, C) and which names are on its list (C,), and gives what a caller sees. Whatever the
number of names, every rule keeps three promises. Rows sum to 1. A name with a higher confidence is never served with a
lower one (but a gate makes all names of a suspect answer alike). An answer that is mixed with an even one is never
served with a higher top confidence, so an uninformative answer stays one.
"Suspect" answers are those whose top class is on the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsee.answers.metrics import top_classes
from unsee.seeds import stream
from unsee.types import Floats, Ints, Mask

TEMPERATURE = 10.0  # of suspect answers
LEAD = 1e-6  # of the top name among equals, as a list of answers has an order
BARELY = 1e-4  # by which one name of a gated answer leads, as a share of its confidence
Apply = Callable[[Floats, Mask, np.random.Generator], Floats]


@dataclass(frozen=True)
class Rule:
    """A rule on answers, and a line about it."""

    apply: Apply
    about: str
    for_prompts: bool = True  # a prompt can carry it (`--serve`); the others are methods of their own
    removes_names: bool = False  # no listed name can be the answer
    digits: int | None = None  # of a confidence that a caller sees; 0: none of it; None: all

    def __call__(self, p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
        """What a caller sees of these answers. (n, C) -> (n, C)."""
        return self.apply(p, listed, rng)


def label_mask_answers(confidences: Floats, forget: Mask) -> Ints:
    """The top class among the names that are kept: forgetting without tuning. (n, c) -> (n,)."""
    kept = np.where(forget, -np.inf, confidences)
    top: Ints = kept.argmax(axis=-1)
    return top


def mask_confidences(confidences: Floats, forget: Mask) -> Floats:
    """Forgotten names dropped from the label list, the rest made to sum to 1 again. (n, c) -> (n, c)."""
    kept = np.where(forget, 0, confidences).astype(np.float64)
    total = kept.sum(axis=1, keepdims=True)
    rest = ~forget / max(1, int((~forget).sum()))  # where nothing is left of an answer: all kept names alike
    found: Floats = np.where(total > 0, kept / np.maximum(total, 1e-300), rest).astype(np.float32)
    return found


def as_is(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """All confidences."""
    return p


def one_digit(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """Confidences in steps of 0.1 above an even share; the top one first among equals."""
    return _in_steps(p, np.zeros_like(listed), 0.1)


def two_digits(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """Confidences in steps of 0.01 above an even share; the top one first among equals."""
    return _in_steps(p, np.zeros_like(listed), 0.01)


def top_label(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The top label, and nothing of how sure it is."""
    found: Floats = np.eye(p.shape[1], dtype=np.float32)[top_classes(p)]
    return found


def mask(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The listed names removed, the rest made to sum to 1 again."""
    return mask_confidences(p, listed)


def gate(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """A suspect answer made uniform, its top class left to chance."""
    suspect = listed[top_classes(p)]
    uniform = np.ones(p.shape)
    uniform[np.arange(len(p)), rng.integers(p.shape[1], size=len(p))] += BARELY
    uniform /= uniform.sum(axis=1, keepdims=True)
    found: Floats = np.where(suspect[:, None], uniform, p).astype(np.float32)
    return found


def temperature(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """A suspect answer flattened: logs divided by TEMPERATURE."""
    suspect = listed[top_classes(p)]
    flat = np.maximum(p, 1e-12).astype(np.float64) ** (1 / TEMPERATURE)
    flat /= flat.sum(axis=1, keepdims=True)
    found: Floats = np.where(suspect[:, None], flat, p).astype(np.float32)
    return found


def mask_one_digit(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The listed names removed, the rest in steps of 0.1 above an even share."""
    return _in_steps(mask_confidences(p, listed), listed, 0.1)


def mask_top_digit(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The listed names removed; the top name in steps of 0.1 above an even share, all others alike.

    An answer that is not half a step above an even share is the same for all names that are left and has no top name:
    that is what forgotten images should get.
    """
    return _in_steps(mask_confidences(p, listed), listed, 0.1, top_only=True, lead=0.0)


def mask_top_label(p: Floats, listed: Mask, rng: np.random.Generator) -> Floats:
    """The top label among the names that are not removed."""
    return top_label(mask(p, listed, rng), listed, rng)


RULES: dict[str, Rule] = {
    "as-is": Rule(as_is, "all confidences, as the model gives them"),
    "two-digits": Rule(two_digits, "confidences in steps of 0.01 above an even share", digits=2),
    "one-digit": Rule(one_digit, "confidences in steps of 0.1 above an even share", digits=1),
    "top-label": Rule(top_label, "the top label, no confidences", digits=0),
    "mask": Rule(mask, "forgotten names removed, the rest rescaled to sum to 1", removes_names=True),
    "mask-one-digit": Rule(
        mask_one_digit, "forgotten names removed, the rest in steps of 0.1", removes_names=True, digits=1
    ),
    "mask-top-digit": Rule(
        mask_top_digit,
        "forgotten names removed, the top name in steps of 0.1, all others alike",
        removes_names=True,
        digits=1,
    ),
    "mask-top-label": Rule(mask_top_label, "the top label among the names that are kept", removes_names=True, digits=0),
    "gate": Rule(gate, "an answer with a forgotten name on top made uniform"),
    "temperature": Rule(temperature, "an answer with a forgotten name on top flattened"),
    "zero-shot": Rule(as_is, "the plain prompt, nothing tuned", for_prompts=False),
    "label-mask": Rule(
        mask, "forgotten names removed from the plain prompt's label list", for_prompts=False, removes_names=True
    ),
    "uniform-gate": Rule(gate, "a gate on the plain prompt's answers", for_prompts=False),
}


def rules_for_prompts() -> dict[str, Rule]:
    """The rules that a prompt can carry, by name."""
    return {name: rule for name, rule in RULES.items() if rule.for_prompts}


def serve(p: Floats, listed: Mask, rule: str, about: str = "") -> Floats:
    """What a caller sees of these answers under the rule of this name; the same each time.

    What is left to chance hangs on the row, and on what the answers are about: a name for images that are asked one
    by one, which would all be row 0.
    """
    return RULES[rule](p, listed, stream(0, f"serve{about}"))


def show_digits(confidence: float, rule: str) -> float:
    """A confidence to as many digits as the rule lets through: more would not tell more. Halves are rounded up."""
    digits = RULES[rule].digits
    return confidence if not digits else math.floor(confidence * 10**digits + 0.5 + 1e-6) / 10**digits


def confidence_text(confidence: float, rule: str, digits: int = 1) -> str:
    """It as text behind a label, such as " 60%"; nothing where the rule lets a label alone through."""
    if RULES[rule].digits == 0:
        return ""
    shown = 0 if RULES[rule].digits else digits
    return f" {100 * show_digits(confidence, rule):.{shown}f}%"


def _in_steps(p: Floats, removed: Mask, step: float, top_only: bool = False, lead: float = LEAD) -> Floats:
    """Confidences by how many steps they are above an even share of the names that are left; the others share evenly.

    Steps are counted from the even share, not from 0: one decimal digit of a flat answer over a hundred names is 0 for
    all of them, and over twenty names 0 for some and 0.1 for others. The middle of a step is served. Names get
    their steps from the top down, while these sum to at most 1, so that of the top name depends on nothing else.
    """
    names = int((~removed).sum())
    even = 1 / names
    order = np.argsort(np.where(removed, np.inf, -p.astype(np.float64)), axis=1, kind="stable")
    above = np.take_along_axis(p.astype(np.float64), order, axis=1) - even
    steps = np.floor(above / step + 0.5)
    middle = step * (steps - 0.5 + np.minimum(steps + 0.5, (1 - even) / step)) / 2  # the last step ends at 1
    level = even + np.where(steps > 0, middle, 0.0)
    stepped = (steps > 0) & (level.cumsum(axis=1) <= 1 + 1e-9)
    stepped[:, 1 if top_only else names :] = False
    left = np.maximum(0.0, 1 - np.where(stepped, level, 0.0).sum(axis=1))
    served = np.where(stepped, level, (left / np.maximum(1, names - stepped.sum(axis=1)))[:, None])
    served[:, names:] = 0.0
    served[:, 0] += lead
    found = np.empty_like(served)
    np.put_along_axis(found, order, served, axis=1)
    shares: Floats = (found / found.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares
