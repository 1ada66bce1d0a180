"""`PromptTuner` is used like a scikit-learn estimator: the constructor stores settings, `fit` works, what it
learned ends in an underscore. With `out=` the run is a folder that survives a kill.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unsee import methods
from unsee.answers.evaluation import Evaluation, evaluate
from unsee.answers.metrics import scores, top_classes
from unsee.data.class_folders import refuse_inside
from unsee.data.class_names import read_names
from unsee.data.data_set import Data
from unsee.data.images import Anything, Images, as_images
from unsee.errors import InputError, RunError
from unsee.files import write_with
from unsee.methods.recorder import Recorder, Say, Watch
from unsee.methods.registry import METHODS
from unsee.methods.task import Task, TunedContexts, make_task
from unsee.models.black_box import BlackBox, BoundImages, bind
from unsee.runs.checkpoint import read_state, state_generation
from unsee.runs.folder import PICTURE, RunFolder, is_finished, read_result
from unsee.runs.identity import describe_run, identify
from unsee.runs.prompt import Prompt, load_prompt
from unsee.runs.records import ConfigRecord, ResultRecord
from unsee.settings import EXTENDABLE, check_names
from unsee.types import Floats, Scores
from unsee.versions import changes


class PromptTuner:
    """Makes a model no longer recognise the classes in `forget`, and keep recognising the rest.

    `method` is the paper's or one of its rivals; all have this interface. Any setting of `unsee.Settings` may be given
    by name; the others come from the preset's sizes for the model and data set.
    """

    def __init__(
        self, forget: str | Sequence[str], method: str = "lcs", *, preset: str = "tuned", seed: int = 0, **settings: Any
    ) -> None:
        self.forget = read_names(forget)
        self.method = method
        self.preset = preset
        self.seed = seed
        self.settings = settings

    @classmethod
    def from_config(cls, config: ConfigRecord) -> PromptTuner:
        """The tuner whose run has this config."""
        settings = config.settings.as_dict()
        method, preset, seed = (settings.pop(key) for key in ("method", "preset", "seed"))
        return cls(config.forget, str(method), preset=str(preset), seed=int(seed or 0), **settings)

    def fit(
        self,
        model: BlackBox,
        data: Data,
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        watch: Watch | None = None,
        say: Say | None = None,
    ) -> PromptTuner:
        """Tunes; with `out`, as a run folder that can be resumed.

        watch is called after every generation, say with sentences such as warnings.
        """
        if out is not None:
            refuse_inside(data, Path(out))
        task = self.task(model, data)
        config = describe_run(task)
        if out is None:
            return self._learn(task, config, None, watch, say)
        with RunFolder.create(out, config, overwrite) as run:
            return self._learn(task, config, run, watch, say)

    def resume(
        self,
        model: BlackBox,
        data: Data,
        out: str | Path,
        *,
        watch: Watch | None = None,
        say: Say | None = None,
        **longer: int | None,
    ) -> PromptTuner:
        """Continues a run folder exactly where it stopped; `longer` may raise its budget or iterations."""
        check_names(longer)
        for name in longer:
            if name not in EXTENDABLE:
                raise InputError(f"a run is resumed with other {' or '.join(EXTENDABLE)} only, not {name}")
        with RunFolder.open(out) as run:
            then = run.config.settings
            lengths = {name: getattr(then, name) for name in EXTENDABLE}
            given = {name: value for name, value in (self.settings | longer).items() if value is not None}
            self.settings = {**self.settings, **lengths, **{k: v for k, v in given.items() if k in EXTENDABLE}}
            task = self.task(model, data)
            config = describe_run(task)
            _check_same(run, config)
            changed = changes(run.config.versions)
            run.continue_as(config)
            return self._learn(task, config, run, watch, say, changed)

    def predict(self, images: Anything) -> list[str]:
        """The class each image is now taken for, as a caller sees it: after the prompt's rule, if it has one."""
        found = self.fitted_.confidences(bind(self.model_, as_images(images), self.class_names_))
        seen = self.fitted_.served(found) if isinstance(self.fitted_, TunedContexts) else found
        return [self.class_names_[i] for i in top_classes(seen)]

    def score(self, images: Images | BoundImages) -> Scores:
        """H, Err_for and Acc_mem on labelled images, of what was tuned: before any rule for answers."""
        bound = self._bound(images)
        return scores(top_classes(self.fitted_.confidences(bound)), bound.labels, self.forget_mask_)

    def evaluate(self, images: Images | BoundImages) -> Evaluation:
        """Scores on labelled images, beside zero-shot and label mask, and as served."""
        bound = self._bound(images)
        plain = bound.zero_shot(self.settings_.template)
        rule = self.fitted_.rule if isinstance(self.fitted_, TunedContexts) else "as-is"
        return evaluate(plain, self.fitted_.confidences(bound), bound.labels, self.forget_mask_, rule)

    @property
    def prompt(self) -> Prompt:
        """The artefact to deploy."""
        if not isinstance(self.fitted_, TunedContexts):
            raise InputError(f"method {self.method!r} tunes no prompt")
        card, config = self.model_.card, self.config_
        return Prompt(
            self.fitted_.contexts,
            self.class_names_,
            config.forget,
            card.name,
            card.fingerprint,
            self.settings_.template,
            self.fitted_.applies_to,
            self.fitted_.rule,
            self.fitted_.position,
        )

    @property
    def contexts_(self) -> Floats:
        """The tuned contexts (m, D)."""
        return self.prompt.contexts

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Writes the whole run as a folder, after the fact.

        What a descent or a trainer continues from is copied from the folder that it was tuned in, if there is one.
        """
        refuse_inside(self.data_, Path(out))
        source = self._folder if self._follows_slope else None
        if source is not None and state_generation(source) != len(self.history_):
            raise RunError(f"{source} has changed since: where this run ended is no longer known, so it is not saved")
        if source is not None and Path(out).resolve() == source.resolve():
            raise RunError(f"{out} is where this run was tuned: it is saved there already")
        with RunFolder.create(out, self.config_, overwrite) as run:
            for generation in self.history_:
                run.append(generation)
            if source is not None:
                run.write_state(read_state(source)[1])
            elif self._recorder.state:
                run.write_state(self._recorder.state)
            self._save_fitted(run)

    def finish(self, out: str | Path, test: BoundImages, shots: Images) -> ResultRecord:
        """Scores the test images and completes the run folder: answers, picture, result.

        The result is written last: a folder that has one is whole. It is then read, and nothing is asked again: a
        further generation would have deleted it.
        """
        from unsee.answers.picture import before_after

        if is_finished(out):
            return read_result(out)
        started = time.perf_counter()
        test = self._bound(test)
        found = self.evaluate(test)
        result = self.result(found, self.score(shots), time.perf_counter() - started)
        with RunFolder.open(out, wait=60) as run:
            run.write_answers(found.arrays() | {"labels": test.labels})
            picture = before_after(test.images, found, self.forget_mask_)
            write_with(run.folder / PICTURE, lambda path: picture.save(path, format="PNG"))
            run.write_result(result)
        return result

    def result(self, found: Evaluation, train: Scores, seconds: float = 0.0) -> ResultRecord:
        """What `result.json` holds."""
        s, config = self.settings_, self.config_
        return ResultRecord(
            method=s.method,
            preset=s.preset,
            seed=s.seed,
            model=config.model.name,
            data=config.data.name,
            forget=config.forget,
            zero_shot=found.zero_shot,
            valid=self.valid_,
            test=found.tuned,
            served=found.served,
            label_mask=found.label_mask,
            per_class=found.per_class(self.class_names_),
            entropy_forgotten=found.entropy_forgotten,
            access=METHODS[s.method].sees,
            ledger=self.ledger_,
            seconds={"tuning": round(self._recorder.seconds, 3), "evaluation": round(seconds, 3)},
            train=train,
            warnings=tuple(self.warnings_),
        )

    def task(self, model: BlackBox, data: Data) -> Task:
        """What `fit` will run on this model and data."""
        return make_task(model, data, self.forget, self.method, self.preset, self.seed, self.settings)

    @property
    def _follows_slope(self) -> bool:
        """Whether what continues this run is a saved state, not a replay."""
        return self.settings_.search == "gradient" and not METHODS[self.method].untuned

    def _bound(self, images: Images | BoundImages) -> BoundImages:
        """Labelled images bound to the model, their labels and the answers in the order of the run's classes."""
        given = images.images if isinstance(images, BoundImages) else images
        ordered = given.in_classes(self.class_names_)
        if isinstance(images, BoundImages) and ordered is given and images.class_names == self.class_names_:
            return images
        return bind(self.model_, ordered, self.class_names_)

    def _learn(
        self,
        task: Task,
        config: ConfigRecord,
        run: RunFolder | None,
        watch: Watch | None,
        say: Say | None,
        changed: str = "",
    ) -> PromptTuner:
        recorder = Recorder(task.settings, run, watch, say, changed)
        prompt = None if run is None or not recorder.done else _finished_prompt(run.folder)
        if run is None or prompt is None:
            self.fitted_ = methods.fit(task, recorder)
        else:
            self.fitted_ = _recall(prompt, read_result(run.folder), task, recorder)
        self._recorder = recorder
        self._folder = None if run is None else run.folder.absolute()
        self.model_, self.data_ = task.model, task.data
        self.settings_ = task.settings
        self.config_ = config
        self.class_names_ = task.data.class_names
        self.forget_mask_ = task.forget
        self.skipped_ = task.split.skipped
        if recorder.best.scores is None:
            raise RunError("the run has no validation scores")
        self.valid_, self.history_, self.ledger_ = recorder.best.scores, recorder.history, recorder.ledger
        self.warnings_ = recorder.warnings
        if run is not None:
            self._save_fitted(run)
        return self

    def _save_fitted(self, run: RunFolder) -> None:
        if _finished_prompt(run.folder) is not None:
            return  # of this very history: a further generation would have deleted the result
        if isinstance(self.fitted_, TunedContexts):
            self.prompt.save(run.folder)
        elif self.settings_.save_weights and METHODS[self.method].sees in ("weights", "nothing"):
            from unsee.methods.training import TrainedWeights

            if isinstance(self.fitted_, TrainedWeights):
                run.write_weights(self.fitted_.arrays())


def _finished_prompt(folder: Path) -> Prompt | None:
    """The prompt of a finished run; None if it is not finished, or its prompt is not whole."""
    if not is_finished(folder):
        return None
    try:
        return load_prompt(folder)
    except RunError:
        return None


def _recall(prompt: Prompt, result: ResultRecord, task: Task, recorder: Recorder) -> TunedContexts:
    """What a finished run found, as it is stored: nothing is replayed, and the model is asked nothing."""
    recorder.start()
    recorder.best.kept, recorder.best.scores = prompt.contexts, result.valid
    recorder.ledger, recorder.warnings = result.ledger, list(result.warnings)
    return TunedContexts(
        prompt.contexts, prompt.applies_to, prompt.template, task.forget, prompt.serve, prompt.position
    )


def _check_same(run: RunFolder, now: ConfigRecord) -> None:
    """Refuses to continue a run as another one: its losses would be replayed through a search that never saw them."""
    different = identify(run.config).difference(identify(now))
    if different is not None:
        raise RunError(f"{run.folder} cannot be resumed as another run: {different}")
    done = run.history[-1] if run.history else None
    if done is not None and (
        now.settings.iterations < done.number - done.partial or now.settings.limit < done.candidates
    ):
        raise RunError(
            f"{run.folder} has tried {done.candidates} candidates in {done.number} generations already; "
            "it cannot be resumed with less"
        )
    method, then, planned = now.settings.method, run.config.settings.iterations, now.settings.iterations
    if METHODS[method].planned_steps and planned != then and run.history:
        raise RunError(
            f"{run.folder}: {method} plans its step sizes over all of its {then} iterations, so it cannot be continued "
            f"to {planned}; start a new run with --iterations {planned}"
        )
