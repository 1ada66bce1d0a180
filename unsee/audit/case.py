"""A run under audit: its answers to the test images, and all that parts have asked so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from unsee.answers.metrics import top_classes
from unsee.audit.asking import AskedAgain, AskedOthers, sample_rows
from unsee.audit.service_sample import few_rows
from unsee.audit.subject import Subject
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.data.other_names import OtherNames, known_names
from unsee.models.black_box import BoundImages
from unsee.types import Floats, Ints, Say


@dataclass(eq=False)
class Case:
    """What a part measures from. Answers are asked for once, when a part first needs them."""

    subject: Subject
    given_names: OtherNames | None = None  # a user's list
    other_data: Data | None = None
    say: Say = field(default=lambda text: None)
    others: AskedOthers | None = None  # answers on the other data, once they were asked for

    @property
    def test(self) -> Images:
        """All test images."""
        return self.subject.data.test

    @cached_property
    def few(self) -> Images:
        """A sample of the test images, for parts that ask many times."""
        return self.test.subset(self._rows)

    @cached_property
    def before(self) -> Floats | None:
        """Answers of the plain prompt, (n, C); None for a model that has none."""
        return self.subject.before(self._bound)

    @cached_property
    def unserved(self) -> Floats:
        """Answers under the prompt alone, (n, C)."""
        return self.subject.unserved(self._bound)

    @cached_property
    def after(self) -> Floats:
        """Answers as served, (n, C)."""
        return self.subject.seen(self.unserved)

    @cached_property
    def other_names(self) -> OtherNames:
        """Other names of the forgotten classes: the user's list, or the package's."""
        return known_names(self.subject.task.forgotten) if self.given_names is None else self.given_names

    @cached_property
    def asked(self) -> AskedAgain:
        """Answers to the sample: as usual, and in the ways that parts have added so far."""
        before = None if self.before is None else top_classes(self.before[self._rows])
        return AskedAgain(self.few.labels, before, self.after[self._rows])

    @cached_property
    def _rows(self) -> Ints:
        labels, subject = self.test.labels, self.subject
        if subject.one_by_one:
            return few_rows(labels, subject.forget, subject.seed)
        return sample_rows(labels, subject.seed)

    @cached_property
    def _bound(self) -> BoundImages:
        return self.subject.bind(self.test)
