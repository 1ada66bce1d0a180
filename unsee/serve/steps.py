"""The work behind an answer, cut into short steps that go through a fair queue one by one.

Between two steps other clients have their turn, and a request that nobody waits for any more ends. What a request has
used so far is on its bill. Images are decoded in threads of their own, which one client can never fill alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unsee.data.images import in_batches
from unsee.errors import InputError
from unsee.models.local import LocalModel
from unsee.serve.accounts import Bill
from unsee.serve.engine import (
    IMAGE_TOKENS,
    KEPT_CLASSES,
    PIXELS_PER_TOKEN,
    WHOLE_STEPS,
    ClassList,
    Engine,
    Glance,
    Question,
    Recent,
)
from unsee.serve.ledger import Price
from unsee.serve.limits import Limits, Refused, count_pixels, decode_image
from unsee.serve.merging import Asker, Forward, ModelQueue, call_each
from unsee.serve.poison import RunningMarks
from unsee.types import Floats

T = TypeVar("T")
DECODERS = max(2, min(4, os.cpu_count() or 1))  # threads that decode images and write messages
INLINE_NAMES = 64  # whose tokens are counted where they are; a thread would take longer
INLINE_BYTES = 2**18  # of answers that are put together where they are
KEPT_COUNTS = 100_000  # class names whose tokens are known, over all lists


@dataclass(frozen=True, eq=False)
class ImageFile:
    """An image that is not decoded yet."""

    content: bytes
    field: str
    limits: Limits
    _prepare: Callable[[Image.Image], Any]

    def start(self) -> tuple[int, Any]:
        """What it costs, in tokens, and the image as the model takes it; None if it is a large one."""
        tokens = count_pixels(self.content, self.limits, self.field) // PIXELS_PER_TOKEN
        return max(IMAGE_TOKENS, tokens), self.prepare() if tokens <= IMAGE_TOKENS else None

    def prepare(self) -> Any:
        """The image as the model takes it."""
        image = decode_image(self.content, self.limits, self.field)
        try:
            return self._prepare(image)
        except Exception:  # rare modes that Pillow cannot turn into RGB
            raise Refused(422, self.field, f"an image of mode {image.mode} cannot be turned into RGB") from None


class Steps:
    """A model behind its queue, and the threads beside it."""

    def __init__(self, model: LocalModel, limits: Limits, folder: Path, watch: Callable[[int], None]) -> None:
        self.engine = Engine(model)
        self.limits = limits
        self.marks = RunningMarks(folder)
        self.queue = ModelQueue(limits.queue, watch, mark=lambda running: self.marks.set("model", running))
        self._beside = ModelQueue(
            limits.queue,
            threads=DECODERS,
            each=DECODERS - 1,
            rests=True,
            mark=lambda running: self.marks.set("decode", running),
        )
        self._counts: Recent[list[int]] = Recent(KEPT_COUNTS)
        self._known: Recent[Tensor] = Recent(KEPT_CLASSES)  # class embeddings, by owner, names and prompt

    async def close(self, seconds: float) -> None:
        """Ends after what is being computed, or after so many seconds."""
        try:
            await self.queue.close(seconds)
        finally:
            await self._beside.close(1.0)
            self.marks.close()

    async def ask(self, asker: Asker, forward: Forward, kind: Any, item: Any, size: int = 1) -> Any:
        """The answer of one step."""
        try:
            return await self.queue.ask(asker, forward, kind, item, size)
        except InputError as error:  # names that are too long for the model, or leave no room for the contexts
            raise Refused(422, "class_names", str(error)) from None

    async def beside(self, asker: Asker, work: Callable[[], T]) -> T:
        """Does something in a thread beside the model's."""
        found: T = await self._beside.ask(asker, call_each, None, work)
        return found

    async def count(self, asker: Asker, classes: ClassList, contexts: int) -> list[int]:
        """How many tokens each name takes, under so many contexts."""
        key = (classes, contexts)
        found = self._counts.get(key)
        if found is None:
            counted, names = list[int](), len(classes.names)
            parts = [classes]
            if names > INLINE_NAMES:  # others have their turn in between
                parts = [classes.part(start, start + INLINE_NAMES) for start in range(0, names, INLINE_NAMES)]
            for part in parts:
                count = partial(self.engine.tokens, part, contexts)
                counted += count() if part is classes else await self.beside(asker, count)
            found = self._counts.put(key, len(counted), counted)
        return found

    async def logs(self, asker: Asker, question: Question, tokens: Sequence[int], bill: Bill) -> Floats:
        """Logs of confidences (b, n, C), candidate by candidate where they are many."""
        each, n = sum(tokens), len(question.features)
        pieces = self.engine.pieces(question.classes, tokens)
        images = self.engine.images_at_once(question.features, question.classes)
        found = []
        if len(pieces) > 1 or images < n:
            for one in (question.part(i, 1) for i in range(question.size)):
                found.append(await self._large(asker, one, pieces, images, bill))
                bill.used += Price(1, n)
        else:
            done = 0
            while done < question.size:
                steps = WHOLE_STEPS if self.queue.alone(asker.client) else 1  # short ones where others may come
                some = question.part(done, max(1, min(steps * self.engine.step // each, images // n)))
                asked = some.merges_with, some, some.size * each
                found.append(await self.ask(asker, self.engine.answer, *asked))
                bill.used += Price(some.size, some.size * n, some.size * each)
                done += some.size
        if len(found) == 1:
            return found[0]
        join: Callable[[], Floats] = partial(np.concatenate, found)
        return join() if sum(part.nbytes for part in found) <= INLINE_BYTES else await self.beside(asker, join)

    async def _large(
        self, asker: Asker, one: Question, pieces: Sequence[tuple[ClassList, int]], images: int, bill: Bill
    ) -> Floats:
        """One candidate whose names or images are too many for one step. -> (1, n, C)."""
        embeddings = await self._embed(asker, pieces, one.contexts, bill)
        parts = [one.features[start : start + images] for start in range(0, len(one.features), images)]
        asked = [await self.ask(asker, self.engine.compare, None, (part, embeddings)) for part in parts]
        return np.concatenate(asked, 1)

    async def _embed(
        self, asker: Asker, pieces: Sequence[tuple[ClassList, int]], contexts: Floats | None, bill: Bill
    ) -> Tensor:
        """Class embeddings (b, C, E) under one candidate, or the template."""
        found = []
        for piece, tokens in pieces:
            found.append(await self.ask(asker, self.engine.embed, None, (piece, contexts)))
            bill.used += Price(tokens=tokens)
        return torch.cat(found, 1)

    async def classify(
        self, asker: Asker, image: ImageFile, glance: Glance, tokens: Sequence[int], bill: Bill
    ) -> Floats:
        """Confidences (C,) for one image."""
        prepared = await self._decode(Asker(asker.client, glance.about), image, bill)
        key = (glance.classes, glance.prompt)
        known = self._known.get(key)
        if known is None:
            contexts = None if glance.contexts is None else glance.contexts[None]
            known = (await self._embed(asker, self.engine.pieces(glance.classes, tokens), contexts, bill))[0]
            self._known.put(key, len(tokens), known)
        asked = Glance(prepared, glance.classes, prompt=glance.prompt, embeddings=known)
        found: Floats = await self.ask(asker, self.engine.classify, "classify", asked)
        bill.used += Price(image_queries=1)
        return found

    async def encode(self, asker: Asker, images: Sequence[ImageFile], about: Sequence[bytes], bill: Bill) -> Floats:
        """Image features (n, E) of images that are decoded on the way."""

        async def some(rows: range) -> Floats:
            prepared = [await self._decode(Asker(asker.client, about[i]), images[i], bill) for i in rows]
            found: Floats = await self.ask(asker, self._encode, None, prepared, len(prepared))
            return found

        return np.concatenate(await gather(some(rows) for rows in in_batches(len(images), self.engine.images_in_step)))

    async def check(self, asker: Asker, classes: ClassList, tokens: Sequence[int], contexts: int, bill: Bill) -> None:
        """Refused if these names or so many contexts do not fit into the model."""
        for piece, count in self.engine.pieces(classes, tokens):
            await self.ask(asker, self._check, None, (piece, contexts))
            bill.used += Price(tokens=count)

    def image(self, content: bytes, field: str) -> ImageFile:
        """An image file of a client."""
        return ImageFile(content, field, self.limits, self.engine.model.encoder.prepare)

    async def _decode(self, asker: Asker, image: ImageFile, bill: Bill) -> Any:
        """An image as the model takes it; a large one is paid for before it is decoded."""
        tokens, prepared = await self.beside(asker, image.start)
        if tokens > IMAGE_TOKENS:
            await bill.more(Price(tokens=tokens - IMAGE_TOKENS))
        bill.used += Price(tokens=tokens)
        return await self.beside(asker, image.prepare) if prepared is None else prepared

    def _encode(self, parts: Sequence[Sequence[Any]]) -> list[Floats]:
        return [self.engine.encode(part) for part in parts]

    def _check(self, given: Sequence[tuple[ClassList, int]]) -> list[None]:
        for classes, contexts in given:
            self.engine.check(classes, contexts)
        return [None] * len(given)


async def gather(coroutines: Any) -> list[Any]:
    """All results; if one fails, the others are cancelled, so that nothing is computed for nobody."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
