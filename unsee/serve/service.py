"""What the service does, without HTTP: images in, confidences out, prompts deployed and withdrawn."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from unsee.answers.rules import serve
from unsee.data.images import in_batches
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
from unsee.runs.prompt import TEMPLATE
from unsee.runs.records import PromptCard
from unsee.serve.accounts import Accounts, ResponseBody
from unsee.serve.engine import KEPT_BYTES, ClassList, Engine, Glance, Question, Recent
from unsee.serve.keys import Client
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
from unsee.settings import SERVED_AS
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


@dataclass(frozen=True, eq=False)
class Under:
    """What an image is classified under: a template, or the contexts of a prompt with its rule for answers."""

    classes: ClassList
    contexts: Floats | None = None
    identity: str = ""
    forget: tuple[str, ...] = ()
    rule: str = "as-is"

    def served(self, confidences: Floats, image: bytes) -> Floats:
        """What leaves of the confidences (C,) of one image; (C,) again."""
        if self.rule == "as-is":
            return confidences
        listed = np.isin(self.classes.names, self.forget)
        found: Floats = serve(confidences[None], listed, self.rule, about=hashlib.sha256(image).hexdigest())[0]
        return found


@dataclass(eq=False)
class Service:
    """A model behind its queue, with the accounts of its clients."""

    model: LocalModel
    ledger: ServiceLedger
    limits: Limits = field(default_factory=Limits)
    disclosure: Disclosure = field(default_factory=Disclosure)
    watch_merged: Callable[[int], None] = lambda merged: None

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

    def card(self) -> dict[str, object]:
        """What a client may know of the model."""
        card, shown = self.model.card, self.disclosure.token_statistics
        return {
            "name": card.name,
            "fingerprint": card.fingerprint,
            "width": card.width,
            "token_limit": card.token_limit,
            "token_mean": card.token_mean.tolist() if shown else None,
            "token_std": card.token_std if shown else None,
            "answers": self.disclosure.answers,
            "limits": self.limits.published(),
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
        classes = self._class_list(facts)
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
        return await self.accounts.answer_once(client, key, message.digest(), price, work)

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
        question = hashlib.sha256(json.dumps([labels, template, prompt]).encode() + b"\0" + image).digest()
        under = await self._under(client, labels, template, prompt)

        async def work() -> ResponseBody:
            glance = Glance(await self._prepare(image, "inputs"), under.classes, under.contexts, under.identity)
            found = await self._ask(self.engine.classify, "classify", glance)
            return self._labels(under.classes.names, under.served(found, image))

        return await self.accounts.answer_once(client, key, question, Price(image_queries=1), work)

    async def deploy(self, client: Client, name: str, body: bytes) -> PromptCard:
        """Keeps a prompt under this name."""
        try:
            message = unpack(body)
            card = PromptCard.model_validate_json(message.facts.get("card", ""))
        except WireError as error:
            raise Refused(422, "body", str(error)) from None
        except ValidationError as error:
            raise Refused(422, "card", f"not the card of a prompt: {error.errors()[0]['msg'][:120]}") from None
        if card.model_fingerprint != self.model.card.fingerprint:
            raise Refused(422, "card", "this prompt was tuned for another model")
        names = check_class_names(list(card.class_names), self.limits)
        check_template(card.template, self.limits)
        if card.applies_to is not None and (not card.applies_to or not set(card.applies_to) <= set(names)):
            raise Refused(422, "card", "applies_to must name some of class_names")
        if card.position is not None:
            raise Refused(422, "card", "position: this service puts class names behind the contexts only")
        if card.serve is not None and card.serve not in SERVED_AS:
            raise Refused(422, "card", f"serve must be one of {', '.join(SERVED_AS)}")
        contexts = check_contexts(message.arrays.get(CONTEXTS), self.model.card, self.limits, dims=2)
        classes = ClassList(names, card.applies_to, card.template if card.applies_to else "")
        await self._ask(self._check, "check", (classes, len(contexts)))
        stored = StoredPrompt(card.model_dump_json(), pack({CONTEXTS: contexts}))
        self.accounts.store(client, len(stored.card) + len(stored.contexts))
        await self.accounts.disk(lambda: self.ledger.put_prompt(client.name, name, stored))
        await self.accounts.recount_stored()
        return card

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

    def _class_list(self, facts: dict[str, str]) -> ClassList:
        names = check_class_names(read_list(facts, "class_names"), self.limits)
        template = check_template(facts["template"], self.limits) if "template" in facts else ""
        if "applies_to" not in facts:
            return ClassList(names, None, template)
        chosen = check_class_names(read_list(facts, "applies_to"), self.limits, "applies_to")
        if not set(chosen) <= set(names):
            raise Refused(422, "applies_to", "must name some of class_names")
        if not template:
            raise Refused(422, "template", "is needed for the names that contexts do not apply to")
        return ClassList(names, chosen, template)

    def _contexts(self, message: Message) -> Floats:
        return check_contexts(message.arrays[CONTEXTS], self.model.card, self.limits)

    async def _under(
        self, client: Client, labels: Sequence[str] | None, template: str | None, prompt: str | None
    ) -> Under:
        """What a classification is made under: a deployed prompt, or a template."""
        if prompt is None:
            if labels is None:
                raise Refused(422, "parameters.candidate_labels", "is missing, and no prompt is named")
            names = check_class_names(labels, self.limits, "parameters.candidate_labels")
            plain = check_template(template or TEMPLATE, self.limits, "parameters.hypothesis_template")
            return Under(ClassList(names, None, plain))
        card, content = await self.prompt(client, prompt)
        names = (
            card.class_names
            if labels is None
            else check_class_names(labels, self.limits, "parameters.candidate_labels")
        )
        applies = None if card.applies_to is None else tuple(name for name in card.applies_to if name in names)
        if applies == ():
            raise Refused(422, "parameters.candidate_labels", "holds none of the names that the prompt applies to")
        classes = ClassList(names, applies, card.template if applies else "")
        contexts, identity = unpack(content).arrays[CONTEXTS], hashlib.sha256(content).hexdigest()
        return Under(classes, contexts, identity, card.forget, card.serve or "as-is")

    def _labels(self, names: Sequence[str], confidences: Floats) -> ResponseBody:
        order = np.argsort(-confidences, kind="stable")[: self.disclosure.top]
        scores = [float(confidences[i]) if self.disclosure.confidences else None for i in order]
        rows = [{"label": names[i], "score": score} for i, score in zip(order, scores, strict=True)]
        return ResponseBody(json.dumps(rows).encode(), "application/json")

    def _answer(self, logs: Floats, form: str) -> ResponseBody:
        if not np.isfinite(logs).all():
            raise Refused(422, "contexts", "the model has no finite answer to these contexts")
        return ResponseBody(pack(self.disclosure.arrays(logs, form)), MEDIA)

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
) -> Service:
    """The service of a model, with its memory in this folder."""
    ledger = ServiceLedger(state)
    return Service(model, ledger, limits or Limits(), disclosure or Disclosure(), watch_merged)
