"""A picture of a result: test images with the top label before and as a caller sees it."""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from unsee.answers.evaluation import Evaluation
from unsee.answers.rules import confidence_text
from unsee.data.images import Images, as_rgb
from unsee.types import Mask

CELL, IMAGE, LINE = 124, 104, 17
HEADING, FOOT = 62, 28
NO_LABEL = "no label"
DARK, PALE, RUST, NAVY = "#1a1a1a", "#6b6b6b", "#b34700", "#00509e"  # colour-blind readers can tell them apart


def before_after(images: Images, found: Evaluation, forget: Mask, columns: int = 10, rows: int = 3) -> Image.Image:
    """One column per class, forgotten classes first; under each image the label before (grey) and as served (black).

    Without answers before, where the model takes no plain-text prompt, there is no grey line. Where the rule leaves no
    top label, it says so.

    The served label is marked by what was wanted: ✓ for a forgotten image no longer recognised or a kept one still
    recognised, ✗ for a forgotten one still recognised or a kept one lost.
    """
    gone, kept = np.flatnonzero(forget), np.flatnonzero(~forget)
    share = max(1, min(len(gone), columns - min(len(kept), columns // 2)))
    classes = [*gone[:share], *kept[: columns - share]]
    cell_height = IMAGE + 2 * LINE + 12
    picture = Image.new("RGB", (CELL * len(classes) + 12, HEADING + rows * cell_height + FOOT), "white")
    draw, unlabelled = ImageDraw.Draw(picture), False
    for column, label in enumerate(classes):
        x = 12 + column * CELL
        colour = RUST if forget[label] else NAVY
        _text(draw, (x, 8), "forget" if forget[label] else "keep", 13, colour)
        _text(draw, (x, 24), images.class_names[label], 16, DARK, CELL - 8)
        draw.rectangle((x, HEADING - 14, x + IMAGE - 1, HEADING - 10), fill=colour)
        for row, number in enumerate(_spread(np.flatnonzero(images.labels == label), rows)):
            y = HEADING + row * cell_height
            picture.paste(_thumbnail(images.read(int(number))), (x, y))
            if found.answers_before is not None and found.sure_before is not None:
                sure = confidence_text(found.sure_before[number], "as-is", 0)
                _answer(draw, (x, y + IMAGE + 2), images, found.answers_before[number], sure, PALE)
            top, answer = y + IMAGE + 2 + LINE, found.answers_served[number]
            _mark(draw, x + 1, top + 2, bool(answer == label) != bool(forget[label]))
            unlabelled |= bool(answer < 0)
            sure = confidence_text(found.sure_served[number], found.rule, 0)
            _answer(draw, (x, top), images, answer, sure, DARK)
    _legend(draw, picture.size[1] - FOOT + 6, found, unlabelled)
    return picture


def _answer(draw: ImageDraw.ImageDraw, at: tuple[int, int], images: Images, answer: int, sure: str, tint: str) -> None:
    """The top class with its confidence, or that there is none."""
    name, end = (NO_LABEL, "") if answer < 0 else (images.class_names[answer], sure)
    _text(draw, (at[0] + 15, at[1]), name, 13, tint, IMAGE - 6, end)


def _legend(draw: ImageDraw.ImageDraw, y: int, found: Evaluation, unlabelled: bool) -> None:
    x = 12
    words = [f"black: as served ({found.rule})"]
    words = words if found.answers_before is None else ["grey: plain prompt", *words]
    if unlabelled:
        words.append(f"{NO_LABEL}: several are equally sure")
    for word in words:
        x += _text(draw, (x, y), word, 12, PALE) + 16
    for wanted, word in ((True, "as wanted"), (False, "not")):
        _mark(draw, x, y + 2, wanted)
        x += 14 + _text(draw, (x + 14, y), word, 12, PALE) + 16


def _thumbnail(image: Image.Image) -> Image.Image:
    side = min(image.size)
    left, top = (image.size[0] - side) // 2, (image.size[1] - side) // 2
    square = as_rgb(image).crop((left, top, left + side, top + side))
    return square.resize((IMAGE, IMAGE), Image.Resampling.LANCZOS if side > IMAGE else Image.Resampling.BICUBIC)


def _mark(draw: ImageDraw.ImageDraw, x: int, y: int, wanted: bool) -> None:
    """A tick or a cross, drawn: not every font has them."""
    if wanted:
        draw.line((x, y + 6, x + 4, y + 10, x + 10, y + 1), fill=NAVY, width=2)
    else:
        draw.line((x + 1, y + 1, x + 9, y + 10), fill=RUST, width=2)
        draw.line((x + 1, y + 10, x + 9, y + 1), fill=RUST, width=2)


def _text(
    draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, size: int, colour: str, room: int = 10_000, end: str = ""
) -> int:
    """Draws text and its end, the text cut short where both do not fit; returns the width."""
    font, shown = _font(size), text
    while len(shown) > 2 and draw.textlength(shown + end, font) > room:
        text = text[:-1]
        shown = text + "…"
    draw.text(at, shown + end, fill=colour, font=font)
    return round(draw.textlength(shown + end, font))


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Read once: that takes longer than drawing with it."""
    return ImageFont.load_default(size)


def _spread(rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], count: int) -> list[int]:
    """Evenly from the whole of a class, not its first images."""
    if len(rows) == 0:
        return []
    return [int(rows[i * len(rows) // count]) for i in range(min(count, len(rows)))]
