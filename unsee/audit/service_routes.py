"""What a key gets from a service about forgotten classes, asked in every way that its routes allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from unsee.answers.intervals import share_of
from unsee.answers.metrics import top_classes
from unsee.audit.asking import sample
from unsee.audit.case import Case
from unsee.audit.cells import show_share
from unsee.audit.evidence import MARGIN, compare_with, first_few, make_finding, near_ceiling, worst_of
from unsee.audit.part import Part
from unsee.audit.record import AuditRecord, estimate
from unsee.data.images import Images
from unsee.models.remote.classifying import Rows, ask_each, classify_file
from unsee.models.remote.remote_model import RemoteBound, RemoteModel, image_file
from unsee.models.remote.wire import MEDIA
from unsee.runs.records import EstimateRecord, Finding, Record
from unsee.seeds import stream
from unsee.text_table import TextTable

PER_CLASS = 25  # images: each is asked about in some fifteen ways
PAIRS = 500  # questions about pairs of labels, with one of each class for every image
SPELLED: dict[str, Callable[[str], str]] = {
    "a space behind": lambda name: f"{name} ",
    "capitals": str.upper,
    "a synset behind": lambda name: f"{name} (n00000000)",
    "an underscore behind": lambda name: f"{name}_",
    "full-width letters": lambda name: "".join(chr(ord(s) + 0xFEE0) if "!" <= s <= "~" else s for s in name),
    "an accent": lambda name: f"{name}\u0301",
    "a full stop": lambda name: f"{name}.",
}
Guess = str | None  # the class that an answer names; "" if the service refused, None if it names none of them


class ServiceWay(Record):
    """One way to ask a service about images of forgotten classes."""

    name: str
    images: int
    refused: int
    recognised: EstimateRecord | None = None  # of all images; a refusal recognises nothing


class ServiceAudit(Record):
    """What a key gets from a service."""

    role: str
    answers: str  # all, top-K or label
    ways: tuple[ServiceWay, ...]
    open_routes: tuple[str, ...]  # on which the key could read or change prompts, or try its own


@dataclass(frozen=True, eq=False)
class _Asker:
    """A key's way to a service, and the classes that are to be found out."""

    model: RemoteModel
    own: tuple[str, ...]
    forgotten: tuple[str, ...]
    other_names: dict[str, str]  # forgotten class -> another name
    prompt: str | None  # that the key has to name; None if it has none, or a mandatory one
    images: Images

    def guesses(
        self, names: dict[str, str] | None, template: str | None = None, prompt: str | None = None
    ) -> list[Guess]:
        """The class named for each image, asked for these labels, by label the class; None: for none in particular."""
        labels = None if names is None else list(names)
        meaning = {name: name for name in self.own} if names is None else names

        def ask(row: int) -> Guess:
            rows = self._rows(row, labels, template, prompt)
            return "" if rows is None else meaning.get(rows[0][0]) if rows else None

        return ask_each(len(self.images), ask)

    def renamed(self, spell: Callable[[str], str]) -> list[Guess]:
        """Asked with the forgotten names written in another way."""
        names = {spell(name) if name in self.forgotten else name: name for name in self.own}
        return self.guesses(names, prompt=self.prompt)

    def from_pairs(self) -> list[Guess]:
        """The class with the highest odds against one kept class, each asked for as a pair of labels."""
        anchor = next(name for name in self.own if name not in self.forgotten)

        def odds(row: int, name: str) -> float | None:
            rows = self._rows(row, [name, anchor], None, self.prompt)
            found = None if rows is None else dict(rows)
            if found is None or name not in found or anchor not in found:
                return None
            mine, other = (1.0 - i if found[n] is None else found[n] or 0.0 for i, n in enumerate((name, anchor)))
            return mine / max(other, 1e-30)

        def ask(row: int) -> Guess:
            found = {name: odds(row, name) for name in self.own if name != anchor}
            known = {name: value for name, value in found.items() if value is not None} | {anchor: 1.0}
            return "" if len(known) == 1 else max(known, key=lambda name: known[name])

        return ask_each(self.paired, ask)

    @property
    def paired(self) -> int:
        """How many images are asked about with pairs of labels."""
        return _paired(len(self.images), len(self.own))

    def through_confidences(self, contexts: bool) -> list[Guess]:
        """Asked on the route for tuning: under a template, or under contexts of zeros."""
        refused = self.model.connection.send("POST", "/v1/confidences", b"", MEDIA, accept=(403, 422)).status == 403
        if refused:
            return [""] * len(self.images)
        bound = RemoteBound(self.model, self.images, self.own)
        zeros = np.zeros((1, 2, self.model.card.width), dtype=np.float32)
        found = bound.confidences(zeros)[0] if contexts else bound.zero_shot("a photo of a {}.")
        return [self.own[i] for i in top_classes(found)]

    def _rows(self, row: int, labels: Sequence[str] | None, template: str | None, prompt: str | None) -> Rows | None:
        content = image_file(self.images, row)
        return classify_file(self.model.connection, content, labels, template, prompt)


def ask_service(model: RemoteModel, case: Case) -> ServiceAudit:
    """What this key gets about forgotten test images."""
    own, forgotten = case.subject.data.class_names, case.subject.task.forgotten
    images = _images(case)
    others = {name: names[0] for name, names in case.other_names.items() if names and name in forgotten}
    prompt = model.find_prompt(forgotten) if model.role != "classify" else None
    asker = _Asker(model, tuple(own), tuple(forgotten), others, prompt, images)
    true, ways = [own[label] for label in images.labels], _ways(asker)
    found = list[ServiceWay]()
    for number, (name, ask) in enumerate(ways.items(), 1):
        case.say(f"asking the service about {len(images)} images, {number} of {len(ways)}: {name}")
        found.append(_way(name, ask(), true))
    return ServiceAudit(
        role=model.role,
        answers=model.answers,
        ways=tuple(found),
        open_routes=tuple(_open_routes(model)),
    )


def _images(case: Case) -> Images:
    """Forgotten test images, in a mixed order, so that any part of them is of all classes."""
    gone = case.few.subset(np.flatnonzero(case.subject.forget[case.few.labels]))
    images = sample(gone, case.subject.seed, PER_CLASS)
    return images.subset(stream(case.subject.seed, "order of images").permutation(len(images)))


def _count(case: Case) -> int:
    """Most ways that answer are other spellings; to be refused takes no time."""
    images, classes = len(_images(case)), len(case.subject.data.class_names)
    return images * (3 + len(SPELLED)) + _paired(images, classes) * (classes - 1)


def _paired(images: int, classes: int) -> int:
    return min(images, max(5, PAIRS // max(1, classes - 1)))


def _ways(asker: _Asker) -> dict[str, Callable[[], list[Guess]]]:
    own = {name: name for name in asker.own}
    spelled = {f"names with {how}": partial(asker.renamed, spell) for how, spell in SPELLED.items()}
    ways: dict[str, Callable[[], list[Guess]]] = {
        "as documented": partial(asker.guesses, None, prompt=asker.prompt),
        "prompt left out": partial(asker.guesses, own),
        "another template": partial(asker.guesses, own, template="a drawing of a {}."),
        "another prompt named": partial(asker.guesses, own, prompt="none"),
        **spelled,
        "other names": partial(asker.renamed, lambda name: asker.other_names.get(name, name)),
        "forgotten names only": partial(asker.guesses, {n: n for n in asker.forgotten}, prompt=asker.prompt),
        "rebuilt from pairs of labels": asker.from_pairs,
        "/v1/confidences, a template": partial(asker.through_confidences, contexts=False),
        "/v1/confidences, other contexts": partial(asker.through_confidences, contexts=True),
    }
    return ways


def _way(name: str, guesses: Sequence[Guess], true: Sequence[str]) -> ServiceWay:
    right = np.array([guess == label for guess, label in zip(guesses, true[: len(guesses)], strict=True)])
    refused = sum(guess == "" for guess in guesses)
    share = estimate(share_of(right)) if refused < len(right) else None
    return ServiceWay(name=name, images=len(right), refused=refused, recognised=share)


def _open_routes(model: RemoteModel) -> list[str]:
    """Routes for prompts that the key's role has. Nothing is changed: neither the body nor the name is a prompt's."""
    tried = (("GET", "/v1/prompts"), ("PUT", "/v1/prompts/unsee-audit"), ("DELETE", "/v1/prompts/unsee-audit"))
    statuses = {
        f"{method} {path}": model.connection.send(method, path, accept=(403, 404, 422)).status for method, path in tried
    }
    return [route for route, status in statuses.items() if status != 403]


def _measure(case: Case) -> ServiceAudit | None:
    model = case.subject.model
    if not isinstance(model, RemoteModel):
        return None
    before = model.usage()["spent"]["image_queries"] or 0
    found = ask_service(model, case)
    case.subject.ledger.image_queries += int((model.usage()["spent"]["image_queries"] or 0) - before)
    return found


def _found(found: AuditRecord) -> ServiceAudit | None:
    return found.part("service", ServiceAudit)


def _table(found: AuditRecord) -> list[TextTable]:
    service = _found(found)
    if service is None:
        return []
    rows = [(way.name, str(way.images), str(way.refused), show_share(way.recognised)) for way in service.ways]
    routes = ", ".join(service.open_routes) or "none"
    note = f"a key of role {service.role}, answers: {service.answers}; routes for prompts that are open to it: {routes}"
    return [TextTable(("asked of the service", "forgotten images", "refused", "recognised"), rows, notes=[note])]


def _findings(found: AuditRecord) -> list[Finding]:
    service = _found(found)
    if service is None or not any(way.recognised for way in service.ways):
        return []
    ceiling = found.chance + MARGIN
    asked = [(way, way.recognised) for way in service.ways if way.recognised is not None]
    mark = worst_of([compare_with(ceiling, share) for _, share in asked])
    these = [(way, share) for way, share in asked if compare_with(ceiling, share) == mark]
    these.sort(key=lambda pair: -pair[1].value)
    words = {
        "ok": "this key gets no forgotten class from the service, however it asks",
        "leak": "this key gets forgotten classes from the service by asking in another way",
        "unclear": "too few images to tell whether this key gets forgotten classes from the service",
    }
    worst = first_few([f"{way.name} {show_share(share, 0)}" for way, share in these])
    closed = sum(way.refused == way.images for way in service.ways)
    evidence = f"{len(service.ways)} ways, {closed} of them refused; {worst}; {near_ceiling(found.chance)}"
    return [make_finding(mark, words[mark], evidence)]


SERVICE_ROUTES = Part(_measure, _table, _findings, questions=_count)
