"""A prompt that is to be deployed: read from a message, and checked."""

from __future__ import annotations

from pydantic import ValidationError

from unsee.models.remote.wire import CONTEXTS, WireError, unpack
from unsee.runs.records import PromptCard
from unsee.serve.engine import ClassList
from unsee.serve.limits import Limits, Refused, check_class_names, check_contexts, check_template
from unsee.settings import SERVED_AS
from unsee.types import Card, Floats


def read_prompt(body: bytes, model: Card, limits: Limits) -> tuple[PromptCard, ClassList, Floats]:
    """The prompt in a message: its card, its class names and its contexts (m, D)."""
    try:
        message = unpack(body)
        card = PromptCard.model_validate_json(message.facts.get("card", ""))
    except WireError as error:
        raise Refused(422, "body", str(error)) from None
    except ValidationError as error:
        raise Refused(422, "card", f"not the card of a prompt: {error.errors()[0]['msg'][:120]}") from None
    if card.model_fingerprint != model.fingerprint:
        raise Refused(422, "card", "this prompt was tuned for another model")
    names = check_class_names(list(card.class_names), limits)
    check_template(card.template, limits)
    for field, listed in (("applies_to", card.applies_to), ("forget", card.forget)):
        if listed is not None and (not listed or not set(listed) <= set(names)):
            raise Refused(422, "card", f"{field} must name some of class_names")
    if card.position is not None:
        raise Refused(422, "card", "position: this service puts class names behind the contexts only")
    if card.serve is not None and card.serve not in SERVED_AS:
        raise Refused(422, "card", f"serve must be one of {', '.join(SERVED_AS)}")
    contexts = check_contexts(message.arrays.get(CONTEXTS), model, limits, dims=2)
    return card, ClassList(names, card.applies_to, card.template if card.applies_to else ""), contexts
