"""The loss of candidates: asks the bound model, computes losses, and validates where that is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unsee.answers.metrics import entropy, scores, top_classes
from unsee.errors import ModelError
from unsee.methods.asked import AskedImages
from unsee.methods.best import Evaluated
from unsee.methods.losses import Goal, embedding_loss, forgetting_loss
from unsee.methods.shot_batches import ShotBatches
from unsee.methods.task import Task
from unsee.models.black_box import Metered
from unsee.types import Doubles, Floats, Ints, Scores, TradeOff

if TYPE_CHECKING:
    from unsee.models.white_box import ClassEmbeddings


ANSWER_BYTES = 256 * 2**20  # of the answers to one part of a large population


class _Read(NamedTuple):
    """What counts of answers to some images; much smaller than the confidences themselves."""

    top: Ints  # (b, n), the class each image is taken for
    flat: Doubles  # (b, g), entropy of the answers to images of forgotten classes
    labels: Ints  # (n,)


class Objective:
    """The model bound to a task's few-shot images; what it is asked is added to the ledger.

    `open` binds it: a finished run has nothing to ask, and its images need not be encoded.
    """

    def __init__(self, asked: AskedImages, goal: Callable[[], Goal]) -> None:
        self._images = asked
        self._task = asked.task
        self._settings = asked.task.settings
        self._forget = asked.task.forget
        self._ledger = asked.ledger
        self._goal = goal
        train, valid = asked.task.tuning_images
        self._train_labels, self._valid_labels = train.labels, valid.labels

    def open(self) -> None:
        """Makes ready what candidates are evaluated with, and refuses prompts that have no room."""
        _ = self._embeddings, self._goal()
        self._asked[0].check_room(self._settings.contexts)

    def evaluate(self, contexts: Floats) -> Evaluated:
        """Losses of a generation's candidates, contexts (b, m, D), and validation scores of those that are due.

        A large population is asked in parts, so that the answers in memory are at most `ANSWER_BYTES`; they are then
        not kept.
        """
        s, losses, read = self._settings, self._embedding_losses(contexts), list[_Read]()
        log_p = np.zeros((0, 0, 0), dtype=np.float32)
        if not self._task.blind:
            asked = self._asked[0] if self._images.batches is None else self._batch_of_this_step(self._images.batches)
            labels = asked.bound.labels
            tuned = self._train_labels if self._task.asks_once else labels  # those to validate on come behind
            size = max(1, ANSWER_BYTES // (4 * len(labels) * len(self._forget)))
            for part in (slice(first, first + size) for first in range(0, len(contexts), size)):
                log_p = asked.log_confidences(contexts[part])  # (part, n, C)
                losses[part] += forgetting_loss(
                    log_p[:, : len(tuned)], tuned, self._forget, s.memorize_weight, s.forget_weight, self._goal()
                )
                read.append(self._read(log_p, labels))
        if not np.isfinite(losses).all():
            raise ModelError("the model's answers give a NaN or infinite loss")
        valid, trade_offs = self._validate(contexts, losses, read)
        return Evaluated(losses, valid, trade_offs, log_p if len(log_p) == len(contexts) else None)

    def validate(self, contexts: Floats) -> Scores:
        """Validation scores of one prompt (m, D)."""
        return self._score(self._ask_to_validate(contexts))

    @cached_property
    def _asked(self) -> tuple[Metered, ...]:
        """The images to tune on and to validate on; together where one question serves both."""
        return tuple(Metered(bound, self._ledger) for bound in self._images.bound)

    @cached_property
    def _embeddings(self) -> ClassEmbeddings | None:
        return _embeddings(self._task)

    def _embedding_losses(self, contexts: Floats) -> Doubles:
        """Losses on class embeddings (b,); 0 for methods that see none."""
        if self._embeddings is None:
            return np.zeros(len(contexts))
        under, before, s = self._embeddings.under(contexts), self._embeddings.before, self._settings
        return s.embedding_weight * embedding_loss(under, before, self._task.unseen, ~self._forget, s.tau)

    def _batch_of_this_step(self, batches: ShotBatches) -> Metered:
        ledger = self._ledger
        encoded, cached = batches.images_encoded, batches.images_from_cache
        asked = Metered(batches.at(ledger.generations), ledger)
        ledger.images_encoded += batches.images_encoded - encoded
        ledger.images_from_cache += batches.images_from_cache - cached
        return asked

    def _validate(
        self, contexts: Floats, losses: Doubles, parts: Sequence[_Read]
    ) -> tuple[dict[int, Scores], dict[int, TradeOff]]:
        """Validation scores of the candidates that are due, and what they forget and keep on all images asked.

        Answers to a batch do not count: candidates of other steps were asked about other images, and trade-offs are
        compared across steps.
        """
        valid, trade_offs = dict[int, Scores](), dict[int, TradeOff]()
        due = self._due(losses)
        if not due:
            return valid, trade_offs
        seen = _Read(np.concatenate([p.top for p in parts]), np.concatenate([p.flat for p in parts]), parts[0].labels)
        for i in due:
            one = _Read(seen.top[i : i + 1], seen.flat[i : i + 1], seen.labels)
            if self._task.asks_once:
                n = len(self._train_labels)
                valid[i], trade_offs[i] = (
                    self._score(one._replace(top=one.top[:, n:], labels=one.labels[n:])),
                    self._weigh(one),
                )
                continue
            checked = self._ask_to_validate(contexts[i])
            valid[i] = self._score(checked)
            trade_offs[i] = self._weigh(checked if self._task.in_batches else _join(one, checked))
        return valid, trade_offs

    def _due(self, losses: Doubles) -> list[int]:
        """Which candidates of a generation are validated, by the rule of setting `validate`."""
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

    def _ask_to_validate(self, contexts: Floats) -> _Read:
        log_p = self._asked[-1].log_confidences(contexts[None])
        return self._read(log_p[:, -len(self._valid_labels) :], self._valid_labels)

    def _read(self, log_p: Floats, labels: Ints) -> _Read:
        """What counts of answers. log_p (b, n, C), labels (n,)."""
        return _Read(top_classes(log_p), entropy(np.exp(log_p[:, self._forget[labels]])), labels)

    def _score(self, one: _Read) -> Scores:
        return scores(one.top[0], one.labels, self._forget)

    def _weigh(self, one: _Read) -> TradeOff:
        """What a candidate forgets and keeps on these images."""
        found = self._score(one)
        return TradeOff(found.err_for, found.acc_mem, float(one.flat[0].mean()) if one.flat.size else 0.0)


def _join(a: _Read, b: _Read) -> _Read:
    """One candidate's answers to the images of both."""
    return _Read(
        np.concatenate([a.top, b.top], axis=1),
        np.concatenate([a.flat, b.flat], axis=1),
        np.concatenate([a.labels, b.labels]),
    )


def _embeddings(task: Task) -> ClassEmbeddings | None:
    settings = task.settings
    if settings.embedding_weight == 0 or not task.unseen.any():
        return None
    from unsee.models.white_box import ClassEmbeddings, open_box  # imports torch

    model = open_box(task.model, settings.method, "class embeddings")
    return ClassEmbeddings(model, task.data.class_names, settings.template, task.applies_to, settings.position)
