"""The policy: what each role may do, and under which prompt, rule and labels a client's images are classified."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unsee.answers.rules import serve
from unsee.data.other_names import OtherNames, known_names
from unsee.models.remote.wire import CONTEXTS, unpack
from unsee.runs.prompt import TEMPLATE
from unsee.runs.records import PromptCard
from unsee.serve.engine import ClassList
from unsee.serve.keys import ANYONE, Client
from unsee.serve.limits import Limits, Refused, check_class_names, check_template
from unsee.serve.spelling import Ids, Spellings, spelling_key
from unsee.types import Floats

LABELS_FIELD, TEMPLATE_FIELD = "parameters.candidate_labels", "parameters.hypothesis_template"
_CLASSIFY = frozenset({"/v1/card", "/v1/usage", "/v1/classify"})
_TUNE = _CLASSIFY | {"/v1/images", "/v1/images/{images}", "/v1/confidences", "/v1/prompts", "/v1/prompts/{name}"}
ROLES = {"classify": _CLASSIFY, "tune": _TUNE, "operate": _TUNE | {"/metrics"}}  # role -> routes
OTHER_NAMES = "made for other names"  # what is said of a rule whose prompt has other labels


def check_role(client: Client, route: str) -> None:
    """Refuses a route that the client's role does not have."""
    if route not in ROLES[client.role]:
        raise Refused(403, "role", f"a key of role {client.role} may not use this route")


def prompt_owner(client: Client) -> Client:
    """Whose prompts this client deploys, lists and withdraws: its own, or for an operator those of the service."""
    return replace(client, name=ANYONE.name) if client.role == "operate" else client


def granted_prompt(client: Client, prompt: str | None, template: str | None) -> str:
    """The prompt of the service that this client's answers leave under; refuses any other, and templates."""
    if prompt is not None and prompt not in client.prompts:
        raise Refused(403, "parameters.prompt", "is not granted to this key")
    if template is not None:
        raise Refused(403, TEMPLATE_FIELD, "answers to this key leave under its prompt; leave the template out")
    return prompt or client.prompts[0]


@dataclass(frozen=True, eq=False)
class Under:
    """What an image is classified under: a template, or the contexts of a prompt with its rule for answers."""

    classes: ClassList
    contexts: Floats | None = None
    identity: str = ""
    forget: tuple[str, ...] = ()  # those of the classes that the rule is about
    rule: str = "as-is"
    asked: tuple[str, ...] | None = None  # for each class the label that it was asked for as, "" if it was not
    note: str = ""  # about the rule

    @property
    def facts(self) -> list[object]:
        """All that the answer depends on besides model and image."""
        classes = self.classes
        names = classes.names, classes.applies_to, classes.template
        return [*names, self.identity, self.forget, self.rule, self.asked]

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each class in an answer; "" where it is left out."""
        return self.classes.names if self.asked is None else self.asked

    def served(self, confidences: Floats, image: bytes) -> Floats:
        """What leaves of the confidences (C,) of one image; (C,) again."""
        if self.rule == "as-is":
            return confidences
        listed = np.isin(self.classes.names, self.forget)
        found: Floats = serve(confidences[None], listed, self.rule, about=hashlib.sha256(image).hexdigest())[0]
        return found


def under_template(labels: Sequence[str] | None, template: str | None, owner: str, limits: Limits) -> Under:
    """A plain-text template with these labels."""
    if labels is None:
        raise Refused(422, LABELS_FIELD, "is missing, and no prompt is named")
    names = check_class_names(labels, limits, LABELS_FIELD)
    return Under(ClassList(names, None, check_template(template or TEMPLATE, limits, TEMPLATE_FIELD), owner))


def under_fixed(card: PromptCard, content: bytes, labels: Sequence[str] | None, owner: str, limits: Limits) -> Under:
    """A prompt with its own labels and no others. Labels that are asked for choose from the one answer of an image.

    So nothing more can be learned by asking for parts of the list.
    """
    found = _under_own_names(card, content, owner)
    if labels is None:
        return found
    asked = _choose(card, check_class_names(labels, limits, LABELS_FIELD))
    if all(name in card.forget for name, label in zip(card.class_names, asked, strict=True) if label):
        raise Refused(422, LABELS_FIELD, "holds no name that this prompt answers with")
    return replace(found, asked=asked)


def under_any(
    card: PromptCard,
    content: bytes,
    labels: Sequence[str] | None,
    owner: str,
    limits: Limits,
    ids: Ids,
    other_names: OtherNames | None = None,
) -> Under:
    """A prompt with any labels. Its rule knows forgotten classes in all spellings.

    With other_names also by the package's and these other names, and as a part of a label; a name of the prompt's own
    list that it keeps is always kept.
    """
    if labels is None:
        return _under_own_names(card, content, owner)
    names = check_class_names(labels, limits, LABELS_FIELD)
    kept = Spellings((name for name in card.class_names if name not in card.forget), ids)
    forgotten = Spellings(card.forget, ids)
    others = Spellings(_other_names(card.forget, other_names or {}), ids)

    def is_forgotten(label: str) -> bool:
        if label in card.class_names:
            return label in card.forget
        if label in forgotten:
            return True
        if other_names is None or label in kept:
            return False
        return label in others or forgotten.mentioned_in(label) or others.mentioned_in(label)

    gone = tuple(label for label in names if is_forgotten(label))
    if card.forget and len(gone) == len(names):
        raise Refused(422, LABELS_FIELD, "holds no name that this prompt answers with")
    tuned = None if card.applies_to is None else Spellings(card.applies_to, ids)
    applies = None if tuned is None else tuple(label for label in names if label in tuned)
    if applies == ():
        raise Refused(422, LABELS_FIELD, "holds none of the names that the prompt applies to")
    found = _under_own_names(card, content, owner)
    classes = ClassList(names, applies, card.template if applies else "", owner)
    note = "" if set(names) <= set(card.class_names) else OTHER_NAMES
    return replace(found, classes=classes, forget=gone, note=note)


def _under_own_names(card: PromptCard, content: bytes, owner: str) -> Under:
    classes = ClassList(card.class_names, card.applies_to, card.template if card.applies_to else "", owner)
    contexts, identity = unpack(content).arrays[CONTEXTS], hashlib.sha256(content).hexdigest()
    return Under(classes, contexts, identity, card.forget, card.serve or "as-is")


def _choose(card: PromptCard, labels: Sequence[str]) -> tuple[str, ...]:
    """For each class of the prompt the label that it is asked for as, or ""."""
    by_key = {spelling_key(name): i for i, name in reversed(list(enumerate(card.class_names)))}
    exact = {name: i for i, name in enumerate(card.class_names)}
    asked = [""] * len(card.class_names)
    for i, label in enumerate(labels):
        row = exact.get(label, by_key.get(spelling_key(label)))
        if row is None:
            raise Refused(422, f"{LABELS_FIELD}[{i}]", "is none of this prompt's labels")
        if asked[row]:
            raise Refused(422, LABELS_FIELD, "a name is given twice")
        asked[row] = label
    return tuple(asked)


def _other_names(forget: Sequence[str], own: OtherNames) -> list[str]:
    """Other names of these classes: the package's, and the operator's for any spelling of them."""
    keys = {spelling_key(name) for name in forget}
    listed = [other for others in known_names(forget).values() for other in others]
    return listed + [other for name, others in own.items() if spelling_key(name) in keys for other in others]
