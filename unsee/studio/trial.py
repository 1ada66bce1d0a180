"""One image of a visitor's own: answers before and after, as served. Nothing of it is stored."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image

from unsee.answers.rules import RULES, confidence_text
from unsee.data.images import decode
from unsee.errors import ImageError, InputError
from unsee.models.black_box import BlackBox
from unsee.runs.prompt import Prompt, load_prompt
from unsee.studio.shelf import Shelf

TRIED_PIXELS = 50_000_000  # of an image: more would fill the memory, and no model looks that closely
TOP_LABELS = 5
MOST_LABELS = 1000


def open_image(content: bytes, name: str) -> Image.Image:
    """The image in these bytes; refused before it is unpacked if it is too large, in words if it is none."""
    check_image(content, name)
    return decode(content, name)


def check_image(content: bytes, name: str) -> None:
    """Refuses what is no image, or one of too many pixels. Reads its head alone."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        width = height = TRIED_PIXELS
    except Exception:  # readers raise all types; `decode` says what is wrong, and knows more formats
        decode(content, name)
        return
    if width * height > TRIED_PIXELS:
        raise ImageError(name, f"it has more than the {TRIED_PIXELS // 10**6} million pixels allowed; make it smaller")


def with_labels(prompt: Prompt, text: str) -> Prompt:
    """The prompt for a label list of the visitor's own, separated by commas or lines; as it is without one."""
    names = tuple(dict.fromkeys(part.strip() for part in text.replace("\n", ",").split(",") if part.strip()))
    if not names:
        return prompt
    if len(names) < 2:
        raise InputError("give at least two labels, separated by commas: with one there is nothing to choose")
    if len(names) > MOST_LABELS:
        raise InputError(f"give at most {MOST_LABELS} labels, not {len(names)}")
    gone = tuple(name for name in names if name in prompt.forget)
    if len(gone) == len(names):
        raise InputError("all of these labels are to be forgotten; add one that is kept")
    applies = None if prompt.applies_to is None else tuple(name for name in names if name in prompt.applies_to)
    return replace(prompt, class_names=names, forget=gone, applies_to=applies)


ShownAnswer = dict[str, str | float]


def classify(shelf: Shelf, folder: Path, image: Image.Image, labels: str) -> dict[str, list[ShownAnswer] | str | None]:
    """The top labels of an image under the plain prompt, the prompt alone and as served, with their confidences."""
    prompt = with_labels(load_prompt(folder), labels)
    with shelf.asking:
        model: BlackBox = shelf.model(prompt.model)
        found = prompt.classify(model, [image], TOP_LABELS)[0]
    rule = prompt.serve
    served = found.after[: found.ranked] if RULES[rule].digits is not None else found.after
    return {
        "before": None if found.before is None else _answers(found.before, "as-is", prompt.forget),
        "alone": _answers(found.alone, "as-is", prompt.forget),
        "served": _answers(served, rule, prompt.forget),
        "label": found.after[0][0] if found.ranked else None,
        "rule": rule,
        "about": RULES[rule].about,
    }


def _answers(pairs: Sequence[tuple[str, float]], rule: str, gone: Sequence[str]) -> list[ShownAnswer]:
    return [
        {"name": name, "sure": confidence_text(sure, rule).strip(), "share": float(sure), "gone": name in gone}
        for name, sure in pairs
    ]
