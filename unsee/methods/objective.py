"""The loss of candidates: asks the bound model, computes losses, and validates where that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unsee.errors import ModelError
from unsee.methods.losses import Goal, embedding_loss, forgetting_loss
from unsee.methods.recorder import Evaluated
from unsee.methods.task import Task
from unsee.metrics import answers, entropy, near_chance, scores
from unsee.models.black_box import BoundImages, Metered, bind
from unsee.types import Doubles, Floats, Ledger, Scores, TradeOff

if TYPE_CHECKING:
    from unsee.models.white_box import ClassEmbeddings


class Objective:
    """The model bound to a task's few-shot images; what it is asked is added to the ledger."""

    def __init__(self, task: Task, ledger: Ledger) -> None:
        self._settings = task.settings
        self._forget = task.forget
        self._unseen = task.unseen
        self._embeddings = _embeddings(task)
        train, valid = task.tuning_images
        self._train_labels, self._valid_labels = train.labels, valid.labels
        self._every = task.settings.validate == "every" and not task.blind
        self._blind = task.blind
        if self._every:  # one question serves both losses and validation
            self._train = self._valid = Metered(task.bind_images(task.tuning_rows), ledger)
        else:
            self._train, self._valid = (Metered(task.bind_images(rows), ledger) for rows in task.split_rows)
        self._goal = Goal() if task.blind else _goal(task)
        self._ledger = ledger
        self._train.check_room(task.settings.contexts)

    @property
    def images(self) -> BoundImages:
        """The images that losses are computed on, and where one question serves both, those to validate on."""
        return self._train.bound

    def evaluate(self, contexts: Floats, rows: slice, known: Evaluated) -> Evaluated:
        """Losses of the candidates up to the end of `rows`, those before it known already.

        contexts (b, m, D) is the whole generation. A model in this process evaluates all of it, whatever the rows: sums
        round differently in batches of another size, and a run that is cut and resumed must end with the same bits.
        """
        settings, n = self._settings, len(self._train_labels)
        new = np.zeros(rows.stop - rows.start)
        log_p = None if self._blind else self._train.log_confidences(contexts, rows)
        if log_p is not None:
            new += forgetting_loss(
                log_p[:, :n],
                self._train_labels,
                self._forget,
                settings.memorize_weight,
                settings.forget_weight,
                self._goal,
            )
        if self._embeddings is not None:
            new += settings.embedding_weight * embedding_loss(
                self._embeddings.under(contexts)[rows],
                self._embeddings.before,
                self._unseen,
                ~self._forget,
                settings.tau,
            )
        if not np.isfinite(new).all():
            raise ModelError("the model's answers give a NaN or infinite loss")
        losses = np.concatenate([known.losses, new])
        valid, trade_offs = dict(known.valid), dict(known.trade_offs)
        if self._every and log_p is not None:
            for i, row in enumerate(log_p, rows.start):
                valid[i], trade_offs[i] = self._score(row[n:]), self._weigh(row[:n], row[n:])
            return Evaluated(losses, valid, trade_offs)
        chosen = self._to_validate(losses, rows)
        for i in chosen:
            if i not in valid:
                seen = self._ask(contexts[i])
                tuned_on = None if log_p is None or i < rows.start else log_p[i - rows.start]
                valid[i], trade_offs[i] = self._score(seen), self._weigh(tuned_on, seen)
        return Evaluated(losses, {i: valid[i] for i in chosen}, {i: trade_offs[i] for i in chosen if i in trade_offs})

    def validate(self, contexts: Floats) -> Scores:
        """Validation scores of one prompt (m, D)."""
        return self._score(self._ask(contexts))

    def _ask(self, contexts: Floats) -> Floats:
        log_p = self._valid.log_confidences(contexts[None], slice(0, 1))[0]
        found: Floats = log_p[-len(self._valid_labels) :]
        return found

    def _to_validate(self, losses: Doubles, rows: slice) -> list[int]:
        """Which candidates of the generation so far, by the rule of setting `validate`."""
        rule = self._settings.validate
        if rule == "loss":
            return []
        if rule == "generation":
            return [int(losses.argmin())]
        first = self._ledger.candidates - rows.start  # candidates of earlier generations
        return [i for i in range(rows.stop) if (first + i) % int(rule) == 0]

    def _score(self, log_p: Floats) -> Scores:
        return scores(answers(log_p), self._valid_labels, self._forget)

    def _weigh(self, train: Floats | None, valid: Floats) -> TradeOff:
        """What a candidate forgets and keeps on all images it was asked about. train, valid (n, C)."""
        log_p, labels = valid, self._valid_labels
        if train is not None:
            log_p, labels = np.concatenate([train, valid]), np.concatenate([self._train_labels, labels])
        gone, found = self._forget[labels], scores(answers(log_p), labels, self._forget)
        flat = float(entropy(np.exp(log_p[gone])).mean()) if gone.any() else 0.0
        return TradeOff(found.err_for, found.acc_mem, flat)


def warn_if_names_unknown(images: BoundImages, template: str) -> str | None:
    """A sentence if the model's plain answers to these images are near chance, so that there is little to forget."""
    plain = images.zero_shot(template)
    if plain is None:
        return None
    accuracy, classes = float((answers(plain) == images.labels).mean()), plain.shape[1]
    if not near_chance(accuracy, classes, len(images.labels)):
        return None
    return (
        f"the model hardly knows these classes: {100 * accuracy:.0f} % of the images to tune on are recognised under "
        f"{template!r}, chance is {100 / classes:.0f} %; the scores say little"
    )


def _goal(task: Task) -> Goal:
    """The goal on the images to tune on; only some goals ask about them."""
    if task.settings.goal in ("entropy", "push"):
        return Goal(task.settings.goal)
    return task.goal(bind(task.model, task.data.train.subset(task.split_rows[0])))


def _embeddings(task: Task) -> ClassEmbeddings | None:
    settings = task.settings
    if settings.embedding_weight == 0 or settings.with_images == 1:
        return None
    from unsee.models.white_box import ClassEmbeddings, open_box  # imports torch

    model = open_box(task.model, settings.method, "class embeddings")
    return ClassEmbeddings(model, task.data.class_names, settings.template, task.applies_to)
