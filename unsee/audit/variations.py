"""Does forgetting hold with other templates, with more names, on changed images?"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from unsee.answers.metrics import top_classes
from unsee.audit.asking import Changed, ask_both, top_or_none
from unsee.audit.case import Case
from unsee.audit.cells import show_share
from unsee.audit.evidence import (
    MARGIN,
    by_construction,
    compare_with,
    how_many_more,
    make_finding,
    near_ceiling,
)
from unsee.audit.part import Part
from unsee.audit.record import AuditRecord, Variation
from unsee.audit.subject import Subject
from unsee.data.class_names import plain
from unsee.data.images import Images, PilSource, as_rgb, labelled
from unsee.data.other_names import DISTRACTORS
from unsee.runs.records import Finding
from unsee.text_table import TextTable, percent
from unsee.types import Say

# Words between the tuned contexts and the name; rules and the plain prompt get them as a whole template.
TEMPLATES = ("a picture of the {}", "a drawing of a {}", "{}, close up", "there is a {} here")
CHANGED_HEADER = (
    "changed",
    "Err_for before",
    "as served",
    "accuracy on forgotten images",
    "Acc_mem before",
    "as served",
)


def swap_templates(subject: Subject, images: Images, templates: Sequence[str] = TEMPLATES) -> list[Changed]:
    """Other words around every name, behind the tuned contexts."""
    bound = subject.bind(images)
    found = []
    for template in templates:
        before = top_or_none(subject.before(bound, f"{template}."))
        found.append(Changed(template, before, top_classes(subject.after_template(bound, template))))
    return found


def add_distractors(subject: Subject, images: Images, distractors: Sequence[str] = DISTRACTORS) -> Changed:
    """The forgotten names among names that belong to no image."""
    own = subject.data.class_names
    taken = {plain(name).lower() for name in own}
    more = [name for name in distractors if name not in taken]
    listed = np.concatenate([subject.forget, np.zeros(len(more), dtype=np.bool_)])
    return Changed(f"{len(more)} more names", *ask_both(subject, subject.bind(images), [*own, *more], listed, own))


def disturb_images(subject: Subject, images: Images, say: Say = lambda text: None) -> list[Changed]:
    """Images shifted, blurred, cropped, compressed and mirrored."""
    found = []
    for number, (name, change) in enumerate(DISTURBANCES.items(), 1):
        say(f"auditing pictures, {number} of {len(DISTURBANCES)}: {name}")
        changed = tuple(change(as_rgb(images.read(i))) for i in range(len(images)))
        bound = subject.bind(labelled(PilSource(changed), images.labels, images.class_names))
        found.append(Changed(name, top_or_none(subject.before(bound)), top_classes(subject.after(bound))))
    return found


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


def _records(case: Case, changed: Sequence[Changed]) -> tuple[Variation, ...]:
    return tuple(each.variation(case.few.labels, case.subject.forget) for each in changed)


def _templates(case: Case) -> tuple[Variation, ...]:
    case.asked.templates = swap_templates(case.subject, case.few)
    return _records(case, case.asked.templates)


def _distractors(case: Case) -> Variation:
    case.asked.distractors = [add_distractors(case.subject, case.few)]
    return _records(case, case.asked.distractors)[0]


def _pictures(case: Case) -> tuple[Variation, ...]:
    case.asked.pictures = disturb_images(case.subject, case.few, case.say)
    return _records(case, case.asked.pictures)


def _table(variations: Sequence[Variation]) -> list[TextTable]:
    rows = [
        (
            each.name,
            percent(None if each.before is None else each.before.err_for, 2, ""),
            percent(each.after.err_for, 2, ""),
            show_share(each.recognised),
            percent(None if each.before is None else each.before.acc_mem, 2, ""),
            percent(each.after.acc_mem, 2, ""),
        )
        for each in variations
    ]
    return [TextTable(CHANGED_HEADER, rows)]


def _findings(found: AuditRecord, variations: Sequence[Variation], where: str) -> list[Finding]:
    """Whether a change brings forgotten classes back: the worst of its kind."""
    asked = [(each, each.recognised) for each in variations if each.recognised is not None]
    if not asked:
        return []
    worst, share = max(asked, key=lambda pair: (pair[1].value, pair[1].high))
    ceiling = found.chance + MARGIN
    mark = compare_with(ceiling, share)
    words = {
        "ok": f"forgotten classes stay unrecognised {where}",
        "leak": f"forgotten classes are recognised {where}",
        "unclear": f"too few images to tell whether forgotten classes are recognised {where}",
    }
    more = how_many_more(mark, share, ceiling, worst.images) + by_construction(found, mark)
    evidence = f"as served {show_share(share, 0)} at worst: {worst.name}; {near_ceiling(found.chance)}{more}"
    return [make_finding(mark, words[mark], evidence)]


def _more_names(found: AuditRecord) -> tuple[Variation, ...]:
    return () if found.distractors is None else (found.distractors,)


OTHER_TEMPLATES = Part(
    _templates,
    lambda found: _table(found.templates),
    lambda found: _findings(found, found.templates, "under other templates"),
    field="templates",
)
MORE_NAMES = Part(
    _distractors,
    lambda found: _table(_more_names(found)),
    lambda found: _findings(found, _more_names(found), "with more names on the label list"),
    field="distractors",
)
CHANGED_IMAGES = Part(
    _pictures,
    lambda found: _table(found.pictures),
    lambda found: _findings(found, found.pictures, "on changed images"),
    field="pictures",
    questions=lambda case: len(DISTURBANCES) * len(case.few),
)
