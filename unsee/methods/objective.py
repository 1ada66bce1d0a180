"""The loss of candidates: asks the bound model, computes losses, and validates where that is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unsee.answers.metrics import entropy, scores, top_classes
from unsee.data.images import in_batches
from unsee.errors import ModelError
from unsee.methods.asked import AskedImages
from unsee.methods.best import Evaluated
from unsee.methods.losses import Goal, embedding_loss, forgetting_loss
from unsee.methods.task import Task
from unsee.models.black_box import Metered
from unsee.types import Doubles, Floats, Ints, Scores, TradeOff

if TYPE_CHECKING:
    from unsee.models.white_box import ClassEmbeddings


ANSWER_BYTES = 256 * 2**20  # of the answers to one part of a large population


class _Answered(NamedTuple):
    """What counts of a candidate's answers to some images; much smaller than the confidences themselves."""

    top: Ints  # (n,), the class each image is taken for
    labels: Ints  # (n,)
    flat: Doubles  # entropy of the answers to images of forgotten classes


class Objective:
    """The model bound to a task's few-shot images; what it is asked is added to the ledger.

    `open` binds it: a finished run has nothing to ask, and its images need not be encoded.
    """

    def __init__(self, asked: AskedImages, goal: Callable[[], Goal]) -> None:
        task = asked.task
        self._images = asked
        self._goal = goal
        self._settings = task.settings
        self._forget = task.forget
        self._unseen = task.unseen
        train, valid = task.tuning_images
        self._train_labels, self._valid_labels = train.labels, valid.labels
        self._every = task.asks_once
        self._blind = task.blind
        self._ledger = asked.ledger

    def open(self) -> None:
        """Makes ready what candidates are evaluated with, and refuses prompts that have no room."""
        _ = self._embeddings, self._goal()
        self._asked[0].check_room(self._settings.contexts)

    @cached_property
    def _asked(self) -> tuple[Metered, ...]:
        """The images to tune on and to validate on; together where one question serves both."""
        return tuple(Metered(bound, self._ledger) for bound in self._images.bound)

    @cached_property
    def _embeddings(self) -> ClassEmbeddings | None:
        return _embeddings(self._images.task)

    def evaluate(self, contexts: Floats) -> Evaluated:
        """Losses of a generation's candidates, contexts (b, m, D), and validation scores of those that are due."""
        losses, answers, tuned_on, checked_on = self._ask(contexts)
        if self._embeddings is not None:
            losses += self._settings.embedding_weight * embedding_loss(
                self._embeddings.under(contexts),
                self._embeddings.before,
                self._unseen,
                ~self._forget,
                self._settings.tau,
            )
        if not np.isfinite(losses).all():
            raise ModelError("the model's answers give a NaN or infinite loss")
        valid, trade_offs = dict[int, Scores](), dict[int, TradeOff]()
        for i in self._to_validate(losses):
            seen = checked_on.get(i) or self._ask_to_validate(contexts[i])
            valid[i] = self._score(seen)
            trade_offs[i] = self._weigh([tuned_on[i], seen] if i in tuned_on else [seen])
        return Evaluated(losses, valid, trade_offs, answers)

    def _ask(self, contexts: Floats) -> tuple[Doubles, Floats | None, dict[int, _Answered], dict[int, _Answered]]:
        """Losses, answers, and what counts of these: on images to tune on and, where asked with them, to validate on.

        A large population is asked in parts, so that the answers in memory are at most `ANSWER_BYTES`; they are then
        not kept. A batch is not remembered: candidates of other steps were asked about other images, and trade-offs
        are compared across steps.
        """
        losses = np.zeros(len(contexts))
        tuned_on, checked_on = dict[int, _Answered](), dict[int, _Answered]()
        if self._blind:
            return losses, None, tuned_on, checked_on
        settings, asked = self._settings, self._images_of_this_step()
        labels = self._train_labels if self._every else asked.bound.labels
        size, n = max(1, ANSWER_BYTES // (4 * len(asked.bound.images) * len(self._forget))), len(labels)
        log_p = np.zeros((0, 0, 0), dtype=np.float32)
        for part in in_batches(len(contexts), size):
            log_p = asked.log_confidences(contexts[part.start : part.stop])
            losses[part.start : part.stop] = forgetting_loss(
                log_p[:, :n], labels, self._forget, settings.memorize_weight, settings.forget_weight, self._goal()
            )
            for i, row in enumerate(log_p, part.start):
                if self._images.batches is None and settings.validate != "loss":
                    tuned_on[i] = self._read(row[:n], labels)
                if self._every:
                    checked_on[i] = self._read(row[n:], self._valid_labels)
        return losses, log_p if len(log_p) == len(contexts) else None, tuned_on, checked_on

    def _images_of_this_step(self) -> Metered:
        batches, ledger = self._images.batches, self._ledger
        if batches is None:
            return self._asked[0]
        encoded, cached = batches.images_encoded, batches.images_from_cache
        asked = Metered(batches.at(ledger.generations), ledger)
        ledger.images_encoded += batches.images_encoded - encoded
        ledger.images_from_cache += batches.images_from_cache - cached
        return asked

    def validate(self, contexts: Floats) -> Scores:
        """Validation scores of one prompt (m, D)."""
        return self._score(self._ask_to_validate(contexts))

    def _ask_to_validate(self, contexts: Floats) -> _Answered:
        log_p = self._asked[-1].log_confidences(contexts[None])[0]
        return self._read(log_p[-len(self._valid_labels) :], self._valid_labels)

    def _to_validate(self, losses: Doubles) -> list[int]:
        """Which candidates of a generation, by the rule of setting `validate`."""
        rule = self._settings.validate
        if rule == "loss":
            return []
        if rule == "every":
            return list(range(len(losses)))
        if rule == "generation":
            return [int(losses.argmin())]
        if rule == "first":
            return [0]
        return [i for i in range(len(losses)) if (self._ledger.candidates + i) % int(rule) == 0]

    def _read(self, log_p: Floats, labels: Ints) -> _Answered:
        """What counts of one candidate's answers. log_p (n, C), labels (n,)."""
        return _Answered(top_classes(log_p), labels, entropy(np.exp(log_p[self._forget[labels]])))

    def _score(self, seen: _Answered) -> Scores:
        return scores(seen.top, seen.labels, self._forget)

    def _weigh(self, parts: Sequence[_Answered]) -> TradeOff:
        """What a candidate forgets and keeps on all images it was asked about."""
        top, labels, flat = (np.concatenate([getattr(part, name) for part in parts]) for name in _Answered._fields)
        found = scores(top, labels, self._forget)
        return TradeOff(found.err_for, found.acc_mem, float(flat.mean()) if len(flat) else 0.0)


def _embeddings(task: Task) -> ClassEmbeddings | None:
    settings = task.settings
    if settings.embedding_weight == 0 or not task.unseen.any():
        return None
    from unsee.models.white_box import ClassEmbeddings, open_box  # imports torch

    model = open_box(task.model, settings.method, "class embeddings")
    return ClassEmbeddings(model, task.data.class_names, settings.template, task.applies_to, settings.position)
