"""What a method found: something that answers images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from unsee.answers.rules import serve
from unsee.models.black_box import BoundImages
from unsee.types import Floats, Mask


class Fitted(Protocol):
    """What a method found: something that answers images."""

    def confidences(self, images: BoundImages) -> Floats:
        """Answers (n, C), rows sum to 1."""


@dataclass(frozen=True, eq=False)
class TunedContexts:
    """The contexts with the best validation score, the names they apply to (None: all), and the rule for answers."""

    contexts: Floats  # (m, D)
    applies_to: tuple[str, ...] | None
    template: str  # of the other names
    forget: Mask  # (C,)
    rule: str = "as-is"
    position: str = "end"

    def confidences(self, images: BoundImages) -> Floats:
        """Answers under the contexts, before the rule: scores say what was tuned."""
        found: Floats = self.place(images).confidences(self.contexts[None])[0]
        return found

    def served(self, confidences: Floats) -> Floats:
        """What a caller sees of these answers."""
        return serve(confidences, self.forget, self.rule)

    def place(self, images: BoundImages) -> BoundImages:
        """Images bound to a model, with contexts where this prompt has them."""
        return images.at(self.position).apply_to(self.applies_to, self.template)
