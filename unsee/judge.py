"""Judges candidates: asks the bound model, computes losses, validates, and keeps the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsee.errors import ModelError
from unsee.images import Images
from unsee.models import BlackBox, Metered
from unsee.models.whitebox import ClassEmbeddings, open_box
from unsee.records import Doubles, Floats, Generation, Ints, Ledger, Mask, Scores
from unsee.scores import answers, embedding_loss, forgetting_loss, scores
from unsee.task import Task, make_origin


class Judge:
    """The model bound to the images of a split: judges candidates and keeps the ledger."""

    def __init__(self, task: Task, spent: dict[str, int] | None = None) -> None:
        settings, data = task.settings, task.data
        self.ledger = Ledger(**(spent or {}))
        self._settings = settings
        self._forget = task.forget
        self._embeddings = _embeddings(task)
        self._unseen = unseen_classes(task.forget, settings.with_images)
        make_origin(settings, task.model)  # refuses what cannot fit before images are encoded
        self._blind = settings.memorize_weight == 0 and bool((self._unseen == task.forget).all())
        rows = [task.split.train, task.split.valid]
        if not self._blind:  # without any image to tune on, those to validate on are for the record alone
            rows = [part[~self._unseen[data.train.labels[part]]] for part in rows]
        train, valid = (data.train.subset(part) for part in rows)
        self._train_labels, self._valid_labels = train.labels, valid.labels
        self._every = settings.validate == "every" and not self._blind
        if self._every:  # one question serves both losses and validation
            both = data.train.subset(np.concatenate(rows))
            self._train = self._valid = self._metered(task.model, both)
        else:
            self._train, self._valid = self._metered(task.model, train), self._metered(task.model, valid)
        self._train.check_room(settings.contexts)

    def judge(self, contexts: Floats) -> tuple[Doubles, dict[int, Scores]]:
        """Losses of all candidates, and validation scores of those that are to be validated."""
        settings, n = self._settings, len(self._train_labels)
        losses = np.zeros(len(contexts))
        log_p = None if self._blind else self._train.log_confidences(contexts)
        if log_p is not None:
            losses += forgetting_loss(
                log_p[:, :n], self._train_labels, self._forget, settings.memorize_weight, settings.forget_weight
            )
        if self._embeddings is not None:
            losses += settings.embedding_weight * embedding_loss(
                self._embeddings.under(contexts), self._embeddings.before, self._unseen, ~self._forget, settings.tau
            )
        if not np.isfinite(losses).all():
            raise ModelError("the model's answers give a NaN or infinite loss")
        if self._every and log_p is not None:
            return losses, self._scores(answers(log_p[:, n:]), range(len(contexts)))
        chosen = self._to_validate(losses)
        found = answers(self._valid.log_confidences(contexts[chosen])) if chosen else np.zeros((0, 0), np.int64)
        return losses, self._scores(found, chosen)

    def validate(self, contexts: Floats) -> Scores:
        """Validation scores of one prompt, for the record."""
        log_p = self._valid.log_confidences(contexts[None])[0]
        return scores(answers(log_p[-len(self._valid_labels) :]), self._valid_labels, self._forget)

    def _to_validate(self, losses: Doubles) -> list[int]:
        if self._settings.validate == "loss":
            return []
        if self._settings.validate == "generation":
            return [int(losses.argmin())]
        step, before = int(self._settings.validate), self.ledger.candidates
        return [i for i in range(len(losses)) if (before + i) % step == 0]

    def _scores(self, found: Ints, numbers: Sequence[int]) -> dict[int, Scores]:
        pairs = zip(numbers, found, strict=True)
        return {i: scores(row, self._valid_labels, self._forget) for i, row in pairs}

    def _metered(self, model: BlackBox, images: Images) -> Metered:
        bound = model.bind(images, images.class_names)
        return Metered(bound, len(images), len(images.class_names), self.ledger)


class Best:
    """The best candidate so far: by a validation score, or by loss where there is nothing to validate on.

    The first of equals stays, as in the paper.
    """

    def __init__(self, merit: str = "h") -> None:
        self.scores: Scores | None = None
        self.contexts: Floats | None = None
        self.merit = -np.inf
        self._merit = merit

    def offer(self, contexts: Floats, losses: Doubles, valid: dict[int, Scores], offset: int = 0) -> int | None:
        """Which of these candidates, if any, is the new best. valid: scores of those validated."""
        found = None
        for i in range(len(contexts)) if self._merit == "loss" else valid:
            merit = self.of(losses[i], valid.get(i))
            if merit > self.merit:
                self.take(contexts[i], merit, valid.get(i))
                found = i + offset
        return found

    def of(self, loss: float, scores: Scores | None) -> float:
        """What a candidate is judged by."""
        if self._merit == "loss" or scores is None:
            return -float(loss)
        return scores.h if self._merit == "h" else scores.acc_mem

    def take(self, contexts: Floats, merit: float, scores: Scores | None) -> None:
        self.contexts, self.merit, self.scores = contexts.copy(), merit, scores

    def recall(self, contexts: Floats, generation: Generation) -> None:
        """Takes what a recorded generation chose."""
        if generation.chosen is not None:
            merit = self.of(generation.losses[generation.chosen], generation.valid)
            self.take(contexts, merit, generation.valid)

    def state(self) -> dict[str, Doubles]:
        """The best contexts, for searches that cannot be replayed."""
        return {} if self.contexts is None else {"best": self.contexts.astype(np.float64)}


def unseen_classes(forget: Mask, with_images: float) -> Mask:
    """The forgotten classes there are no images of: the last of them, as many as the share leaves out. -> (C,)."""
    gone = np.flatnonzero(forget)
    unseen = np.zeros_like(forget)
    unseen[gone[round(with_images * len(gone)) :]] = True
    return unseen


def _embeddings(task: Task) -> ClassEmbeddings | None:
    settings = task.settings
    if settings.embedding_weight == 0 or settings.with_images == 1:
        return None
    model = open_box(task.model, settings.method, "class embeddings")
    return ClassEmbeddings(model, task.data.class_names, settings.template)
