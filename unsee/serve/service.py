"""What the service does, without HTTP: images in, confidences out, prompts deployed and withdrawn."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unsee.data.images import in_batches
from unsee.data.other_names import OtherNames
from unsee.errors import InputError
from unsee.models.local import LocalModel
from unsee.models.remote.wire import (
    CONFIDENCES,
    CONTEXTS,
    LOGS,
    MEDIA,
    TOP,
    Message,
    WireError,
    pack,
    set_digest,
    unpack,
)
from unsee.runs.records import PromptCard
from unsee.serve.accounts import Accounts, ResponseBody
from unsee.serve.deployed import read_prompt
from unsee.serve.engine import KEPT_BYTES, ClassList, Engine, Glance, Question, Recent
from unsee.serve.keys import ANYONE, Client
from unsee.serve.ledger import Price, ServiceLedger, StoredPrompt
from unsee.serve.limits import (
    Limits,
    Refused,
    answer_size,
    check_class_names,
    check_contexts,
    check_image_digest,
    check_template,
    decode_image,
    read_list,
)
from unsee.serve.merging import ModelQueue
from unsee.serve.policy import Under, granted_prompt, prompt_owner, under_any, under_fixed, under_template
from unsee.types import Floats

T = TypeVar("T")
DECODERS = 2  # threads that decode images and write messages, beside the model's own
INLINE = 2**20  # bytes of an answer that is written where it is; a thread would take longer
LARGEST = 64  # candidates or images of one merged forward


@dataclass(frozen=True)
class Disclosure:
    """What leaves the service: how many classes of each answer, their confidences or not, token statistics or not."""

    top: int | None = None  # None: all classes
    confidences: bool = True
    token_statistics: bool = True

    @classmethod
    def parse(cls, answers: str, card: str) -> Disclosure:
        """From `--answers all`, `top-K` or `label`, and `--card full` or `none`."""
        statistics = card == "full"
        if answers in ("all", "label"):
            return cls(1 if answers == "label" else None, answers == "all", statistics)
        found = re.fullmatch(r"top-([1-9][0-9]{0,5})", answers)
        if found is None:
            raise InputError(f"--answers is all, label, or top-K such as top-5, not {answers!r}")
        return cls(int(found[1]), True, statistics)

    @property
    def answers(self) -> str:
        """As `--answers` has it."""
        return "all" if self.top is None else f"top-{self.top}" if self.confidences else "label"

    def arrays(self, logs: Floats, form: str) -> dict[str, NDArray[Any]]:
        """The arrays that are sent for these logs of confidences (b, n, C)."""
        if self.top is None:
            return {LOGS: logs} if form == "logs" else {CONFIDENCES: np.exp(logs)}
        order = np.argsort(-logs, axis=-1, kind="stable")[..., : self.top].astype(np.int32)
        found: dict[str, NDArray[Any]] = {TOP: order}
        if self.confidences:
            found[CONFIDENCES] = np.exp(np.take_along_axis(logs, order, axis=-1))
        return found


@dataclass(eq=False)
class Service:
    """A model behind its queue, with the accounts of its clients."""

    model: LocalModel
    ledger: ServiceLedger
    limits: Limits = field(default_factory=Limits)
    disclosure: Disclosure = field(default_factory=Disclosure)
    watch_merged: Callable[[int], None] = lambda merged: None
    other_names: OtherNames = field(default_factory=dict)  # of forgotten classes, besides those the package knows

    def __post_init__(self) -> None:
        self.engine = Engine(self.model)
        self.queue = ModelQueue(self.limits.queue, LARGEST, self.watch_merged)
        self.accounts = Accounts(self.ledger, self.limits.seconds)
        self._pool = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
        self._sets: Recent[Floats] = Recent(KEPT_BYTES)

    async def close(self) -> None:
        """Finishes what is being answered."""
        await self.accounts.finish()
        await self.queue.close()
        await self.accounts.close()
        self._pool.shutdown()

    def card(self, client: Client) -> dict[str, object]:
        """What a client may know of the model, and of what it may ask."""
        card = self.model.card
        shown = self.disclosure.token_statistics and client.role != "classify"  # for those who make contexts
        return {
            "name": card.name,
            "fingerprint": card.fingerprint,
            "width": card.width,
            "token_limit": card.token_limit,
            "token_mean": card.token_mean.tolist() if shown else None,
            "token_std": card.token_std if shown else None,
            "answers": self.disclosure.answers,
            "limits": self.limits.published(),
            "role": client.role,
            "labels": client.labels if client.prompts else None,
        }

    async def keep_set(self, client: Client, digests: Sequence[Any]) -> dict[str, object]:
        """Makes a set of images that are here already; 404 names those that are not."""
        if not digests or len(digests) > self.limits.images:
            raise Refused(422, "images", f"must be 1 to {self.limits.images} hashes, not {len(digests)}")
        checked = [check_image_digest(digest, f"images[{i}]") for i, digest in enumerate(digests)]
        missing = await self.accounts.disk(lambda: self.ledger.missing(client.name, self._encoder, checked))
        if missing:
            return {"missing": missing}
        name = set_digest(checked)
        if await self._features(client, name) is None:
            self.accounts.store(client, 32 * len(checked))
            await self.accounts.disk(lambda: self.ledger.put_set(client.name, name, checked))
        return {"images": name, "count": len(checked)}

    async def keep_images(self, client: Client, files: Sequence[tuple[str, bytes]], as_set: bool) -> dict[str, object]:
        """Stores and encodes image files by (digest, content), those that are not here yet; as a set, if wanted."""
        digests = [digest for digest, _ in files]
        missing = set(await self.accounts.disk(lambda: self.ledger.missing(client.name, self._encoder, digests)))
        new = {digest: i for i, digest in reversed(list(enumerate(digests))) if digest in missing}  # each once
        rows = sorted(new.values())
        for batch in in_batches(
            len(rows), LARGEST
        ):  # stored one by one: an upload that is cut short was not for nothing
            part = await asyncio.gather(*(self._prepare(files[rows[i]][1], f"images[{rows[i]}]") for i in batch))
            features = await self.queue.ask(self._encode, "images", part, len(part))
            self.accounts.store(client, features.nbytes)
            entries = [(digests[rows[i]], feature) for i, feature in zip(batch, features, strict=True)]
            await self.accounts.disk(partial(self.ledger.put_images, client.name, self._encoder, entries))
        kept: dict[str, object] = {"count": len(files)}
        if as_set:
            kept = await self.keep_set(client, digests)
        return kept | {"encoded": len(rows), "known": len(files) - len(rows)}

    async def count_images(self, client: Client, name: str) -> int:
        """How many images a set holds; 404 if the client has no such set."""
        return len(await self._known_features(client, name))

    async def delete_set(self, client: Client, name: str) -> None:
        check_image_digest(name, "images")
        if not await self.accounts.disk(lambda: self.ledger.delete_set(client.name, name)):
            raise Refused(404, "images", "there is no such set of images")
        self._sets.drop((client.name, name))
        await self.accounts.recount_stored()

    async def confidences(self, client: Client, body: bytes, key: str | None) -> ResponseBody:
        """Confidences for the contexts, or the template, in a message."""
        try:
            message = unpack(body)
        except WireError as error:
            raise Refused(422, "body", str(error)) from None
        facts = message.facts
        form = facts.get("form", "confidences")
        if form not in ("confidences", "logs") or (form == "logs" and self.disclosure.top is not None):
            raise Refused(422, "form", "must be confidences, or logs where the service answers with all classes")
        classes = self._class_list(facts, client.name)
        features = await self._known_features(client, facts.get("images", ""))
        if CONTEXTS not in message.arrays and "template" not in facts:
            raise Refused(422, "contexts", "neither contexts nor a template are given")
        contexts = self._contexts(message) if CONTEXTS in message.arrays else None
        question = Question(classes, contexts, features)
        answer_size(question.size, len(features), classes.names, self.limits)

        async def work() -> ResponseBody:
            logs = await self._ask(self.engine.answer, question.merges_with, question, question.size)
            if logs.nbytes <= INLINE:
                return self._answer(logs, form)
            return await self._in_pool(lambda: self._answer(logs, form))

        price = Price(question.size, question.size * len(features))
        return await self.accounts.answer_once(client, key, self._identity(message.digest()), price, work)

    async def classify(
        self,
        client: Client,
        image: bytes,
        labels: Sequence[str] | None,
        template: str | None,
        prompt: str | None,
        key: str | None,
    ) -> ResponseBody:
        """Labels with their scores for one image, highest first, as JSON."""
        under = await self._under(client, labels, template, prompt)
        question = self._identity(json.dumps(under.facts).encode() + b"\0" + image)

        async def work() -> ResponseBody:
            glance = Glance(await self._prepare(image, "inputs"), under.classes, under.contexts, under.identity)
            found = await self._ask(self.engine.classify, "classify", glance)
            return self._labels(under.labels, under.served(found, image))

        found = await self.accounts.answer_once(client, key, question, Price(image_queries=1), work)
        return replace(found, note=under.note)

    async def deploy(self, client: Client, name: str, body: bytes) -> PromptCard:
        """Keeps a prompt under this name."""
        card, classes, contexts = read_prompt(body, self.model.card, self.limits)
        await self._ask(self._check, "check", (classes, len(contexts)))
        stored = StoredPrompt(card.model_dump_json(), pack({CONTEXTS: contexts}))
        self.accounts.store(client, len(stored.card) + len(stored.contexts))
        await self.accounts.disk(lambda: self.ledger.put_prompt(client.name, name, stored))
        await self.accounts.recount_stored()
        return card

    def deploy_at_start(self, name: str, body: bytes) -> None:
        """Keeps a prompt of the operator, before the service runs; InputError says what is wrong with it."""
        try:
            card, classes, contexts = read_prompt(body, self.model.card, self.limits)
        except Refused as refused:
            raise InputError(f"prompt {name!r} cannot be deployed: {refused.field}: {refused}") from None
        self.engine.check(classes, len(contexts))
        self.ledger.put_prompt(ANYONE.name, name, StoredPrompt(card.model_dump_json(), pack({CONTEXTS: contexts})))

    async def prompt(self, client: Client, name: str) -> tuple[PromptCard, bytes]:
        """A deployed prompt; 404 if the client has none of this name."""
        found = await self.accounts.disk(lambda: self.ledger.prompt(client.name, name))
        if found is None:
            raise Refused(404, "name", "there is no such prompt")
        return PromptCard.model_validate_json(found.card), found.contexts

    async def prompts(self, client: Client) -> dict[str, PromptCard]:
        found = await self.accounts.disk(lambda: self.ledger.prompts(client.name))
        return {name: PromptCard.model_validate_json(card) for name, card in found.items()}

    async def withdraw(self, client: Client, name: str) -> None:
        if not await self.accounts.disk(lambda: self.ledger.delete_prompt(client.name, name)):
            raise Refused(404, "name", "there is no such prompt")
        await self.accounts.recount_stored()

    @property
    def _encoder(self) -> str:
        return self.model.encoder.fingerprint

    def _identity(self, question: bytes) -> bytes:
        """A hash of the question to this very model."""
        return hashlib.sha256(self.model.card.fingerprint.encode() + b"\0" + question).digest()

    def _class_list(self, facts: dict[str, str], owner: str) -> ClassList:
        names = check_class_names(read_list(facts, "class_names"), self.limits)
        template = check_template(facts["template"], self.limits) if "template" in facts else ""
        if "applies_to" not in facts:
            return ClassList(names, None, template, owner)
        chosen = check_class_names(read_list(facts, "applies_to"), self.limits, "applies_to")
        if not set(chosen) <= set(names):
            raise Refused(422, "applies_to", "must name some of class_names")
        if not template:
            raise Refused(422, "template", "is needed for the names that contexts do not apply to")
        return ClassList(names, chosen, template, owner)

    def _contexts(self, message: Message) -> Floats:
        return check_contexts(message.arrays[CONTEXTS], self.model.card, self.limits)

    async def _under(
        self, client: Client, labels: Sequence[str] | None, template: str | None, prompt: str | None
    ) -> Under:
        """What a classification is made under: a deployed prompt, or a template."""
        ids = self.model.tokenizer.ids
        if client.prompts:
            name = granted_prompt(client, prompt, template)
            stored = await self.accounts.disk(lambda: self.ledger.prompt(ANYONE.name, name))
            if stored is None:  # no answer leaves without it
                raise Refused(503, "prompt", "the prompt of this key is not deployed; its operator can", retry_after=60)
            card, content = PromptCard.model_validate_json(stored.card), stored.contexts
            if client.labels == "fixed":
                return under_fixed(card, content, labels, ANYONE.name, self.limits)
            given = card, content, labels, client.name, self.limits, ids, self.other_names
            return await self._in_pool(lambda: under_any(*given))
        if prompt is None:
            return under_template(labels, template, client.name, self.limits)
        card, content = await self.prompt(prompt_owner(client), prompt)
        return await self._in_pool(lambda: under_any(card, content, labels, client.name, self.limits, ids))

    def _labels(self, names: Sequence[str], confidences: Floats) -> ResponseBody:
        order = np.argsort(-confidences, kind="stable")[: self.disclosure.top]
        scores = [float(confidences[i]) if self.disclosure.confidences else None for i in order]
        rows = [{"label": names[i], "score": score} for i, score in zip(order, scores, strict=True) if names[i]]
        return ResponseBody(json.dumps(rows).encode(), "application/json")

    def _answer(self, logs: Floats, form: str) -> ResponseBody:
        if not np.isfinite(logs).all():
            raise Refused(422, "contexts", "the model has no finite answer to these contexts")
        found = pack(self.disclosure.arrays(logs, form), {"model": self.model.card.fingerprint})
        return ResponseBody(found, MEDIA)

    async def _ask(self, forward: Callable[[Sequence[Any]], Sequence[Any]], kind: Any, item: Any, size: int = 1) -> Any:
        try:
            return await self.queue.ask(forward, kind, item, size)
        except InputError as error:  # names that are too long for the model, or leave no room for the contexts
            raise Refused(422, "class_names", str(error)) from None

    def _encode(self, parts: Sequence[Sequence[Any]]) -> list[Floats]:
        features = self.engine.encode([image for part in parts for image in part])
        return list(np.split(features, np.cumsum([len(part) for part in parts])[:-1]))

    def _check(self, given: Sequence[tuple[ClassList, int]]) -> list[None]:
        for classes, contexts in given:
            self.engine.check(classes, contexts)
        return [None] * len(given)

    async def _prepare(self, content: bytes, field: str) -> Any:
        def prepare() -> Any:
            image = decode_image(content, self.limits, field)
            try:
                return self.model.encoder.prepare(image)
            except Exception:  # rare modes that Pillow cannot turn into RGB
                raise Refused(422, field, f"an image of mode {image.mode} cannot be turned into RGB") from None

        return await self._in_pool(prepare)

    async def _in_pool(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _known_features(self, client: Client, name: str) -> Floats:
        found = await self._features(client, check_image_digest(name, "images"))
        if found is None:
            raise Refused(404, "images", "there is no such set of images")
        return found

    async def _features(self, client: Client, name: str) -> Floats | None:
        found = self._sets.get((client.name, name))
        if found is None:
            found = await self.accounts.disk(lambda: self.ledger.features(client.name, self._encoder, name))
            if found is not None:
                self._sets.put((client.name, name), found.nbytes, found)
        return found


def open_service(
    model: LocalModel,
    state: Path,
    limits: Limits | None = None,
    disclosure: Disclosure | None = None,
    watch_merged: Callable[[int], None] = lambda merged: None,
    other_names: OtherNames | None = None,
) -> Service:
    """The service of a model, with its memory in this folder."""
    ledger = ServiceLedger(state)
    return Service(model, ledger, limits or Limits(), disclosure or Disclosure(), watch_merged, other_names or {})
