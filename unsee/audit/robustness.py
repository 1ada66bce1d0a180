"""Does forgetting hold where something is not as it was in tuning? Other names, templates, label lists, images.

Answers are kept image by image: scores are computed from them here, and the share that any of these ways recovers in
`worst_case.py`, without asking twice.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from unsee.answers.intervals import paired_difference, share_of
from unsee.answers.metrics import scores, top_classes
from unsee.audit.answers import estimate
from unsee.audit.other_names import DISTRACTORS, OtherNames, rounds
from unsee.audit.record import OtherData, OtherName, Variation
from unsee.audit.subject import Subject
from unsee.data.class_names import plain
from unsee.data.data_set import Data
from unsee.data.images import Images, PilSource, as_rgb, labelled
from unsee.errors import InputError
from unsee.models.black_box import BoundImages, bind, rebind
from unsee.seeds import stream
from unsee.types import Floats, Ints, Mask

SAMPLE = 75  # test images per class: if none of them is recognised, at most 4.9 % are, which is near chance for any C
# Words between the tuned contexts and the name; rules and the plain prompt get them as a whole template.
TEMPLATES = ("a picture of the {}", "a drawing of a {}", "{}, close up", "there is a {} here")


@dataclass(frozen=True, eq=False)
class Changed:
    """Top answers to the same images where something around the names, or in the images, is not as it was in tuning."""

    name: str
    before: Ints | None  # (n,); None for a model without plain-text prompts
    after: Ints  # (n,)

    def variation(self, labels: Ints, forget: Mask) -> Variation:
        """Scores of these answers."""
        gone = forget[labels]
        return Variation(
            name=self.name,
            before=None if self.before is None else scores(self.before, labels, forget),
            after=scores(self.after, labels, forget),
            recognised=estimate(share_of((self.after == labels)[gone])),
            images=int(gone.sum()),
        )


@dataclass(frozen=True, eq=False)
class Renamed:
    """Top answers with some forgotten classes asked for under other names."""

    names: Mapping[str, str]  # class -> what it was asked for as
    before: Ints | None
    after: Ints

    def records(self, labels: Ints, class_names: Sequence[str]) -> list[OtherName]:
        """Accuracy of each class under its other name; classes without images are left out."""
        found = []
        for name, other in self.names.items():
            mine = labels == class_names.index(name)
            if mine.any():
                right = (self.after == labels)[mine]
                found.append(
                    OtherName(
                        class_name=name,
                        name=other,
                        before=None if self.before is None else float((self.before == labels)[mine].mean()),
                        after=float(right.mean()),
                        accuracy=estimate(share_of(right)),
                        images=len(right),
                    )
                )
        return found


@dataclass(frozen=True, eq=False)
class AskedAgain:
    """Answers to a sample of the test images: asked as usual, and in the other ways that were allowed."""

    labels: Ints  # (n,)
    before: Ints | None  # top answers of the plain prompt, (n,)
    after: Floats  # what a caller sees of the run's answers, (n, C)
    renamed: Sequence[Renamed] = ()
    templates: Sequence[Changed] = ()
    distractors: Sequence[Changed] = ()
    pictures: Sequence[Changed] = ()


def sample_rows(labels: Ints, seed: int, per_class: int = SAMPLE) -> Ints:
    """Rows of at most this many images of each class, drawn by the seed."""
    rng = stream(seed, "audit sample")
    rows = [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in np.unique(labels)]
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)


def sample(images: Images, seed: int, per_class: int = SAMPLE) -> Images:
    """At most this many images of each class, drawn by the seed."""
    return images.subset(sample_rows(images.labels, seed, per_class))


def ask_other_names(subject: Subject, images: Images, other_names: OtherNames) -> list[Renamed]:
    """Answers with forgotten classes asked for under other names while the rest stay as they are."""
    own, forget, bound = subject.data.class_names, subject.forget, subject.bind(images)
    found = []
    for renamed in rounds(own, subject.task.forgotten, other_names):
        names = [renamed.get(name, name) for name in own]
        listed = np.array([gone and name not in renamed for name, gone in zip(own, forget, strict=True)])
        found.append(Renamed(renamed, *_ask(subject, bound, names, listed, names)))
    return found


def swap_templates(subject: Subject, images: Images, templates: Sequence[str] = TEMPLATES) -> list[Changed]:
    """Other words around every name, behind the tuned contexts."""
    bound = subject.bind(images)
    return [
        Changed(
            template, _top(subject.before(bound, f"{template}.")), top_classes(subject.after_template(bound, template))
        )
        for template in templates
    ]


def add_distractors(subject: Subject, images: Images, distractors: Sequence[str] = DISTRACTORS) -> Changed:
    """The forgotten names among names that belong to no image."""
    own = subject.data.class_names
    taken = {plain(name).lower() for name in own}
    more = [name for name in distractors if name not in taken]
    listed = np.concatenate([subject.forget, np.zeros(len(more), dtype=np.bool_)])
    return Changed(f"{len(more)} more names", *_ask(subject, subject.bind(images), [*own, *more], listed, own))


def disturb_images(subject: Subject, images: Images) -> list[Changed]:
    """Images shifted, blurred, cropped, compressed and mirrored."""
    found = []
    for name, change in DISTURBANCES.items():
        changed = tuple(change(as_rgb(images.read(i))) for i in range(len(images)))
        bound = subject.bind(labelled(PilSource(changed), images.labels, images.class_names))
        found.append(Changed(name, _top(subject.before(bound)), top_classes(subject.after(bound))))
    return found


@dataclass(frozen=True, eq=False)
class AskedOthers:
    """Top answers to images of classes that were in neither list, under their own names."""

    data: str
    class_names: tuple[str, ...]
    images: Images  # without those of a forgotten class
    before: Ints | None
    after: Ints

    def record(self) -> OtherData:
        """Accuracy on these classes."""
        labels = self.images.labels
        right, then = self.after == labels, None if self.before is None else self.before == labels
        return OtherData(
            data=self.data,
            classes=len(np.unique(labels)),
            before=None if then is None else float(then.mean()),
            after=float(right.mean()),
            change=None if then is None else estimate(paired_difference(then, right)),
        )


def ask_other_data(subject: Subject, data: Data, images: Images) -> AskedOthers:
    """Answers to images of another data set under its own names, without classes that were to be forgotten."""
    names, forgotten = data.class_names, {plain(name).lower() for name in subject.task.forgotten}
    new = np.array([plain(name).lower() not in forgotten for name in names])
    kept = images.subset(np.flatnonzero(new[images.labels]))
    if len(kept) == 0:
        raise InputError(f"{data.name} has no images of classes other than the forgotten ones")
    renamed = [n if n in names else None for n in subject.data.class_names]
    return AskedOthers(data.name, names, kept, *_ask(subject, bind(subject.model, kept, names), names, ~new, renamed))


def _ask(
    subject: Subject, bound: BoundImages, names: Sequence[str], listed: Mask, renamed: Sequence[str | None]
) -> tuple[Ints | None, Ints]:
    bound = rebind(subject.model, bound, names)
    return _top(subject.before(bound)), top_classes(subject.after_renamed(bound, listed, renamed))


def _top(p: Floats | None) -> Ints | None:
    return None if p is None else top_classes(p)


def _shift(image: Image.Image) -> Image.Image:
    """An eighth to the right and down, what leaves on one side comes back on the other."""
    pixels = np.asarray(image)
    return Image.fromarray(np.roll(pixels, (pixels.shape[0] // 8, pixels.shape[1] // 8), axis=(0, 1)))


def _blur(image: Image.Image) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(min(image.size) / 40))


def _crop(image: Image.Image) -> Image.Image:
    """The middle 80 % of each side."""
    width, height = image.size
    return image.crop((width // 10, height // 10, width - width // 10, height - height // 10))


def _compress(image: Image.Image) -> Image.Image:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=30)
    with Image.open(io.BytesIO(out.getvalue())) as read:
        read.load()
        return read.convert("RGB")


DISTURBANCES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "shifted": _shift,
    "blurred": _blur,
    "cropped": _crop,
    "JPEG, quality 30": _compress,
    "mirrored": ImageOps.mirror,
}
