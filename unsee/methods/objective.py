"""The loss of candidates: asks the bound model, computes losses, and validates where that is due."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from unsee.answers.metrics import entropy, scores, top_classes
from unsee.errors import ModelError
from unsee.methods.asked import AskedImages, bind_images
from unsee.methods.best import Evaluated
from unsee.methods.losses import Goal, embedding_loss, forgetting_loss
from unsee.methods.shot_batches import ShotBatches
from unsee.methods.task import Task
from unsee.models.black_box import Metered, Selects
from unsee.types import Doubles, Floats, Ints, Scores, TradeOff

if TYPE_CHECKING:
    from unsee.models.white_box import ClassEmbeddings


ANSWER_BYTES = 256 * 2**20  # of the answers to one part of a large population


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
        self._last: tuple[Ints, Metered] | None = None  # some of the images

    def open(self) -> None:
        """Makes ready what candidates are evaluated with, and refuses prompts that have no room."""
        _ = self._embeddings, self._goal()
        self._asked[0].check_room(self._settings.contexts)

    def evaluate(self, contexts: Floats, rows: Ints | None = None, known: Floats | None = None) -> Evaluated:
        """Losses of a generation's candidates, contexts (b, m, D), and validation scores of those that are due.

        A large population is asked in parts, so that the answers in memory are at most `ANSWER_BYTES`; they are then
        not kept. rows: those of the images to tune and to validate on that are asked about, if not all; the answers
        are then all there is, losses are NaN, and nothing is validated. known: answers to all of them (b, n, C), so
        that the model need not be asked.
        """
        if rows is not None:
            return Evaluated(np.full(len(contexts), np.nan), answers=self._some(rows).log_confidences(contexts))
        s, task, losses = self._settings, self._task, np.zeros(len(contexts))
        log_p, tops, flats = np.zeros((0, 0, 0), dtype=np.float32), list[Ints](), list[Doubles]()
        if self._embeddings is not None:
            under, before = self._embeddings.under(contexts), self._embeddings.before
            losses += s.embedding_weight * embedding_loss(under, before, task.unseen, ~self._forget, s.tau)
        if not task.blind:
            asked = self._asked[0] if self._images.batches is None else self._batch_of_this_step(self._images.batches)
            labels = asked.bound.labels
            tuned = self._train_labels if task.asks_once else labels  # those to validate on come behind
            size = max(1, ANSWER_BYTES // (4 * len(labels) * len(self._forget)))
            for part in (slice(first, first + size) for first in range(0, len(contexts), size)):
                log_p = asked.log_confidences(contexts[part]) if known is None else known[part]  # (part, n, C)
                losses[part] += forgetting_loss(
                    log_p[:, : len(tuned)], tuned, self._forget, s.memorize_weight, s.forget_weight, self._goal()
                )
                tops.append(top_classes(log_p))
                flats.append(entropy(np.exp(log_p[:, self._forget[labels]])))
        if not np.isfinite(losses).all():
            raise ModelError("the model's answers give a NaN or infinite loss")
        valid, trade_offs = dict[int, Scores](), dict[int, TradeOff]()
        for i in self._due(losses):
            top, flat = np.concatenate(tops)[i], np.concatenate(flats)[i]
            valid[i], trade_offs[i] = self._judge(top, flat, labels, None if task.asks_once else contexts[i])
        return Evaluated(losses, valid, trade_offs, log_p if len(log_p) == len(contexts) else None)

    def cost(self, candidates: int, rows: Ints | None = None) -> int:
        """Image queries that so many candidates take, validation included; also the last one, of a choice by loss."""
        if rows is not None:
            return candidates * len(rows)
        task, valid = self._task, len(self._valid_labels)
        if task.asks_once:
            return candidates * len(task.asked_rows[0])
        validated = 1 if self._settings.validate == "loss" else len(self._due(np.zeros(candidates)))
        return (0 if task.blind else candidates * task.images_per_candidate) + validated * valid

    def validate(self, contexts: Floats) -> Scores:
        """Validation scores of one prompt (m, D)."""
        log_p = self._asked[-1].log_confidences(contexts[None])[0, -len(self._valid_labels) :]
        return scores(top_classes(log_p), self._valid_labels, self._forget)

    @cached_property
    def _asked(self) -> tuple[Metered, ...]:
        """The images to tune on and to validate on; together where one question serves both."""
        return tuple(Metered(bound, self._ledger) for bound in self._images.bound)

    @cached_property
    def _embeddings(self) -> ClassEmbeddings | None:
        return _embeddings(self._task)

    def _some(self, rows: Ints) -> Metered:
        """Some of the images; the last choice is kept, as it serves several generations."""
        if self._last is None or not np.array_equal(self._last[0], rows):
            bound, task = self._asked[0].bound, self._task
            if isinstance(bound.bound, Selects):
                some = bound.select(rows)
            else:
                some = bind_images(task, task.data.train.subset(task.asked_rows[0][rows]))
            self._last = rows, Metered(some, self._ledger)
        return self._last[1]

    def _batch_of_this_step(self, batches: ShotBatches) -> Metered:
        ledger = self._ledger
        encoded, cached = batches.images_encoded, batches.images_from_cache
        asked = Metered(batches.at(ledger.generations), ledger)
        ledger.images_encoded += batches.images_encoded - encoded
        ledger.images_from_cache += batches.images_from_cache - cached
        return asked

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

    def _judge(self, top: Ints, flat: Doubles, labels: Ints, contexts: Floats | None) -> tuple[Scores, TradeOff]:
        """One candidate's validation scores, and what it forgets and keeps on all images asked.

        top (n,) and flat (g,): the labels it answered, and the entropy of its answers to forgotten images. contexts
        are those of a candidate that has yet to be asked about the images to validate on. Answers to a batch do not
        count: candidates of other steps were asked about other images, and trade-offs are compared across steps.
        """
        mine = slice(len(self._train_labels), None)
        if contexts is not None:
            log_p = self._asked[-1].log_confidences(contexts[None])[0, -len(self._valid_labels) :]
            flatness = entropy(np.exp(log_p[self._forget[self._valid_labels]]))
            if self._task.in_batches:
                top, flat, labels, mine = top_classes(log_p), flatness, self._valid_labels, slice(None)
            else:
                mine = slice(len(top), None)
                top, flat = np.concatenate([top, top_classes(log_p)]), np.concatenate([flat, flatness])
                labels = np.concatenate([labels, self._valid_labels])
        found = scores(top, labels, self._forget)
        trade_off = TradeOff(found.err_for, found.acc_mem, float(flat.mean()) if flat.size else 0.0)
        return scores(top[mine], labels[mine], self._forget), trade_off


def _embeddings(task: Task) -> ClassEmbeddings | None:
    settings = task.settings
    if settings.embedding_weight == 0 or not task.unseen.any():
        return None
    from unsee.models.white_box import ClassEmbeddings, open_box  # imports torch

    model = open_box(task.model, settings.method, "class embeddings")
    return ClassEmbeddings(model, task.data.class_names, settings.template, task.applies_to, settings.position)
