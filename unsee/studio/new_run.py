"""A new run from a form: its classes with thumbnails, what the model knows of them, the forecast, the command line."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from unsee.answers.metrics import top_classes
from unsee.data.class_folders import refuse_inside
from unsee.data.class_names import forget_mask
from unsee.data.data_set import Data
from unsee.errors import InputError, unknown
from unsee.files import write_bytes
from unsee.methods.forecast import duration, forecast
from unsee.methods.presets import PRESETS, default_method
from unsee.methods.registry import METHODS
from unsee.methods.task import make_task
from unsee.models.black_box import bind
from unsee.runs.folder_name import folder_name
from unsee.runs.given import stable_name
from unsee.settings import Value
from unsee.studio.shelf import Shelf

THUMBNAILS = 3  # per class
KNOWN_IMAGES, MOST_PER_CLASS = 200, 20  # asked to see what a model knows: in all, and of one class
NUMBERS = {  # settings that may stay empty: the default
    "image_queries": "Limit of image queries",
    "shots": "Images per class to tune on",
    "iterations": "Limit of generations",
    "budget": "Limit of candidates",
}
SKIP = "skip_bad_images"


@dataclass(frozen=True)
class ClassCard:
    """A class to choose, with a few of its images."""

    name: str
    images: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class WantedRun:
    """What a visitor asks for."""

    data: str
    model: str
    forget: tuple[str, ...]
    method: str
    preset: str
    seed: int = 0
    settings: Mapping[str, Value] = field(default_factory=dict)  # those of NUMBERS that were given, and SKIP


def read_wanted(shelf: Shelf, form: Mapping[str, str], forget: Sequence[str]) -> WantedRun:
    """What the form asks for; without a method, the one that `unsee forget` takes."""
    preset, chosen = form.get("preset") or PRESETS[0], form.get("method")
    if chosen and chosen not in METHODS:
        raise InputError(unknown("method", chosen, METHODS))
    if preset not in PRESETS:
        raise InputError(unknown("preset", preset, PRESETS))
    if not forget:
        raise InputError("no class is ticked; tick at least one to forget")
    settings: dict[str, Value] = {name: _whole(name, text) for name in NUMBERS if (text := form.get(name, "").strip())}
    if form.get(SKIP):
        settings[SKIP] = True
    seed = _whole("seed", form.get("seed", "").strip() or "0")
    data, model = stable_name(form.get("data") or "demo"), stable_name(form.get("model") or "mini")
    if not chosen:
        chosen = default_method(preset, settings, len(shelf.data(data, seed).class_names))
    return WantedRun(data, model, tuple(forget), chosen, preset, seed, settings)


def pasted_path(text: str) -> str:
    """A path as it was typed, or as file managers and terminals copy it: in quotes, or as file://…."""
    text = text.strip()
    if text.startswith("file://"):
        return unquote(urlsplit(text).path)
    quoted = len(text) > 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def default_words(classes: int) -> str:
    """Which method a run has that names none, in words."""
    usual, paper = (default_method(preset, {}, classes) for preset in PRESETS)
    return usual if usual == paper else f"{usual}; {paper} at the paper's sizes"


def class_cards(data: Data) -> list[ClassCard]:
    """Every class with its first images to tune on."""
    found = []
    for i, name in enumerate(data.class_names):
        rows = np.flatnonzero(data.train.labels == i)
        found.append(ClassCard(name, len(rows), tuple(int(row) for row in rows[:THUMBNAILS])))
    return found


def known_classes(shelf: Shelf, data: Data, model: str) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Of each class, how many of a few images the model recognises under the plain prompt, and how many it saw.

    Images that cannot be read are left out; what is wrong with each of them comes second.
    """
    if model.startswith(("http://", "https://")):
        raise InputError("the model is elsewhere, where every image has a price; nothing was asked")
    labels, per = data.train.labels, max(1, min(MOST_PER_CLASS, KNOWN_IMAGES // len(data.class_names)))
    rows = np.concatenate([np.flatnonzero(labels == i)[:per] for i in range(len(data.class_names))])
    images, bad = data.train.subset(rows).readable()
    if not len(images):
        raise bad[0]
    with shelf.asking:
        plain = bind(shelf.model(model), images).zero_shot("a photo of a {}.")
    if plain is None:
        raise InputError("this model answers no plain-text prompt, so what it knows cannot be shown")
    right = top_classes(plain) == images.labels
    of_class = [images.labels == i for i in range(len(data.class_names))]
    known = {
        name: (int(right[here].sum()), int(here.sum())) for name, here in zip(data.class_names, of_class, strict=True)
    }
    return known, [str(error) for error in bad]


def foresee(shelf: Shelf, wanted: WantedRun, price: float) -> dict[str, str]:
    """What a run will cost: queries, time and, at this price per thousand queries, money."""
    data = shelf.data(wanted.data, wanted.seed)
    with shelf.asking:
        model = shelf.model(wanted.model)
        given = dict(wanted.settings)
        task = make_task(model, data, wanted.forget, wanted.method, wanted.preset, wanted.seed, given)
        found = forecast([task])
    time = "not known before it starts" if found.untimed else f"about {duration(found.seconds)}"
    return {
        "method": wanted.method,
        "queries": f"{found.image_queries:,}",
        "candidates": f"{found.candidates:,}",
        "time": time,
        "price": f"{found.image_queries / 1000 * price:,.2f}" if price else "–",
        "sizes": found.sizes,
    }


def plan(
    shelf: Shelf, wanted: WantedRun, root: Path, taken: Sequence[str], options: Sequence[str]
) -> tuple[Path, list[str]]:
    """The folder of a new run and the arguments of `unsee` that make it; refuses what could not start."""
    data = shelf.data(wanted.data, wanted.seed)
    gone = forget_mask(data.class_names, wanted.forget)
    refuse_inside(data, root / "run")
    name = folder_name(wanted.data, wanted.method, wanted.forget, wanted.seed)
    more = (f"-{i}" if i else "" for i in [0, *range(2, 10_000)])
    out = next(place for end in more if not (place := root / (name + end)).exists() and str(place) not in taken)
    names = [each for each, is_gone in zip(data.class_names, gone, strict=True) if is_gone]
    arguments = ["forget", wanted.data, *_forget_options(names, root), f"--model={wanted.model}"]
    arguments += [f"--method={wanted.method}", f"--preset={wanted.preset}", f"--seed={wanted.seed}"]
    arguments += [_option(name, value) for name, value in wanted.settings.items()]
    return out, [*arguments, f"--out={out}", *options]


def _option(name: str, value: Value) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value is True else f"{option}={value}"


def _forget_options(names: Sequence[str], root: Path) -> list[str]:
    """The classes as one option; in a file where a name has a comma, which the option would take for two names."""
    if not any("," in name or "\n" in name for name in names):
        return [f"--forget={','.join(names)}"]
    path = root / ".studio" / "forget" / f"{secrets.token_hex(6)}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, "".join(f"{name}\n" for name in names).encode())
    return [f"--forget-file={path}"]


def _whole(name: str, text: str) -> int:
    digits = text.replace(",", "")
    if not (digits.isascii() and digits.isdigit()):
        raise InputError(f"{name} is a whole number, not {text!r}")
    return int(digits)
