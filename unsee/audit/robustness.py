"""Does forgetting hold where something is not as it was in tuning? Other names, templates, label lists, images."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageFilter

from unsee.audit.answers import estimate
from unsee.audit.intervals import paired_difference, share_of, wilson
from unsee.audit.names import DISTRACTORS, OtherNames, rounds
from unsee.audit.subject import Subject
from unsee.class_names import plain
from unsee.images import Images, PilSource, as_rgb, labelled
from unsee.metrics import answers, per_class_accuracy, scores
from unsee.models.black_box import bind
from unsee.runs.audit_record import OtherData, OtherName, Variation
from unsee.seeds import stream
from unsee.types import Data, Floats, Mask, Scores

SAMPLE = 75  # test images per class: if none of them is recognised, at most 4.9 % are, which is near chance for any C
# Words between the tuned contexts and the name; rules and the plain prompt get them as a whole template.
TEMPLATES = ("a picture of the {}", "a drawing of a {}", "{}, close up", "there is a {} here")


def sample(images: Images, seed: int, per_class: int = SAMPLE) -> Images:
    """At most this many images of each class, drawn by the seed."""
    rng = stream(seed, "audit sample")
    rows = [rng.permutation(np.flatnonzero(images.labels == c))[:per_class] for c in np.unique(images.labels)]
    return images.subset(np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64))


def ask_other_names(subject: Subject, images: Images, other_names: OtherNames) -> list[OtherName]:
    """Accuracy on images of each forgotten class, asked for under other names while the rest stay as they are."""
    own, forget = subject.data.class_names, subject.forget
    found = []
    for renamed in rounds(own, subject.task.forgotten, other_names):
        names = [renamed.get(name, name) for name in own]
        listed = np.array([gone and name not in renamed for name, gone in zip(own, forget, strict=True)])
        before, after = _ask(subject, images, names, listed, names)
        shares = [
            None if p is None else per_class_accuracy(answers(p), images.labels, len(own)) for p in (before, after)
        ]
        for name, other in renamed.items():
            c = own.index(name)
            if shares[1] is not None and not np.isnan(shares[1][c]):
                then, now = None if shares[0] is None else float(shares[0][c]), float(shares[1][c])
                n = int((images.labels == c).sum())
                accuracy = estimate(wilson(now, n))
                found.append(
                    OtherName(class_name=name, name=other, before=then, after=now, accuracy=accuracy, images=n)
                )
    return found


def swap_templates(subject: Subject, images: Images, templates: Sequence[str] = TEMPLATES) -> list[Variation]:
    """Other words around every name, behind the tuned contexts."""
    found = []
    for template in templates:
        before = subject.before(subject.bind(images), f"{template}.")
        after = subject.after_template(images, template)
        found.append(_variation(subject, images, template, before, after))
    return found


def add_distractors(subject: Subject, images: Images, distractors: Sequence[str] = DISTRACTORS) -> Variation:
    """The forgotten names among names that belong to no image."""
    own = subject.data.class_names
    taken = {plain(name).lower() for name in own}
    more = [name for name in distractors if name not in taken]
    listed = np.concatenate([subject.forget, np.zeros(len(more), dtype=np.bool_)])
    before, after = _ask(subject, images, [*own, *more], listed, own)
    return _variation(subject, images, f"{len(more)} more names", before, after)


def disturb_images(subject: Subject, images: Images) -> list[Variation]:
    """Images shifted, blurred, cropped and compressed."""
    found = []
    for name, change in DISTURBANCES.items():
        changed = tuple(change(as_rgb(images.read(i))) for i in range(len(images)))
        bound = subject.bind(labelled(PilSource(changed), images.labels, images.class_names))
        found.append(_variation(subject, images, name, subject.before(bound), subject.after(bound)))
    return found


def ask_other_data(subject: Subject, data: Data, images: Images) -> OtherData:
    """Accuracy on classes that were in neither list: images of another data set under its own names."""
    names, forgotten = data.class_names, {plain(name).lower() for name in subject.task.forgotten}
    new = np.array([plain(name).lower() not in forgotten for name in names])
    kept = images.subset(np.flatnonzero(new[images.labels]))
    before, after = _ask(subject, kept, names, ~new, [n if n in names else None for n in subject.data.class_names])
    right = answers(after) == kept.labels
    then = None if before is None else answers(before) == kept.labels
    return OtherData(
        data=data.name,
        classes=int(new.sum()),
        before=None if then is None else float(then.mean()),
        after=float(right.mean()),
        change=None if then is None else estimate(paired_difference(then, right)),
    )


def _ask(
    subject: Subject, images: Images, names: Sequence[str], listed: Mask, renamed: Sequence[str | None]
) -> tuple[Floats | None, Floats]:
    bound = bind(subject.model, images, names)
    return subject.before(bound), subject.after_renamed(bound, listed, renamed)


def _variation(subject: Subject, images: Images, name: str, before: Floats | None, after: Floats) -> Variation:
    gone = subject.forget[images.labels]
    return Variation(
        name=name,
        before=None if before is None else _score(subject, images, before),
        after=_score(subject, images, after),
        recognised=estimate(share_of((answers(after) == images.labels)[gone])),
        images=int(gone.sum()),
    )


def _score(subject: Subject, images: Images, p: Floats) -> Scores:
    forget = np.zeros(p.shape[1], dtype=np.bool_)
    forget[: len(subject.forget)] = subject.forget
    return scores(answers(p), images.labels, forget)


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
}
