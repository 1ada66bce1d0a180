"""White-box access to a model in this process: the model itself (for gradients and weights), class embeddings.

Nothing here passes the black-box border: methods that need it ask for the concrete model, and say so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from unsee.errors import InputError
from unsee.models.black_box import BlackBox, BoundImages
from unsee.models.local import ClassText, LocalBound, LocalModel, MixedText
from unsee.types import Floats


def open_box(model: BlackBox, method: str, access: str) -> LocalModel:
    """The model as a LocalModel; raises InputError if it is a black box."""
    if not isinstance(model, LocalModel):
        raise InputError(
            f"method {method!r} needs {access} of a model in this process; {model.card.name!r} is a black box"
        )
    return model


def device_of(model: BlackBox) -> torch.device:
    """Where this model's text tower is, so what is trained beside it goes there too; the CPU beside a black box."""
    return model.tower.tokens.device if isinstance(model, LocalModel) else torch.device("cpu")


def class_embeddings(model: LocalModel, class_names: Sequence[str], template: str) -> Floats:
    """Normalised class embeddings under a plain-text prompt. -> (C, E)."""
    with torch.inference_mode():
        return _numpy(model.plain_names(class_names, template))


def answer_embeddings(images: BoundImages, embeddings: Floats) -> Floats:
    """Confidences of images bound to a model in this process, under any class embeddings (C, E). -> (n, C)."""
    bound = images.bound
    if not isinstance(bound, LocalBound):
        raise InputError("images must be bound to a model in this process: a black box takes no class embeddings")
    with torch.inference_mode():
        given = torch.from_numpy(embeddings).to(bound.features.device, bound.features.dtype)
        return _numpy(bound.log_softmax(given).exp())


class ClassEmbeddings:
    """Class embeddings before tuning and under any contexts, for the method C-Emb, which uses no images.

    Contexts apply to the names in `tuned` (None: to all); the embeddings of the others stay as they were.
    """

    def __init__(
        self,
        model: LocalModel,
        class_names: Sequence[str],
        template: str,
        tuned: Sequence[str] | None = None,
        position: str = "end",
    ) -> None:
        self._tokens = model.tower.tokens
        self._text: ClassText = (
            model.bind_names(class_names, position)
            if tuned is None
            else MixedText(model, class_names, tuned, template, position)
        )
        self.before = class_embeddings(model, class_names, template)  # (C, E)

    def under(self, contexts: Floats) -> Floats:
        """(b, m, D) -> (b, C, E)."""
        with torch.inference_mode():
            given = torch.from_numpy(np.ascontiguousarray(contexts, dtype=np.float32))
            return _numpy(self._text.embeddings(given.to(self._tokens.device, self._tokens.dtype)))


def _numpy(x: torch.Tensor) -> Floats:
    found: Floats = x.float().cpu().numpy()
    return found
