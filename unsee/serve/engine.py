"""The model behind the service: answers many questions with few forwards. Used from one thread only.

Questions about the same class names are concatenated into one forward of the text tower; images of all clients go
through the image tower together. Class names stay bound between questions.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unsee.data.class_names import in_prompt
from unsee.data.images import in_batches
from unsee.errors import InputError
from unsee.models.local import ClassText, LocalModel, MixedText
from unsee.types import Floats

KEPT_CLASSES = 8_000  # class names that stay bound, over all lists
KEPT_BYTES = 64 * 2**20  # of image sets in memory
STEP_SECONDS = 0.02  # that a step should take; between two steps others have their turn
STEP_MACS = 2 * 10**8  # multiply-adds that take about half as long on one core of a CPU that nothing else runs on
WHOLE_STEPS = 4  # names that take no more steps than this are computed together
COMPARED_MACS = 2_000  # that a softmax takes as long as, for one image and one class
STEP_TOKENS = 256  # of one step at least: smaller products are slow
IMAGE_TOKENS = 450  # what an image costs, in text tokens; about so many for mini and for CLIP ViT-B/16
PIXELS_PER_TOKEN = 1000  # that take as long to decode as a token takes; counted for large images
TRIED = 8  # images that show how an encoder works
T = TypeVar("T")


@dataclass(frozen=True)
class ClassList:
    """Class names, and which of them contexts are put before (None: all); the others stay under the template."""

    names: tuple[str, ...]
    applies_to: tuple[str, ...] | None = None
    template: str = ""
    owner: str = ""  # whose list it is: what stays bound for one client must not answer another sooner

    def part(self, start: int, end: int) -> ClassList:
        """Some of the names."""
        names = self.names[start:end]
        here = set(names)
        applies = None if self.applies_to is None else tuple(name for name in self.applies_to if name in here)
        return ClassList(names, applies, self.template, self.owner)


@dataclass(frozen=True, eq=False)
class Question:
    """Contexts (b, m, D) to be tried on images (n, E); None: the plain-text template instead."""

    classes: ClassList
    contexts: Floats | None
    features: Floats

    @property
    def merges_with(self) -> Hashable:
        """Questions for which this is the same are answered in one forward."""
        return None if self.contexts is None else self.contexts.shape[1], replace(self.classes, owner="")

    @property
    def size(self) -> int:
        return 1 if self.contexts is None else len(self.contexts)

    def part(self, start: int, count: int) -> Question:
        """The question about some of the candidates."""
        some = None if self.contexts is None else self.contexts[start : start + count]
        return Question(self.classes, some, self.features)


@dataclass(frozen=True, eq=False)
class Glance:
    """One image, prepared for the encoder, to be put into one of the classes; contexts (m, D) as in a prompt."""

    prepared: Any
    classes: ClassList
    contexts: Floats | None = None
    prompt: str = ""  # tells prompts apart
    embeddings: Tensor | None = None  # of the classes (C, E), where they are known
    about: bytes = b""  # hash of the image file


class Recent(Generic[T]):
    """The most recently used things, up to a total size."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._things: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()
        self._total = 0

    def get(self, key: Hashable) -> T | None:
        if key not in self._things:
            return None
        self._things.move_to_end(key)
        return self._things[key][1]

    def put(self, key: Hashable, size: int, thing: T) -> T:
        self.drop(key)
        self._things[key] = size, thing
        self._total += size
        while self._total > self._limit and len(self._things) > 1:
            self.drop(next(iter(self._things)))
        return thing

    def drop(self, key: Hashable) -> None:
        if key in self._things:
            self._total -= self._things.pop(key)[0]

    def find(self, key: Hashable, size: int, make: Callable[[], T]) -> T:
        """The thing under this key, made if it is not there."""
        found = self.get(key)
        return self.put(key, size, make()) if found is None else found


class Engine:
    """A local model that answers in batches."""

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        tower = model.tower
        weights = sum(tensor.numel() for tensor in tower.tensors()) - tower.tokens.numel()
        self.step = max(STEP_TOKENS, STEP_MACS // max(1, weights))  # text tokens
        with torch.inference_mode():
            self.width = model.texts(["a"]).shape[1]  # E
        self.images_in_step = self._choose_images()
        self._texts: Recent[ClassText] = Recent(KEPT_CLASSES)
        self._embeddings: Recent[Tensor] = Recent(KEPT_CLASSES)

    def answer(self, questions: Sequence[Question]) -> list[Floats]:
        """Logs of confidences, (b, n, C) for each question. All must agree in `merges_with`."""
        first = questions[0]
        with torch.inference_mode():
            if first.contexts is None:
                plain = self._plain(first.classes)  # (C, E): with another shape its products would round differently
                return [self._logs(question.features, plain)[None] for question in questions]
            given = np.concatenate([question.contexts for question in questions if question.contexts is not None])
            found = self._text(first.classes).embeddings(self._tensor(given))  # (sum of b, C, E)
            parts = torch.split(found, [question.size for question in questions])
            return [self._logs(question.features, part) for question, part in zip(questions, parts, strict=True)]

    def tokens(self, classes: ClassList, contexts: int) -> list[int]:
        """How many tokens each name takes, under so many contexts or (0) the template."""
        ids, applies = self.model.tokenizer.ids, None if classes.applies_to is None else set(classes.applies_to)
        found, whole = [], classes.template
        for name in classes.names:
            text = in_prompt(name)
            under = contexts and (applies is None or name in applies)
            found.append(2 + (contexts + len(ids(f"{text}.")) if under else len(ids(whole.replace("{}", text)))))
        return found

    def pieces(self, classes: ClassList, tokens: Sequence[int]) -> list[tuple[ClassList, int]]:
        """The names in lists that one step can take, with their tokens; one if that is but a little longer."""
        if sum(tokens) <= WHOLE_STEPS * self.step:
            return [(classes, sum(tokens))]
        ends, total = [0], 0
        for i, count in enumerate(tokens):
            if total + count > self.step and i > ends[-1]:
                ends.append(i)
                total = 0
            total += count
        bounds = zip(ends, [*ends[1:], len(tokens)], strict=True)
        return [(classes.part(start, end), sum(tokens[start:end])) for start, end in bounds]

    def images_at_once(self, features: Floats, classes: ClassList) -> int:
        """How many of these images (n, E) are compared with so many classes in one step."""
        return max(1, STEP_MACS // ((int(features.shape[1]) + COMPARED_MACS) * len(classes.names)))

    def embed(self, asked: Sequence[tuple[ClassList, Floats | None]]) -> list[Tensor]:
        """Class embeddings (b, C, E) under contexts (b, m, D), or (1, C, E) under the template."""
        found = []
        with torch.inference_mode():
            for classes, contexts in asked:
                if contexts is None:
                    found.append(self._plain(classes)[None])
                elif classes.applies_to == ():
                    found.append(self._plain(classes).repeat(len(contexts), 1, 1))
                else:
                    found.append(self._text(classes).embeddings(self._tensor(contexts)))
        return found

    def compare(self, asked: Sequence[tuple[Floats, Tensor]]) -> list[Floats]:
        """Logs of confidences (b, n, C) of images (n, E) under class embeddings (b, C, E)."""
        with torch.inference_mode():
            return [self._logs(features, embeddings) for features, embeddings in asked]

    def check(self, classes: ClassList, contexts: int) -> None:
        """InputError if these names or so many contexts do not fit into the model's tokens."""
        if contexts and classes.applies_to != ():
            room = self._text(classes).room
            if contexts > room:
                raise InputError(f"{contexts} contexts do not fit in front of the longest class name; {room} do")

    def encode(self, prepared: Sequence[Any]) -> Floats:
        """Image features (n, E), in batches of the encoder's size."""
        encoder = self.model.encoder
        return np.concatenate(
            [encoder.encode([prepared[i] for i in batch]) for batch in in_batches(len(prepared), encoder.batch)]
        )

    def classify(self, glances: Sequence[Glance]) -> list[Floats]:
        """Confidences (C,) for each image: one forward of the image tower, one product per class list."""
        features = self.encode([glance.prepared for glance in glances])
        alike: dict[Hashable, list[int]] = {}
        for i, glance in enumerate(glances):
            alike.setdefault((glance.classes, glance.prompt), []).append(i)
        found: list[Floats] = [features[0]] * len(glances)
        with torch.inference_mode():
            for rows in alike.values():
                embeddings = self._under(glances[rows[0]])
                for row, logs in zip(rows, self._logs(features[rows], embeddings), strict=True):
                    found[row] = np.exp(logs)
        return found

    def _choose_images(self) -> int:
        """How many images one step takes: 1, or as many as the encoder takes at once if it is fast enough for that.

        1 also where an answer has the same bits in any batch. Not a number in between: answers are to be those of a
        model that is not served, whose batches are whole.
        """
        encoder, draw = self.model.encoder, np.random.default_rng(0)
        pixels = draw.integers(0, 256, (TRIED, 32, 32, 3), dtype=np.uint8)
        prepared = [encoder.prepare(Image.fromarray(each)) for each in pixels]
        alone, seconds = np.concatenate([encoder.encode([each]) for each in prepared[:2]]), float("inf")
        for _ in range(2):
            started = time.perf_counter()
            together = encoder.encode(prepared)
            seconds = min(seconds, time.perf_counter() - started)
        if np.array_equal(alone, together[:2]) or seconds * encoder.batch / TRIED > 10 * STEP_SECONDS:
            return 1
        return encoder.batch

    def _under(self, glance: Glance) -> Tensor:
        """Class embeddings (C, E) under a prompt or the plain template; kept, because clients ask again and again."""
        if glance.embeddings is not None:
            return glance.embeddings
        if glance.contexts is None:
            return self._plain(glance.classes)
        contexts = self._tensor(glance.contexts[None])
        key = (glance.classes, glance.prompt)
        size = len(glance.classes.names)
        return self._embeddings.find(key, size, lambda: self._text(glance.classes).embeddings(contexts)[0])

    def _plain(self, classes: ClassList) -> Tensor:
        key = ("plain", classes.names, classes.template, classes.owner)
        make = lambda: self.model.plain_names(classes.names, classes.template)  # noqa: E731
        return self._embeddings.find(key, len(classes.names), make)

    def _text(self, classes: ClassList) -> ClassText:
        def make() -> ClassText:
            if classes.applies_to is None:
                return self.model.bind_names(classes.names)
            return MixedText(self.model, classes.names, classes.applies_to, classes.template)

        return self._texts.find(classes, len(classes.names), make)

    def _tensor(self, array: Floats) -> Tensor:
        tokens = self.model.tower.tokens
        return torch.tensor(array).to(tokens.device, tokens.dtype)  # a copy: the array may be read-only

    def _logs(self, features: Floats, embeddings: Tensor) -> Floats:
        found: Floats = self.model.log_softmax(self._tensor(features), embeddings).cpu().numpy()
        return found
