"""The artefact: tuned contexts, and a card that says what they forget and for which model.

`prompt.safetensors` holds `contexts` (m, D) in token-embedding space; `prompt.json` is its card. The
two are enough to classify with, anywhere the same model runs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from unsee.answers.rules import serve
from unsee.data.images import Anything, as_images
from unsee.errors import InputError, RunError
from unsee.files import write_bytes
from unsee.models.black_box import BlackBox, BoundImages, TakesPrompts, bind
from unsee.models.placement import contexts_before
from unsee.runs.records import PromptCard, read_record, write_record
from unsee.settings import POSITIONS, SERVED_AS
from unsee.types import Floats

WEIGHTS, CARD = "prompt.safetensors", "prompt.json"
TEMPLATE = "a photo of a {}."


@dataclass(frozen=True)
class Answer:
    """What a model says of one image: classes with their confidences, highest first."""

    image: str
    before: tuple[tuple[str, float], ...] | None  # under the plain-text prompt; None if the model answers none
    after: tuple[tuple[str, float], ...]  # as served: under the tuned prompt, after the rule for answers
    alone: tuple[tuple[str, float], ...] = ()  # prompt alone: before the rule
    ranked: int = 1  # how many of `after` stand apart from all below them: 0 if there is no top label


@dataclass(frozen=True, eq=False)
class Prompt:
    """Tuned contexts with their card."""

    contexts: Floats  # (m, D)
    class_names: tuple[str, ...]
    forget: tuple[str, ...]
    model: str
    fingerprint: str  # of the model
    template: str = TEMPLATE
    applies_to: tuple[str, ...] | None = None  # names that the contexts apply to; the others stay under the template
    serve: str = "as-is"  # what is done to answers before they leave
    position: str = "end"  # of the class name: behind the contexts, in the "middle" of them, or in "front"

    def __repr__(self) -> str:
        m, width = self.contexts.shape
        gone = ", ".join(self.forget)
        return f"Prompt({m} contexts of width {width} for {self.model!r}, forgets {gone}, served as {self.serve})"

    def save(self, folder: str | Path) -> None:
        """Writes prompt.safetensors and prompt.json."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        content = save({"contexts": np.ascontiguousarray(self.contexts, dtype=np.float32)})
        write_bytes(folder / WEIGHTS, content)
        write_record(folder / CARD, self.card(hashlib.sha256(content).hexdigest()))

    def card(self, sha256: str = "") -> PromptCard:
        """What a user of the prompt needs to know."""
        m, width = self.contexts.shape
        words = [f"ctx_{i + 1}" for i in range(m)]
        words.insert(contexts_before(self.position, m), "<class name>")
        return PromptCard(
            prompt=f"[SOS] {' '.join(words)}. [EOT]",
            contexts=m,
            width=width,
            class_names=self.class_names,
            forget=self.forget,
            model=self.model,
            model_fingerprint=self.fingerprint,
            template=self.template,
            sha256=sha256,
            applies_to=self.applies_to,
            serve=None if self.serve == "as-is" else self.serve,
            position=None if self.position == "end" else self.position,
        )

    def check(self, model: BlackBox) -> None:
        """Refuses a model that this prompt was not tuned for."""
        if model.card.fingerprint != self.fingerprint:
            raise RunError(
                f"this prompt was tuned for model {self.model!r} ({self.fingerprint[:12]}), not for "
                f"{model.card.name!r} ({model.card.fingerprint[:12]}); tune one for that model"
            )

    def deploy(self, model: BlackBox, name: str) -> None:
        """Deploys the prompt under this name on the service that answers for the model."""
        self.check(model)
        if not isinstance(model, TakesPrompts):
            raise InputError(f"model {model.card.name!r} runs in this process; prompts are deployed on unsee serve")
        model.deploy(name, self.contexts, self.card().model_dump_json())

    def confidences(self, model: BlackBox, images: Anything) -> Floats:
        """Confidences under the tuned prompt, as a caller sees them. -> (n, C)."""
        self.check(model)
        return self.answer(bind(model, as_images(images), self.class_names))

    def answer(self, bound: BoundImages) -> Floats:
        """What a caller sees for images that its model is bound to: after the rule for answers. -> (n, C)."""
        return serve(self.unserved(bound), np.isin(self.class_names, self.forget), self.serve)

    def unserved(self, bound: BoundImages) -> Floats:
        """The model's own answers under the prompt, before the rule. -> (n, C)."""
        ready = bound.at(self.position).apply_to(self.applies_to, self.template)
        found: Floats = ready.confidences(self.contexts[None])[0]
        return found

    def classify(self, model: BlackBox, images: Anything, top: int = 3) -> list[Answer]:
        """The top classes of each image, without and with the tuned prompt."""
        self.check(model)
        given = as_images(images)
        bound = bind(model, given, self.class_names)
        before = bound.zero_shot(self.template)
        alone = self.unserved(bound)
        after = serve(alone, np.isin(self.class_names, self.forget), self.serve)
        return [
            Answer(
                given.name(i),
                None if before is None else self._top(before[i], top),
                self._top(after[i], top),
                self._top(alone[i], top),
                _ranked(after[i]),
            )
            for i in range(len(given))
        ]

    def _top(self, confidences: Floats, top: int) -> tuple[tuple[str, float], ...]:
        order = np.argsort(-confidences, kind="stable")[:top]
        return tuple((self.class_names[i], float(confidences[i])) for i in order)


def _ranked(confidences: Floats) -> int:
    """How many of the highest confidences differ from all that follow. (C,)."""
    ties = np.flatnonzero(np.diff(np.sort(confidences)[::-1]) == 0)
    return int(ties[0]) if len(ties) else len(confidences)


def load_prompt(folder: str | Path) -> Prompt:
    """The prompt of a run folder; RunError if it is damaged or missing."""
    folder = Path(folder)
    weights, missing = folder / WEIGHTS, f"holds no prompt ({WEIGHTS} and {CARD}); is the run finished?"
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder")
    if not weights.is_file():
        if (folder / "result.json").is_file():
            raise RunError(f"{folder}: a finished run whose method tunes no prompt; its scores are in result.json")
        raise RunError(f"{folder}: {missing}")
    card = read_record(PromptCard, folder / CARD, missing)
    try:
        content = weights.read_bytes()
        contexts = load(content)["contexts"]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"{folder}: the prompt is damaged ({type(error).__name__}: {error})") from None
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise RunError(f"{weights}: does not match {CARD}; one of the two was changed or damaged")
    if contexts.ndim != 2 or not np.isfinite(contexts).all():
        raise RunError(f"{weights}: contexts must be finite and (m, D), not {contexts.shape}")
    named = card.applies_to
    if named is not None and (not named or not set(named) <= set(card.class_names)):
        raise RunError(f"{folder / CARD}: applies_to must name some of class_names, not {', '.join(named) or 'none'}")
    rule = card.serve or "as-is"
    if rule not in SERVED_AS:
        raise RunError(f"{folder / CARD}: serve is one of {', '.join(SERVED_AS)}, not {rule!r}")
    position = card.position or "end"
    if position not in POSITIONS:
        raise RunError(f"{folder / CARD}: position is one of {', '.join(POSITIONS)}, not {position!r}")
    own = card.class_names, card.forget, card.model, card.model_fingerprint, card.template
    return Prompt(contexts, *own, named, rule, position)
