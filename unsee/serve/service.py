"""What the service does, without HTTP: images in, confidences out, prompts deployed and withdrawn."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from unsee.data.images import in_batches
from unsee.data.other_names import OtherNames
from unsee.errors import InputError
from unsee.models.local import LocalModel
from unsee.models.remote.wire import (
    CONTEXTS,
    MEDIA,
    Message,
    WireError,
    pack,
    set_digest,
    unpack,
)
from unsee.runs.records import PromptCard
from unsee.serve.accounts import Accounts, Bill, ResponseBody
from unsee.serve.deployed import read_prompt
from unsee.serve.disclosure import Disclosure
from unsee.serve.engine import IMAGE_TOKENS, KEPT_BYTES, ClassList, Glance, Question, Recent
from unsee.serve.keys import ANYONE, Client
from unsee.serve.ledger import ROWS_AT_ONCE, SET_PART, Price, ServiceLedger, StoredPrompt
from unsee.serve.limits import (
    Limits,
    Refused,
    answer_size,
    check_class_names,
    check_contexts,
    check_image_digest,
    check_template,
    read_list,
)
from unsee.serve.merging import Asker
from unsee.serve.policy import Under, granted_prompt, prompt_owner, under_any, under_fixed, under_template
from unsee.serve.shares import Shares
from unsee.serve.steps import INLINE_NAMES, Steps
from unsee.types import Floats

T = TypeVar("T")
INLINE = 2**14  # bytes of a message that is read or written where it is; a thread would take longer


@dataclass(eq=False)
class Service:
    """A model behind its queue, with the accounts of its clients."""

    model: LocalModel
    ledger: ServiceLedger
    limits: Limits = field(default_factory=Limits)
    disclosure: Disclosure = field(default_factory=Disclosure)
    watch_merged: Callable[[int], None] = lambda merged: None
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()))  # for what this server alone has to know
    other_names: OtherNames = field(default_factory=dict)  # of forgotten classes, besides those the package knows

    def __post_init__(self) -> None:
        self.steps = Steps(self.model, self.limits, self.folder, self.watch_merged)
        self.queue = self.steps.queue
        self.accounts = Accounts(self.ledger, self.limits.seconds)
        self.memory = Shares(max(self.limits.memory, 4 * self.limits.body_bytes), "bytes in flight")
        self._sets: Recent[Floats] = Recent(KEPT_BYTES)
        self.ledger.count_deaths(self.steps.marks.left)

    async def close(self) -> None:
        """Finishes what is being answered; ends in any case."""
        try:
            await self.accounts.finish()
            await self.steps.close(self.limits.seconds)
        finally:
            await self.accounts.close(1.0)

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

    async def keep_set(self, client: Client, digests: Sequence[str]) -> dict[str, object]:
        """Makes a set of images that are here already; names those that are not."""
        missing = await self._missing(client, digests)
        if missing:
            return {"missing": missing}
        name, unique = set_digest(digests), list(dict.fromkeys(digests))

        async def work(reserved: str) -> list[str]:
            for part, rows in enumerate(in_batches(len(unique), SET_PART)):
                some = [unique[i] for i in rows]
                hold = partial(self.ledger.hold_images, reserved, client.name, self._encoder, part, some)
                if missing := await self.accounts.disk(hold, client.name):
                    await self.accounts.disk(partial(self.ledger.release, reserved), client.name)
                    return missing
            await self.accounts.disk(partial(self.ledger.put_set, reserved, client.name, name, digests), client.name)
            return []

        if await self._features(client, name) is None:
            missing = await self.accounts.reserved(client, Bill(Price(), 32 * len(digests)), (), work)
            await self.accounts.give_back(client.name)
        return {"missing": missing} if missing else {"images": name, "count": len(digests)}

    async def _missing(self, client: Client, digests: Sequence[str]) -> list[str]:
        """Those of these images that are not here, each once."""
        found: list[str] = []
        for rows in in_batches(len(digests), ROWS_AT_ONCE):
            some = digests[rows.start : rows.stop]
            look = partial(self.ledger.missing, client.name, self._encoder, some)
            found += await self.accounts.disk(look, client.name)
        return list(dict.fromkeys(found))

    async def keep_images(self, client: Client, files: Sequence[tuple[str, bytes]], as_set: bool) -> dict[str, object]:
        """Stores and encodes image files by (digest, content), those that are not here yet; as a set, if wanted."""
        digests = [digest for digest, _ in files]
        missing = set(await self._missing(client, digests))
        new = {digest: i for i, digest in reversed(list(enumerate(digests))) if digest in missing}  # each once
        rows = sorted(new.values())
        for batch in in_batches(len(rows), self.model.encoder.batch):  # an upload that is cut short was not for nothing
            await self._keep_some(client, [(f"images[{rows[i]}]", *files[rows[i]]) for i in batch])
        kept: dict[str, object] = {"count": len(files)}
        if as_set:
            kept = await self.keep_set(client, digests)
        return kept | {"encoded": len(rows), "known": len(files) - len(rows)}

    async def _keep_some(self, client: Client, files: Sequence[tuple[str, str, bytes]]) -> None:
        """Encodes and keeps some images by (field, digest, content); charged and counted before others are decoded."""
        hashes = [bytes.fromhex(digest) for _, digest, _ in files]
        asker = Asker(client.name)
        bill = Bill(Price(tokens=IMAGE_TOKENS * len(files)), 4 * self.steps.engine.width * len(files))

        async def work(reserved: str) -> None:
            images = [self.steps.image(content, field) for field, _, content in files]
            features = await self.steps.encode(asker, images, hashes, bill)
            entries = [(digest, row) for (_, digest, _), row in zip(files, features, strict=True)]
            put = partial(self.ledger.put_images, reserved, client.name, self._encoder, entries, bill.price)
            await self.accounts.disk(put, client.name)

        await self.accounts.reserved(client, bill, hashes, work)

    async def count_images(self, client: Client, name: str) -> int:
        """How many images a set holds; 404 if the client has no such set."""
        return len(await self._known_features(client, name))

    async def delete_set(self, client: Client, name: str) -> None:
        check_image_digest(name, "images")
        if not await self.accounts.disk(lambda: self.ledger.delete_set(client.name, name), client.name):
            raise Refused(404, "images", "there is no such set of images")
        self._sets.drop((client.name, name))
        await self.accounts.give_back(client.name)

    async def confidences(self, client: Client, body: bytes, key: str | None) -> ResponseBody:
        """Confidences for the contexts, or the template, in a message."""
        asker = Asker(client.name)
        read = await self.beside_if_large(asker, len(body), partial(self._read, body, client.name))
        message, classes, contexts, asker.about = read
        facts = message.facts
        form = facts.get("form", "confidences")
        if form not in ("confidences", "logs") or (form == "logs" and self.disclosure.top is not None):
            raise Refused(422, "form", "must be confidences, or logs where the service answers with all classes")
        features = await self._known_features(client, facts.get("images", ""))
        if CONTEXTS not in message.arrays and "template" not in facts:
            raise Refused(422, "contexts", "neither contexts nor a template are given")
        question = Question(classes, contexts, features)
        size = answer_size(question.size, len(features), classes.names, self.limits)
        tokens = await self.steps.count(asker, classes, 0 if contexts is None else contexts.shape[1])
        if question.size * sum(tokens) > self.limits.tokens:
            asked = f"{question.size} candidates of {sum(tokens)} tokens"
            raise Refused(422, "contexts", f"{asked} are more than the {self.limits.tokens} tokens of one request")
        bill = Bill(Price(question.size, question.size * len(features), question.size * sum(tokens)), size + 4096)

        async def work() -> ResponseBody:
            with self.memory.hold(client.name, size + (0 if contexts is None else contexts.nbytes)):
                logs = await self.steps.logs(asker, question, tokens, bill)
                return await self.beside_if_large(asker, logs.nbytes, partial(self._answer, logs, form))

        return await self.accounts.answer_once(client, key, asker.about, bill, work)

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
        asker = Asker(client.name)
        hash_image = lambda: hashlib.sha256(image).digest()  # noqa: E731
        asker.about = hashed = await self.beside_if_large(asker, len(image), hash_image)
        under = await self._under(asker, client, labels, template, prompt)
        identify = lambda: self._identity(json.dumps(under.facts).encode() + b"\0" + hashed)  # noqa: E731
        asker.about = question = await self._beside_if_many(asker, under.labels, identify)
        tokens = await self.steps.count(asker, under.classes, 0 if under.contexts is None else len(under.contexts))
        glance = Glance(None, under.classes, under.contexts, under.identity, about=hashed)
        bill = Bill(Price(0, 1, IMAGE_TOKENS + sum(tokens)), 2 * sum(len(label) + 40 for label in under.labels))

        async def work() -> ResponseBody:
            with self.memory.hold(client.name, len(image)):
                found = await self.steps.classify(asker, self.steps.image(image, "inputs"), glance, tokens, bill)
            bill.price = bill.used  # names that are known cost nothing
            answer = lambda: self._labels(under.labels, under.served(found, image))  # noqa: E731
            return await self._beside_if_many(asker, under.labels, answer)

        answer = await self.accounts.answer_once(client, key, question, bill, work, (hashed,))
        return replace(answer, note=under.note)

    async def deploy(self, client: Client, name: str, body: bytes) -> PromptCard:
        """Keeps a prompt under this name."""
        asker = Asker(client.name, hashlib.sha256(body).digest())
        read = partial(read_prompt, body, self.model.card, self.limits)
        card, classes, contexts = await self.beside_if_large(asker, len(body), read)
        stored = StoredPrompt(card.model_dump_json(), pack({CONTEXTS: contexts}))
        if await self.accounts.disk(lambda: self.ledger.prompt(client.name, name), client.name) == stored:
            return card
        tokens = await self.steps.count(asker, classes, len(contexts))
        bill = Bill(Price(candidates=1, tokens=sum(tokens)), stored.size)  # a prompt to be tried on any image

        async def work(reserved: str) -> None:
            await self.steps.check(asker, classes, tokens, len(contexts), bill)
            put = partial(self.ledger.put_prompt, reserved, client.name, name, stored, bill.price)
            await self.accounts.disk(put, client.name)

        await self.accounts.reserved(client, bill, (asker.about,), work)
        return card

    def deploy_at_start(self, name: str, body: bytes) -> None:
        """Keeps a prompt of the operator, before the service runs; InputError says what is wrong with it."""
        try:
            card, classes, contexts = read_prompt(body, self.model.card, self.limits)
            self.steps.engine.check(classes, len(contexts))
            stored = StoredPrompt(card.model_dump_json(), pack({CONTEXTS: contexts}))
            reserved = self.ledger.reserve(ANYONE, Price(), stored.size)
        except Refused as refused:
            raise InputError(f"prompt {name!r} cannot be deployed: {refused.field}: {refused}") from None
        assert isinstance(reserved, str)  # without a key there is no earlier answer
        self.ledger.put_prompt(reserved, ANYONE.name, name, stored, Price())

    async def prompt(self, client: Client, name: str) -> tuple[PromptCard, bytes]:
        """A deployed prompt; 404 if the client has none of this name."""
        found = await self.accounts.disk(lambda: self.ledger.prompt(client.name, name), client.name)
        if found is None:
            raise Refused(404, "name", "there is no such prompt")
        return PromptCard.model_validate_json(found.card), found.contexts

    async def prompts(self, client: Client) -> dict[str, PromptCard]:
        found = await self.accounts.disk(lambda: self.ledger.prompts(client.name), client.name)
        return {name: PromptCard.model_validate_json(card) for name, card in found.items()}

    async def withdraw(self, client: Client, name: str) -> None:
        if not await self.accounts.disk(lambda: self.ledger.delete_prompt(client.name, name), client.name):
            raise Refused(404, "name", "there is no such prompt")

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

    def _read(self, body: bytes, owner: str) -> tuple[Message, ClassList, Floats | None, bytes]:
        """A message with its names and contexts, checked, and its hash."""
        try:
            message = unpack(body)
        except WireError as error:
            raise Refused(422, "body", str(error)) from None
        given = message.arrays.get(CONTEXTS)
        contexts = None if given is None else check_contexts(given, self.model.card, self.limits)
        classes = self._class_list(message.facts, owner)
        return message, classes, contexts, self._identity(message.digest())

    async def _under(
        self, asker: Asker, client: Client, labels: Sequence[str] | None, template: str | None, prompt: str | None
    ) -> Under:
        """What a classification is made under: a deployed prompt, or a template."""
        ids = self.model.tokenizer.ids
        if client.prompts:
            name = granted_prompt(client, prompt, template)
            stored = await self.accounts.disk(lambda: self.ledger.prompt(ANYONE.name, name), client.name)
            if stored is None:  # no answer leaves without it
                raise Refused(503, "prompt", "the prompt of this key is not deployed; its operator can", retry_after=60)
            card, content = PromptCard.model_validate_json(stored.card), stored.contexts
            if client.labels == "fixed":
                own_labels = partial(under_fixed, card, content, labels, ANYONE.name, self.limits)
                return await self._beside_if_many(asker, labels or (), own_labels)
            given = card, content, labels, client.name, self.limits, ids, self.other_names
            return await self.steps.beside(asker, lambda: under_any(*given))
        if prompt is None:
            given_labels = partial(under_template, labels, template, client.name, self.limits)
            return await self._beside_if_many(asker, labels or (), given_labels)
        card, content = await self.prompt(prompt_owner(client), prompt)
        return await self.steps.beside(asker, lambda: under_any(card, content, labels, client.name, self.limits, ids))

    def _labels(self, names: Sequence[str], confidences: Floats) -> ResponseBody:
        order = np.argsort(-confidences, kind="stable")[: self.disclosure.top]
        scores = [float(confidences[i]) if self.disclosure.confidences else None for i in order]
        rows = [{"label": names[i], "score": score} for i, score in zip(order, scores, strict=True) if names[i]]
        return ResponseBody(json.dumps(rows).encode(), "application/json")

    def _answer(self, logs: Floats, form: str) -> ResponseBody:
        if not np.isfinite(logs).all():
            raise Refused(422, "contexts", "the model has no finite answer to these contexts")
        content = pack(self.disclosure.arrays(logs, form), {"model": self.model.card.fingerprint})
        return ResponseBody(content, MEDIA, digest=hashlib.sha256(content).hexdigest())

    async def beside_if_large(self, asker: Asker, size: int, work: Callable[[], T]) -> T:
        """Does something with so many bytes; not in the event loop, which all clients share, if that takes long."""
        return work() if size <= INLINE else await self.steps.beside(asker, work)

    async def _beside_if_many(self, asker: Asker, names: Sequence[str], work: Callable[[], T]) -> T:
        """Does something with so many names, likewise."""
        return work() if len(names) <= INLINE_NAMES else await self.steps.beside(asker, work)

    async def _known_features(self, client: Client, name: str) -> Floats:
        found = await self._features(client, check_image_digest(name, "images"))
        if found is None:
            raise Refused(404, "images", "there is no such set of images")
        return found

    async def _features(self, client: Client, name: str) -> Floats | None:
        found = self._sets.get((client.name, name))
        if found is not None and self.ledger.shared:  # another server may have deleted it
            there = await self.accounts.disk(lambda: self.ledger.has_set(client.name, name), client.name)
            found = found if there else None
        if found is None:
            found = await self._read_features(client, name)
            if found is not None:
                self._sets.put((client.name, name), found.nbytes, found)
        return found

    async def _read_features(self, client: Client, name: str) -> Floats | None:
        """Features (n, E) from the ledger; None if there is no such set, or images of it are gone."""
        digests = await self.accounts.disk(lambda: self.ledger.set_digests(client.name, name), client.name)
        if digests is None:
            return None
        unique, read = list(dict.fromkeys(digests)), dict[bytes, Floats]()
        for rows in in_batches(len(unique), ROWS_AT_ONCE):
            some = unique[rows.start : rows.stop]
            read |= await self.accounts.disk(
                partial(self.ledger.features, client.name, self._encoder, some), client.name
            )
        return np.stack([read[digest] for digest in digests]) if len(read) == len(unique) else None


def open_service(
    model: LocalModel,
    state: Path | str,
    limits: Limits | None = None,
    disclosure: Disclosure | None = None,
    watch_merged: Callable[[int], None] = lambda merged: None,
    other_names: OtherNames | None = None,
) -> Service:
    """The service of a model, with its memory in this folder or in a PostgreSQL database."""
    ledger = ServiceLedger(state)
    folder = Path(tempfile.gettempdir()) / f"unsee-serve-{os.geteuid()}" if ledger.shared else Path(state)
    names = other_names or {}
    return Service(model, ledger, limits or Limits(), disclosure or Disclosure(), watch_merged, folder, names)
