"""The loss of candidates: asks the bound model, computes losses, and validates where that is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unsee.errors import ModelError
from unsee.images import in_batches
from unsee.methods.losses import embedding_loss, forgetting_loss
from unsee.methods.recorder import Evaluated
from unsee.methods.task import Task
from unsee.metrics import answers, near_chance, scores
from unsee.models.black_box import BoundImages, Metered
from unsee.types import Doubles, Floats, Ints, Ledger, Scores

if TYPE_CHECKING:
    from unsee.models.white_box import ClassEmbeddings


ANSWER_BYTES = 256 * 2**20  # of the answers to one part of a large population


class Objective:
    """The model bound to a task's few-shot images; what it is asked is added to the ledger."""

    def __init__(self, task: Task, ledger: Ledger) -> None:
        self._settings = task.settings
        self._forget = task.forget
        self._unseen = task.unseen
        self._embeddings = _embeddings(task)
        train, valid = task.tuning_images
        self._train_labels, self._valid_labels = train.labels, valid.labels
        self._batches = task.batches
        self._every = task.settings.validate == "every" and not task.blind and self._batches is None
        self._blind = task.blind
        if self._every:  # one question serves both losses and validation
            self._train = self._valid = Metered(task.bind_images(task.tuning_rows), ledger)
        elif self._batches is not None:
            self._train = Metered(self._batches.shots, ledger)
            self._valid = Metered(task.bind_images(task.split_rows[1]), ledger)
        else:
            self._train, self._valid = (Metered(task.bind_images(rows), ledger) for rows in task.split_rows)
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
        settings = self._settings
        new, found = self._ask(contexts, rows)
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
        if self._every:
            return Evaluated(losses, dict(known.valid) | found)
        chosen = self._to_validate(losses, rows)
        return Evaluated(losses, {i: known.valid.get(i) or self.validate(contexts[i]) for i in chosen})

    def _ask(self, contexts: Floats, rows: slice) -> tuple[Doubles, dict[int, Scores]]:
        """Losses of these rows on images, and their validation scores where one question serves both.

        A large population is asked in parts, so that the answers in memory are at most `ANSWER_BYTES`. Where the parts
        end depends on sizes alone, not on the rows.
        """
        losses, found = np.zeros(rows.stop - rows.start), dict[int, Scores]()
        if self._blind:
            return losses, found
        settings, asked = self._settings, self._images_of_this_step()
        labels = self._train_labels if self._every else asked.bound.labels
        size = max(1, ANSWER_BYTES // (4 * len(asked.bound.images) * len(self._forget)))
        for part in in_batches(len(contexts), size):
            first, last = max(rows.start, part.start), min(rows.stop, part.stop)
            if first >= last:
                continue
            log_p = asked.log_confidences(
                contexts[part.start : part.stop], slice(first - part.start, last - part.start)
            )
            losses[first - rows.start : last - rows.start] = forgetting_loss(
                log_p[:, : len(labels)], labels, self._forget, settings.memorize_weight, settings.forget_weight
            )
            if self._every:
                found |= {first + i: self._score(row) for i, row in enumerate(answers(log_p[:, len(labels) :]))}
        return losses, found

    def _images_of_this_step(self) -> Metered:
        batches, ledger = self._batches, self._ledger
        if batches is None:
            return self._train
        encoded, cached = batches.images_encoded, batches.images_from_cache
        asked = Metered(batches.at(ledger.generations), ledger)
        ledger.images_encoded += batches.images_encoded - encoded
        ledger.images_from_cache += batches.images_from_cache - cached
        return asked

    def validate(self, contexts: Floats) -> Scores:
        """Validation scores of one prompt (m, D)."""
        log_p = self._valid.log_confidences(contexts[None], slice(0, 1))[0]
        return self._score(answers(log_p[-len(self._valid_labels) :]))

    def _to_validate(self, losses: Doubles, rows: slice) -> list[int]:
        """Which candidates of the generation so far, by the rule of setting `validate`."""
        rule = self._settings.validate
        if rule == "loss":
            return []
        if rule == "every":
            return list(range(rows.stop))
        if rule == "generation":
            return [int(losses.argmin())]
        if rule == "first":
            return [0]
        first = self._ledger.candidates - rows.start  # candidates of earlier generations
        return [i for i in range(rows.stop) if (first + i) % int(rule) == 0]

    def _score(self, found: Ints) -> Scores:
        return scores(found, self._valid_labels, self._forget)


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


def _embeddings(task: Task) -> ClassEmbeddings | None:
    settings = task.settings
    if settings.embedding_weight == 0 or settings.with_images == 1:
        return None
    from unsee.models.white_box import ClassEmbeddings, open_box  # imports torch

    model = open_box(task.model, settings.method, "class embeddings")
    return ClassEmbeddings(model, task.data.class_names, settings.template, task.applies_to)
