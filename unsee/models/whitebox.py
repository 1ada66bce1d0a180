"""What only a model in this process can tell: gradients and class embeddings.

Nothing here passes the black-box border: methods that need it ask for the concrete model, and say so.
"""

from __future__ import annotations

import numpy as np
import torch

from unsee.errors import InputError
from unsee.images import Images
from unsee.models.border import BlackBox
from unsee.models.local import LocalBound, LocalModel
from unsee.records import Doubles, Floats, Mask


def open_box(model: BlackBox, method: str, access: str) -> LocalModel:
    """The model itself; refuses one that is reached through the border alone."""
    if not isinstance(model, LocalModel):
        raise InputError(
            f"method {method!r} needs {access} of a model in this process; {model.card.name!r} is a black box"
        )
    return model


class LossSlope:
    """The gradient of the forgetting loss with respect to contexts, by back-propagation."""

    def __init__(
        self, model: LocalModel, images: Images, forget: Mask, weights: tuple[float, float], shape: tuple[int, int]
    ) -> None:
        self._bound = LocalBound(model, images, images.class_names)
        self._labels = torch.from_numpy(images.labels)
        self._gone = torch.from_numpy(forget[images.labels])
        self._weights = weights
        self._shape = shape

    def __call__(self, contexts: Doubles) -> Doubles:
        """(m * D,) -> (m * D,)."""
        tokens = self._bound.model.tower.tokens
        point = torch.tensor(contexts, dtype=tokens.dtype, device=tokens.device).view(1, *self._shape).requires_grad_()
        loss = self.loss(self._bound.log_softmax(self._bound.text.embeddings(point))[0])
        (slope,) = torch.autograd.grad(loss, point)
        found: Doubles = slope.double().cpu().numpy().ravel()
        return found

    def loss(self, log_p: torch.Tensor) -> torch.Tensor:
        """The same loss as `scores.forgetting_loss`, of one candidate. (n, C) -> ()."""
        memorize, forget = self._weights
        labels, gone = self._labels.to(log_p.device), self._gone.to(log_p.device)
        total = log_p.new_zeros(())
        if (~gone).any():
            total = total - memorize * log_p[~gone].gather(1, labels[~gone, None]).mean()
        if gone.any():
            total = total - forget * log_p[gone].mean()
        return total


class ClassEmbeddings:
    """Class embeddings before tuning, and under any contexts: what C-Emb forgets by, without images."""

    def __init__(self, model: LocalModel, class_names: tuple[str, ...], template: str) -> None:
        self._text = model.bind_names(class_names)
        self._tokens = model.tower.tokens
        with torch.inference_mode():
            self.before: Floats = _numpy(model.texts([template.replace("{}", name) for name in class_names]))  # (C, E)

    def under(self, contexts: Floats) -> Floats:
        """(b, m, D) -> (b, C, E)."""
        with torch.inference_mode():
            given = torch.from_numpy(np.ascontiguousarray(contexts, dtype=np.float32))
            return _numpy(self._text.embeddings(given.to(self._tokens.device, self._tokens.dtype)))


def _numpy(x: torch.Tensor) -> Floats:
    found: Floats = x.float().cpu().numpy()
    return found
