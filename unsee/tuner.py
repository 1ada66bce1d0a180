"""The method, in one loop: propose prompts, ask the model, learn from its answers.

`PromptTuner` is used like a scikit-learn estimator: the constructor stores settings, `fit` works, what
it learned ends in an underscore. With `out=` the run is a folder that survives a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unsee import provenance
from unsee.contexts import (
    BbtContexts,
    IndependentContexts,
    LowRankContexts,
    Parametrization,
    SharedContexts,
    VanillaContexts,
    draw_projection,
    mean_origin,
    phrase_origin,
)
from unsee.descent import ForwardDifferences, GradientDescent, Slope, TwoSided
from unsee.errors import InputError, ModelError, RunError
from unsee.evaluation import Evaluation, evaluate
from unsee.images import Anything, Images, as_images
from unsee.models import BlackBox, Bound, Metered
from unsee.models.border import LooksUpTokens
from unsee.models.whitebox import ClassEmbeddings, LossSlope, open_box
from unsee.prompts import Prompt, plain_names
from unsee.records import Card, Data, Doubles, Floats, Generation, Ints, Ledger, Mask, Scores, forget_mask
from unsee.runs import Run
from unsee.scores import answers, embedding_loss, forgetting_loss, scores
from unsee.search import BlockSearch, RandomSearch, Search, Stateful
from unsee.seeds import stream
from unsee.settings import Settings, resolve
from unsee.split import Split, few_shot_split, largest_shots

LOW_RANK = 2  # of ZIP's matrix of latents
Watch = Callable[[Generation, Settings], None]  # called after every generation


class PromptTuner:
    """Finds contexts under which a model no longer recognises the classes in `forget`, and still the rest.

    Any setting of `unsee.Settings` may be given by name; what is not comes from the preset's entry for
    the data set.
    """

    def __init__(
        self, forget: str | Sequence[str], method: str = "lcs", *, preset: str = "paper", seed: int = 0, **settings: Any
    ) -> None:
        self.forget = plain_names(forget)
        self.method = method
        self.preset = preset
        self.seed = seed
        self.settings = settings

    def fit(
        self,
        model: BlackBox,
        data: Data,
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        watch: Watch | None = None,
    ) -> PromptTuner:
        """Tunes a prompt; with `out`, as a run folder that can be resumed."""
        task = self._prepare(model, data)
        bench = Bench(task)
        if out is None:
            return self._tune(task, bench, None, [], watch)
        with Run.create(out, task.config(), overwrite) as run:
            return self._tune(task, bench, run, [], watch)

    def resume(
        self, model: BlackBox, data: Data, out: str | Path, *, watch: Watch | None = None, **longer: int | None
    ) -> PromptTuner:
        """Goes on with a run folder exactly where it stopped; `longer` may raise its budget or iterations."""
        with Run.open(out) as run:
            self.settings = self.settings | {name: value for name, value in longer.items() if value is not None}
            task = self._prepare(model, data)
            task.check_same(run)
            run.write_config(task.config())
            state = run.read_state() if task.settings.search == "gradient" else {}
            history = list(run.history)
            return self._tune(task, Bench(task, history[-1].ledger if history else {}), run, history, watch, state)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PromptTuner:
        """The tuner whose run has this config."""
        settings = dict(config["settings"])
        method, preset, seed = (settings.pop(key) for key in ("method", "preset", "seed"))
        return cls(config["forget"], method, preset=preset, seed=seed, **settings)

    def predict(self, images: Anything) -> list[str]:
        """The class each image is taken for under the tuned prompt."""
        bound = self.model_.bind(as_images(images), self.class_names_)
        return [self.class_names_[i] for i in answers(bound.confidences(self.contexts_[None])[0])]

    def score(self, images: Images) -> Scores:
        """H, Err_for and Acc_mem of the tuned prompt on labelled images."""
        return self.evaluate(images).tuned

    def evaluate(self, images: Images, bound: Bound | None = None) -> Evaluation:
        """The tuned prompt on labelled images, beside zero-shot and label mask; `bound` if they are bound already."""
        bound = bound or self.model_.bind(images, self.class_names_)
        return evaluate(bound, images.labels, self.contexts_, self.forget_mask_, self.settings_.template)

    @property
    def prompt(self) -> Prompt:
        """The artefact to deploy."""
        card = self.model_.card
        return Prompt(
            self.contexts_, self.class_names_, self.forget, card.name, card.fingerprint, self.settings_.template
        )

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Writes the whole run as a folder, after the fact."""
        with Run.create(out, self.config_, overwrite) as run:
            for generation in self.history_:
                run.append(generation)
        self.prompt.save(out)

    def result(self, evaluation: Evaluation, seconds: dict[str, float]) -> dict[str, Any]:
        """What `result.json` holds."""
        return {
            "method": self.settings_.method,
            "preset": self.settings_.preset,
            "seed": self.settings_.seed,
            "model": self.model_.card.name,
            "data": self.data_name_,
            "forget": list(self.forget),
            "zero_shot": evaluation.zero_shot.as_dict(),
            "valid": self.valid_.as_dict(),
            "test": evaluation.tuned.as_dict(),
            "label_mask": evaluation.label_mask.as_dict(),
            "per_class": {
                name: {"before": _number(before), "after": _number(after)}
                for name, before, after in zip(self.class_names_, evaluation.before, evaluation.after, strict=True)
            },
            "entropy_forgotten": {"before": evaluation.entropy_before, "after": evaluation.entropy_after},
            "ledger": self.ledger_.as_dict(),
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
        }

    def _prepare(self, model: BlackBox, data: Data) -> Task:
        settings = resolve(
            self.settings,
            method=self.method,
            preset=self.preset,
            seed=self.seed,
            data=data.name,
            classes=len(data.class_names),
            shots=largest_shots(data.train),
        )
        forget = forget_mask(data.class_names, self.forget)
        split = few_shot_split(data.train, settings.shots, settings.seed, settings.skip_bad_images)
        return Task(settings, model, data, forget, split)

    def _tune(
        self,
        task: Task,
        bench: Bench,
        run: Run | None,
        history: list[Generation],
        watch: Watch | None,
        state: dict[str, Doubles] | None = None,
    ) -> PromptTuner:
        settings, contexts_of = task.settings, task.parametrization.contexts
        search, best, asked = task.replay(history, state or {})
        ledger = bench.ledger
        started = time.perf_counter() - (history[-1].seconds if history else 0.0)
        while ledger.generations < settings.iterations and ledger.candidates < settings.limit:
            z = search.ask() if asked is None else asked  # (b, dim)
            partial = None if asked is None else history.pop()
            done = np.zeros(0) if partial is None else partial.losses
            contexts = contexts_of(z[len(done) :][: settings.limit - ledger.candidates])  # (b, m, D)
            losses, valid = bench.judge(contexts)  # (b,)
            chosen = best.offer(contexts, losses, valid, offset=len(done))
            losses = np.concatenate([done, losses])
            ledger.candidates += len(contexts)
            whole = len(losses) == len(z)
            if whole:
                search.tell(z, losses)
                ledger.generations += 1
            generation = Generation(
                number=ledger.generations + (not whole),
                losses=losses,
                candidates=ledger.candidates,
                chosen=partial.chosen if chosen is None and partial is not None else chosen,
                valid=best.scores,
                partial=not whole,
                ledger=ledger.as_dict(),
                seconds=time.perf_counter() - started,
            )
            history.append(generation)
            if run is not None:
                run.append(generation)
                if isinstance(search, Stateful):
                    run.write_state(search.state() | best.state())
            if watch is not None:
                watch(generation, settings)
            asked = None
            if settings.stop_when_stalled and isinstance(search, BlockSearch) and search.stalled():
                break
        return self._learned(task, bench, run, history, best)

    def _learned(self, task: Task, bench: Bench, run: Run | None, history: list[Generation], best: Best) -> PromptTuner:
        if best.contexts is None:
            raise RunError("the run has no candidate yet")
        self.model_ = task.model
        self.data_name_ = task.data.name
        self.settings_ = task.settings
        self.config_ = task.config()
        self.class_names_ = task.data.class_names
        self.forget_mask_ = task.forget
        self.contexts_ = best.contexts
        self.valid_ = best.scores or bench.validate(best.contexts)
        self.history_ = history
        self.ledger_ = bench.ledger
        self.skipped_ = task.split.skipped
        if run is not None:
            self.prompt.save(run.folder)
        return self


class Best:
    """The best candidate so far: by validation H, or by loss where there is nothing to validate on.

    The first of equals stays, as in the paper.
    """

    def __init__(self, by_loss: bool = False) -> None:
        self.scores: Scores | None = None
        self.contexts: Floats | None = None
        self.merit = -np.inf
        self._by_loss = by_loss

    def offer(self, contexts: Floats, losses: Doubles, valid: dict[int, Scores], offset: int = 0) -> int | None:
        """Which of these candidates, if any, is the new best. valid: scores of those validated."""
        found = None
        for i in range(len(contexts)) if self._by_loss else valid:
            merit = -float(losses[i]) if self._by_loss else valid[i].h
            if merit > self.merit:
                self.take(contexts[i], merit, valid.get(i))
                found = i + offset
        return found

    def take(self, contexts: Floats, merit: float, scores: Scores | None) -> None:
        self.contexts, self.merit, self.scores = contexts.copy(), merit, scores

    def recall(self, contexts: Floats, generation: Generation) -> None:
        """Takes what a recorded generation chose."""
        if generation.chosen is not None:
            h = None if generation.valid is None else generation.valid.h
            merit = -float(generation.losses[generation.chosen]) if h is None else h
            self.take(contexts, merit, generation.valid)

    def state(self) -> dict[str, Doubles]:
        """The best contexts, for searches that cannot be replayed."""
        return {} if self.contexts is None else {"best": self.contexts.astype(np.float64)}


class Bench:
    """The model bound to the images of a split: judges candidates and keeps the ledger."""

    def __init__(self, task: Task, spent: dict[str, int] | None = None) -> None:
        settings, data = task.settings, task.data
        self.ledger = Ledger(**(spent or {}))
        self._settings = settings
        self._forget = task.forget
        self._embeddings = _embeddings(task)
        self._unseen = unseen_classes(task.forget, settings.with_images)
        make_origin(settings, task.model)  # refuses what cannot fit before images are encoded
        rows = [rows[~self._unseen[data.train.labels[rows]]] for rows in (task.split.train, task.split.valid)]
        train, valid = (data.train.subset(part) for part in rows)
        self._train_labels, self._valid_labels = train.labels, valid.labels
        self._every = settings.validate == "every"
        if self._every:  # one question serves both losses and validation
            both = data.train.subset(np.concatenate(rows))
            self._train = self._valid = self._metered(task.model, both)
        else:
            self._train, self._valid = self._metered(task.model, train), self._metered(task.model, valid)
        self._train.check_room(settings.contexts)

    def judge(self, contexts: Floats) -> tuple[Doubles, dict[int, Scores]]:
        """Losses of all candidates, and validation scores of those that are to be validated."""
        log_p = self._train.log_confidences(contexts)
        n = len(self._train_labels)
        settings = self._settings
        losses = forgetting_loss(
            log_p[:, :n], self._train_labels, self._forget, settings.memorize_weight, settings.forget_weight
        )
        if self._embeddings is not None:
            losses += settings.embedding_weight * embedding_loss(
                self._embeddings.under(contexts), self._embeddings.before, self._unseen, ~self._forget, settings.tau
            )
        if not np.isfinite(losses).all():
            raise ModelError("the model's answers give a NaN or infinite loss")
        if self._every:
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


@dataclass(frozen=True, eq=False)
class Task:
    """Everything a run is a function of."""

    settings: Settings
    model: BlackBox
    data: Data
    forget: Mask
    split: Split

    @cached_property
    def parametrization(self) -> Parametrization:
        return make_parametrization(self.settings, self.model)

    def search(self) -> Search:
        """A fresh search over the blocks of the parametrization."""
        s, blocks = self.settings, self.parametrization.blocks
        dim, streams = sum(blocks), [stream(s.seed, "search", i) for i in range(len(blocks))]
        match s.search:
            case "random":
                return RandomSearch(dim, streams[0], population=s.population, sigma0=s.sigma0)
            case "differences":
                rate = s.rate * self.model.card.token_std
                return ForwardDifferences(dim, streams[0], population=s.population, rate=rate, steps=s.iterations)
            case "two-sided":
                return TwoSided(dim, streams[0], population=s.population, rate=s.rate, steps=s.iterations)
            case "gradient":
                rate = s.rate * self.model.card.token_std
                return GradientDescent(dim, self._slope(), rate=rate, steps=s.iterations)
            case kind:
                return BlockSearch(blocks, streams, kind=kind, population=s.population, sigma0=s.sigma0, rank=s.rank)

    def _slope(self) -> Slope:
        """The true gradient with respect to z, of the contexts' entries themselves."""
        s = self.settings
        if s.parametrization != "vanilla":
            raise InputError("search=gradient moves the contexts themselves: use it with parametrization=vanilla")
        origin = make_origin(s, self.model)
        slope = LossSlope(
            open_box(self.model, s.method, "gradients"),
            self.data.train.subset(self.split.train),
            self.forget,
            (s.memorize_weight, s.forget_weight),
            (origin.shape[0], origin.shape[1]),
        )
        return lambda z: slope(z + origin.ravel())

    def replay(self, history: list[Generation], state: dict[str, Doubles]) -> tuple[Search, Best, Doubles | None]:
        """The search and the best candidate as they stood after this history, without asking the model.

        If the budget ended inside the last generation, also its candidates, asked for but not told.
        """
        search, best, asked = self.search(), Best(self.settings.validate == "loss"), None
        if isinstance(search, Stateful):
            if history:
                search.restore({name: array for name, array in state.items() if name != "best"})
                best.take(
                    state["best"].astype(np.float32),
                    history[-1].valid.h if history[-1].valid else -np.inf,
                    history[-1].valid,
                )
            return search, best, None
        for generation in history:
            z = search.ask()
            if generation.chosen is not None:
                best.recall(self.parametrization.contexts(z[generation.chosen][None])[0], generation)
            if generation.partial:
                asked = z
            else:
                search.tell(z, generation.losses)
        return search, best, asked

    def config(self) -> dict[str, Any]:
        """What `config.json` holds."""
        split = {"train": self.split.train.tolist(), "valid": self.split.valid.tolist()}
        used = self.data.train.subset(np.concatenate([self.split.train, self.split.valid]))
        return {
            "unsee": provenance.version(),
            "settings": self.settings.as_dict(),
            "forget": [n for n, gone in zip(self.data.class_names, self.forget, strict=True) if gone],
            "class_names": list(self.data.class_names),
            "model": {"name": self.model.card.name, "fingerprint": self.model.card.fingerprint},
            "data": {
                "name": self.data.name,
                "fingerprint": self.data.fingerprint,
                "split_fingerprint": used.content_digest(),
            },
            "split": split,
            "skipped_images": [error.name for error in self.split.skipped],
            "versions": provenance.versions(),
        }

    def check_same(self, run: Run) -> None:
        """Refuses to go on with another model, other data or other settings than the run began with."""
        now, then = self.config(), run.config
        for part, key in (("model", "fingerprint"), ("data", "fingerprint"), ("data", "split_fingerprint")):
            try:
                known = then[part][key]
            except (KeyError, TypeError):
                raise RunError(f"{run.folder}/config.json: {part}.{key} is missing") from None
            if now[part][key] != known:
                raise RunError(
                    f"{run.folder} was begun with another {part}: {then[part].get('name')!r} was {known[:12]}, "
                    f"now it is {now[part][key][:12]}"
                )


def make_parametrization(settings: Settings, model: BlackBox) -> Parametrization:
    """The contexts' parametrization, its projection drawn from the run's seed."""
    origin = make_origin(settings, model)
    rng = stream(settings.seed, "projection")

    def projection(dim: int) -> Floats:
        return draw_projection(rng, dim, model.card, settings.projection)

    match settings.parametrization:
        case "shared":
            return SharedContexts(origin, projection(settings.shared + settings.own), settings.shared)
        case "bbt":
            return BbtContexts(origin, projection(settings.dim))
        case "independent":
            return IndependentContexts(origin, projection(settings.dim))
        case "vanilla":
            return VanillaContexts(origin)
        case "low-rank":
            dim, factors = settings.dim, stream(settings.seed, "factors")
            rank = min(LOW_RANK, dim, len(origin))
            left = factors.standard_normal((len(origin), rank)) / np.sqrt(rank)
            return LowRankContexts(origin, projection(dim), left, factors.standard_normal((rank, dim)))
        case other:
            raise InputError(f"unknown parametrization {other!r}; it is shared, bbt, independent, vanilla or low-rank")


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


def make_origin(settings: Settings, model: BlackBox) -> Floats:
    """What lies under the contexts: the mean token embedding, or the tokens of a phrase. -> (m, D)."""
    card: Card = model.card
    if settings.contexts > card.token_limit - 2:
        raise InputError(
            f"{settings.contexts} contexts are more than the model's {card.token_limit} tokens allow "
            f"({card.token_limit - 2} beside start and end)"
        )
    if settings.origin == "mean":
        return mean_origin(card, settings.contexts)
    if not isinstance(model, LooksUpTokens):
        raise InputError(f"this model does not publish the token embeddings of {settings.origin!r}; use origin=mean")
    return phrase_origin(card, settings.contexts, model.embed(settings.origin), settings.origin)


def _number(x: float) -> float | None:
    return None if np.isnan(x) else float(x)
