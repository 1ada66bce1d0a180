"""Top answers to the same images, asked in other ways than in tuning.

They are kept image by image: scores are computed from them here, and the share that any of these ways recovers in
`worst_case.py`, without asking twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unsee.answers.intervals import paired_difference, share_of
from unsee.answers.metrics import scores, top_classes
from unsee.audit.record import OtherData, OtherName, Variation, estimate
from unsee.audit.subject import Subject
from unsee.data.images import Images
from unsee.models.black_box import BoundImages, rebind
from unsee.seeds import stream
from unsee.types import Floats, Ints, Mask

SAMPLE = 75  # test images per class: if none of them is recognised, at most 4.9 % are, which is near chance for any C


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


@dataclass(eq=False)
class AskedAgain:
    """Answers to a sample of the test images: asked as usual, and in the other ways that parts have added."""

    labels: Ints  # (n,)
    before: Ints | None  # top answers of the plain prompt, (n,)
    after: Floats  # what a caller sees of the run's answers, (n, C)
    renamed: Sequence[Renamed] = ()
    templates: Sequence[Changed] = ()
    distractors: Sequence[Changed] = ()
    pictures: Sequence[Changed] = ()


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


def sample_rows(labels: Ints, seed: int, per_class: int = SAMPLE) -> Ints:
    """Rows of at most this many images of each class, drawn by the seed."""
    rng = stream(seed, "audit sample")
    rows = [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in np.unique(labels)]
    return np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)


def sample(images: Images, seed: int, per_class: int = SAMPLE) -> Images:
    """At most this many images of each class, drawn by the seed."""
    return images.subset(sample_rows(images.labels, seed, per_class))


def ask_both(
    subject: Subject, bound: BoundImages, names: Sequence[str], listed: Mask, renamed: Sequence[str | None]
) -> tuple[Ints | None, Ints]:
    """Top answers under other names, of the plain prompt and as served; `listed` and `renamed` as in `Subject`."""
    bound = rebind(subject.model, bound, names)
    return top_or_none(subject.before(bound)), top_classes(subject.after_renamed(bound, listed, renamed))


def top_or_none(p: Floats | None) -> Ints | None:
    """The top class of each answer, if there are answers."""
    return None if p is None else top_classes(p)
