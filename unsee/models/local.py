"""A model that runs in this process: a text tower, an image encoder and a tokenizer."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from unsee.data.class_names import in_prompt
from unsee.data.images import Anything, Images, as_images
from unsee.errors import InputError
from unsee.models.features import FeatureCache, ImageEncoder, encode_images
from unsee.types import Card, Floats, Ints

SEVERAL = " | "  # between templates: class embeddings are then the mean of those under each


class Tokenizer(Protocol):
    """Turns text into token ids, without start and end tokens."""

    @property
    def sos(self) -> int | None:
        """The id that every text starts with, if there is one."""

    @property
    def eot(self) -> int: ...
    @property
    def fingerprint(self) -> str:
        """Differs between tokenizers that may give different ids."""

    def ids(self, text: str) -> list[int]: ...


class ClassText(Protocol):
    """Class names in front of which contexts are put."""

    @property
    def room(self) -> int:
        """How many contexts fit in front of the longest of these names."""

    def embeddings(self, contexts: Tensor) -> Tensor:
        """Normalised class embeddings under each candidate. (b, m, D) -> (b, C, E)."""


class Tower(Protocol):
    """A text tower: token ids and contexts in, class embeddings out."""

    @property
    def tokens(self) -> Tensor:
        """The table of token embeddings, (V, D); the tower's device and dtype are its own."""

    @property
    def width(self) -> int: ...
    @property
    def limit(self) -> int:
        """How many positions a text may have, start and end tokens included."""

    @property
    def causal(self) -> bool:
        """Whether ids after the end token cannot matter, so that they are cut."""

    @property
    def recipe(self) -> str:
        """What changes the tower's answers besides its weights; part of a model's fingerprint."""

    def tensors(self) -> list[Tensor]: ...
    def bind(self, names: Sequence[Sequence[int]], sos: int | None, position: str, tails: Sequence[int]) -> ClassText:
        """The tower bound to class names: ids of `<class name>.` and the end token; a tail is what follows the name."""

    def encode(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Normalised embeddings of whole texts, start and end tokens included. -> (n, E)."""

    def trainable_copy(self) -> Tower:
        """A copy whose weights can be trained without changing the original."""


class LocalModel:
    """A CLIP-like model in memory: a black box whose parts white-box methods can also reach."""

    def __init__(
        self,
        name: str,
        tower: Tower,
        tokenizer: Tokenizer,
        encoder: ImageEncoder,
        logit_scale: float,
        cache: FeatureCache | None = None,
        reads_highest: bool = False,
        logit_bias: float | None = None,
    ) -> None:
        self.tower = tower
        self.tokenizer = tokenizer
        self.encoder = encoder
        self.logit_scale = logit_scale  # similarities are multiplied by it
        self.logit_bias = logit_bias  # of models trained with a sigmoid, None for all others; softmax cancels it
        self.cache = cache
        self.reads_highest = reads_highest  # the text embedding is the output at the highest id, not at the first EOT
        more = [] if logit_bias is None else [f"{logit_bias!r}"]
        table = tower.tokens.detach().float()
        self.card = Card(
            name=name,
            fingerprint=_fingerprint(
                tower, encoder.fingerprint, tokenizer.fingerprint, f"{logit_scale!r}", f"{reads_highest}", *more
            ),
            width=tower.width,
            token_mean=table.mean(dim=0).cpu().numpy(),
            token_std=float(table.std()),
            token_limit=tower.limit,
        )

    def __repr__(self) -> str:
        return f"LocalModel({self.card.summary})"

    def bind(self, images: Anything, class_names: Sequence[str]) -> LocalBound:
        """Encodes the images once and prepares the class names."""
        return LocalBound(self, images, class_names)

    def embed(self, phrase: str) -> Floats:
        """Token embeddings of a phrase. -> (k, D)."""
        ids = torch.tensor(self.tokenizer.ids(phrase), dtype=torch.long, device=self.tower.tokens.device)
        found: Floats = self.tower.tokens[ids].detach().float().cpu().numpy()
        return found

    def bind_names(self, class_names: Sequence[str], position: str = "end") -> ClassText:
        """The text tower bound to `<class name>.`, the names as the paper writes them."""
        suffixes = [self._suffix(f"{in_prompt(name)}.", name) for name in class_names]
        bare = [self.tokenizer.ids(in_prompt(name)) for name in class_names] if position != "end" else suffixes
        return self.tower.bind(suffixes, self.tokenizer.sos, position, list(map(_tail, suffixes, bare)))

    def plain_names(self, class_names: Sequence[str], template: str) -> Tensor:
        """Normalised embeddings of the class names under a plain-text prompt, or the mean under several. -> (C, E)."""
        parts = template.split(SEVERAL)
        for part in parts:
            if "{}" not in part:
                raise InputError(f"the template {part!r} must hold {{}} where the class name goes")
        found = [self.texts([part.replace("{}", in_prompt(name)) for name in class_names]) for part in parts]
        if len(found) == 1:
            return found[0]
        mean = torch.stack(found).mean(dim=0)
        return torch.nn.functional.normalize(mean, dim=-1)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """Normalised embeddings of whole texts. -> (n, E)."""
        sos = self.tokenizer.sos
        start = [] if sos is None else [sos]
        return self.tower.encode([[*start, *self._suffix(text, text)] for text in texts])

    def log_softmax(self, features: Tensor, embeddings: Tensor) -> Tensor:
        """Log-confidences of images (n, E) under class embeddings (…, C, E). -> (…, n, C), in float32."""
        return self.logits(features, embeddings).log_softmax(dim=-1)

    def logits(self, features: Tensor, embeddings: Tensor) -> Tensor:
        """Scaled similarities. (n, E), (…, C, E) -> (…, n, C)."""
        # In float32 whatever the towers compute in: half precision has three digits, and the scale is about 100.
        return self.logit_scale * (features.float() @ embeddings.float().transpose(-1, -2))

    def _suffix(self, text: str, name: str) -> list[int]:
        """Ids up to the one whose output is the embedding: the first EOT, or by the older rule the highest id."""
        ids = [*self.tokenizer.ids(text), self.tokenizer.eot]
        if self.tower.causal:
            ids = ids[: ids.index(max(ids) if self.reads_highest else self.tokenizer.eot) + 1]
        if len(ids) + (self.tokenizer.sos is not None) > self.tower.limit:
            taken = f"takes {len(ids)} of the model's {self.tower.limit} tokens"
            raise InputError(f"the class name {name!r} {taken}; give it a shorter one")
        return ids


class MixedText:
    """Contexts before some class names; the embeddings of the others stay what a plain-text prompt makes them."""

    def __init__(
        self,
        model: LocalModel,
        class_names: Sequence[str],
        tuned: Sequence[str],
        template: str,
        position: str = "end",
    ) -> None:
        rows = [i for i, name in enumerate(class_names) if name in set(tuned)]
        if not rows or len(rows) != len(set(tuned)):
            raise InputError(f"contexts are to apply to {', '.join(tuned) or 'no name'}: not all are classes here")
        self._rows = torch.tensor(rows, device=model.tower.tokens.device)
        self._tuned = model.bind_names([class_names[i] for i in rows], position)
        with torch.inference_mode(False), torch.no_grad():  # so that autograd may use it too
            self.plain = model.plain_names(class_names, template)  # (C, E)

    @property
    def room(self) -> int:
        return self._tuned.room

    def embeddings(self, contexts: Tensor) -> Tensor:
        """(b, m, D) -> (b, C, E)."""
        return self.plain.repeat(len(contexts), 1, 1).index_copy(1, self._rows, self._tuned.embeddings(contexts))


class LocalBound:
    """A local model bound to images and class names."""

    def __init__(self, model: LocalModel, images: Anything, class_names: Sequence[str]) -> None:
        self.model = model
        self._name(class_names)
        self._encode(images)

    def _name(self, class_names: Sequence[str]) -> None:
        if not class_names:
            raise InputError("at least one class name is needed")
        self.class_names = tuple(class_names)
        self.text: ClassText = self.model.bind_names(class_names)
        self._position = "end"

    def _encode(self, images: Anything) -> None:
        encoded = encode_images(as_images(images), self.model.encoder, self.model.cache)
        self.images_encoded = encoded.computed
        self.images_from_cache = encoded.cached
        self.features = torch.from_numpy(encoded.features).to(self.model.tower.tokens.device)  # (n, E), float32

    def other_images(self, images: Images) -> LocalBound:
        """Other images under the same class names, which are not prepared again."""
        other = copy.copy(self)
        other._encode(images)
        return other

    def other_names(self, class_names: Sequence[str]) -> LocalBound:
        """The same images under other class names; nothing is encoded again."""
        other = copy.copy(self)
        other._name(class_names)
        other.images_encoded = other.images_from_cache = 0
        return other

    def select(self, rows: Ints) -> LocalBound:
        """Some of the images; nothing is encoded again."""
        some = copy.copy(self)
        some.features = self.features[torch.from_numpy(rows).to(self.features.device)]
        some.images_encoded = some.images_from_cache = 0
        return some

    @property
    def room(self) -> int:
        """How many contexts fit in front of the longest class name."""
        return self.text.room

    def apply_to(self, names: Sequence[str], template: str) -> LocalBound:
        """The same images, contexts before these names only; the others stay under the template."""
        mixed = copy.copy(self)  # the image features are shared
        mixed.text = MixedText(self.model, self.class_names, names, template, self._position)
        return mixed

    def at(self, position: str) -> LocalBound:
        """The same images, with class names at this position among the contexts."""
        moved = copy.copy(self)
        moved.text, moved._position = self.model.bind_names(self.class_names, position), position
        return moved

    def confidences(self, contexts: Floats) -> Floats:
        """(b, m, D) -> (b, n, C); rows sum to 1."""
        return np.exp(self.log_confidences(contexts))

    def log_confidences(self, contexts: Floats) -> Floats:
        """Logs of the confidences, straight from log-softmax. (b, m, D) -> (b, n, C)."""
        with torch.inference_mode():
            return _numpy(self.log_softmax(self.text.embeddings(self._ready(contexts))))

    def zero_shot(self, template: str) -> Floats:
        """Confidences under a plain-text prompt. -> (n, C)."""
        with torch.inference_mode():
            return np.exp(_numpy(self.log_softmax(self.model.plain_names(self.class_names, template))))

    def sigmoids(self, contexts: Floats | None = None, template: str = "a photo of a {}.") -> Floats:
        """How a model trained with a sigmoid scores each name by itself, under contexts or else a plain-text prompt.

        (b, m, D) -> (b, n, C), or (n, C) for a plain-text prompt. Rows do not sum to 1.
        """
        bias = self.model.logit_bias
        if bias is None:
            raise InputError(f"{self.model.card.name!r} was trained with a softmax; it has no sigmoid scores")
        with torch.inference_mode():
            if contexts is None:
                embeddings = self.model.plain_names(self.class_names, template)
            else:
                embeddings = self.text.embeddings(self._ready(contexts))
            return _numpy((self.model.logits(self.features, embeddings) + bias).sigmoid())

    def log_softmax(self, embeddings: Tensor) -> Tensor:
        """Log-confidences of the bound images under class embeddings (…, C, E). -> (…, n, C), in float32."""
        return self.model.log_softmax(self.features, embeddings)

    def _ready(self, contexts: Floats) -> Tensor:
        """Contexts where the text tower is."""
        given = np.asarray(contexts, dtype=np.float32)
        if given.ndim != 3:
            raise InputError(f"contexts must be (b, m, {self.model.card.width}), not {given.shape}")
        tokens = self.model.tower.tokens
        return torch.tensor(given).to(tokens.device, tokens.dtype)  # a copy: given may be read-only


def _numpy(x: Tensor) -> Floats:
    found: Floats = x.float().cpu().numpy()
    return found


def _tail(suffix: Sequence[int], bare: Sequence[int]) -> int:
    """How many ids follow a class name: all beyond as many as the name alone has, as CoOp counts them.

    That is the full stop and the end token, or the end token alone where the stop merges with the name's last sign.
    """
    return max(1, len(suffix) - len(bare))


def _fingerprint(tower: Tower, *others: str) -> str:
    """Hash of the text tower and of the other parts that change a model's answers."""
    digest = hashlib.blake2b("|".join([*others, tower.recipe]).encode(), digest_size=16)
    for tensor in tower.tensors():
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
