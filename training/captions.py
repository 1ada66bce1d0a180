"""What the text tower reads in training: plain captions, and captions of altered pictures.

A tower that only ever reads "a photo of a cat." learns to look past every word but the last. On the web every word of a
caption matters; "a dark photo of a cat" and a picture that is dark bring a little of that back.
"""

from __future__ import annotations

import numpy as np

from training.data import CLASS_NAMES, VIEW_NAMES

SEEN_TEMPLATES = (
    "a photo of a {}.",
    "a picture of a {}.",
    "an image of a {}.",
    "a {}.",
    "this is a {}.",
    "a photo of the {}.",
    "there is a {} in the picture.",
    "a {} in a photo.",
    "{}.",
    "the {}.",
    "one {}.",
    "we see a {}.",
    "here is the {}.",
    "a photograph of one {}.",
    "it shows a {}.",
    "look at the {} here.",
    "the picture shows one {}.",
    "my photo of the {}.",
    "a shot of a {}.",
    "an image showing the {}.",
)
UNSEEN_TEMPLATES = (
    "a snapshot of a {}.",
    "a photograph showing a {}.",
    "here we see the {}.",
    "an image with one {}.",
)
"""Never read in training; only for judging."""

VIEW_PHRASES: dict[str, tuple[str, ...]] = {
    "dark": ("a dark photo of a {}.", "a {} at night.", "a badly lit {}."),
    "bright": ("a bright photo of a {}.", "an overexposed {}.", "a pale picture of a {}."),
    "blurred": ("a blurred photo of a {}.", "an unsharp picture of a {}.", "a {} out of focus."),
    "grey": ("a grey photo of a {}.", "a black and white picture of a {}.", "a colourless {}."),
    "upside-down": ("an upside down {}.", "a photo of a {} turned over.", "an inverted photo of a {}."),
    "sideways": ("a {} lying on its side.", "a rotated photo of a {}.", "a sideways {}."),
    "red": ("a red photo of a {}.", "a {} in red light.", "a reddish picture of a {}."),
    "green": ("a green photo of a {}.", "a {} in green light.", "a greenish picture of a {}."),
    "blue": ("a blue photo of a {}.", "a {} in blue light.", "a bluish picture of a {}."),
    "noisy": ("a noisy photo of a {}.", "a grainy picture of a {}.", "a {} in bad reception."),
    "close-up": ("a close-up of a {}.", "a detail of a {}.", "a cropped photo of a {}."),
    "small": ("a small photo of a {}.", "a tiny {} in a grey frame.", "a {} far away."),
    "negative": ("a negative of a {}.", "a {} with colours reversed.", "a film negative showing a {}."),
}


def fill(template: str, label: int) -> str:
    """Return the template with a class name in it. The article stays "a", as in CLIP's prompts."""
    return template.format(CLASS_NAMES[label])


def view_caption(view: int, label: int, rng: np.random.Generator) -> str:
    """Return a caption of a picture altered in a known way."""
    phrases = VIEW_PHRASES[VIEW_NAMES[view]]
    return fill(phrases[rng.integers(len(phrases))], label)


def corpus() -> list[str]:
    """Return every caption there can be, for the tokenizer."""
    templates = [*SEEN_TEMPLATES, *(p for phrases in VIEW_PHRASES.values() for p in phrases)]
    return [fill(t, k) for t in templates for k in range(len(CLASS_NAMES))]
