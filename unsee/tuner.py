"""`PromptTuner` is used like a scikit-learn estimator: the constructor stores settings, `fit` works, what it
learned ends in an underscore. With `out=` the run is a folder that survives a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unsee.answers.evaluation import Evaluation
from unsee.answers.metrics import top_classes
from unsee.data.class_folders import refuse_inside
from unsee.data.class_names import read_names
from unsee.data.data_set import Data
from unsee.data.images import Anything, Images, as_images
from unsee.errors import InputError, RunError
from unsee.methods.fitted import TunedContexts
from unsee.methods.recorder import Say, Watch
from unsee.methods.registry import METHODS
from unsee.methods.task import Task, make_task
from unsee.models.black_box import BlackBox, BoundImages, bind
from unsee.runs.checkpoint import read_state, state_generation
from unsee.runs.folder import RunFolder, is_finished, read_result
from unsee.runs.prompt import Prompt
from unsee.runs.records import ConfigRecord, ResultRecord
from unsee.runs.tuning import TunedRun, complete, continue_run, keep_fitted, start_run, tune
from unsee.settings import EXTENDABLE, Value, check_names
from unsee.types import Floats, Scores


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
        test: BoundImages | None = None,
        overwrite: bool = False,
        watch: Watch | None = None,
        say: Say | None = None,
    ) -> PromptTuner:
        """Tunes; with `out`, as a run folder that can be resumed, and with `test`, completed by its scores.

        watch is called after every generation, say with sentences such as warnings.
        """
        task = self.task(model, data)
        if out is None:
            return self._take(tune(task, None, watch, say))
        return self._take(start_run(task, Path(out), test, overwrite=overwrite, watch=watch, say=say))

    def resume(
        self,
        model: BlackBox,
        data: Data,
        out: str | Path,
        *,
        test: BoundImages | None = None,
        watch: Watch | None = None,
        say: Say | None = None,
        **longer: int | None,
    ) -> PromptTuner:
        """Continues a run folder exactly where it stopped; `longer` may raise its budget or iterations."""
        check_names(longer)
        for name in longer:
            if name not in EXTENDABLE:
                raise InputError(f"a run is resumed with other {' or '.join(EXTENDABLE)} only, not {name}")

        def make(config: ConfigRecord) -> Task:
            lengths: dict[str, Value] = {name: getattr(config.settings, name) for name in EXTENDABLE}
            given = {name: value for name, value in (self.settings | longer).items() if value is not None}
            self.settings = {**self.settings, **lengths, **{k: v for k, v in given.items() if k in EXTENDABLE}}
            return self.task(model, data)

        return self._take(continue_run(Path(out), make, test, watch=watch, say=say))

    def predict(self, images: Anything) -> list[str]:
        """The class each image is now taken for, as a caller sees it: after the prompt's rule, if it has one."""
        found = self.fitted_.confidences(bind(self.model_, as_images(images), self.class_names_))
        seen = self.fitted_.served(found) if isinstance(self.fitted_, TunedContexts) else found
        return [self.class_names_[i] for i in top_classes(seen)]

    def score(self, images: Images | BoundImages) -> Scores:
        """H, Err_for and Acc_mem on labelled images, of what was tuned: before any rule for answers."""
        return self.run_.score(images)

    def evaluate(self, images: Images | BoundImages) -> Evaluation:
        """Scores on labelled images, beside zero-shot and label mask, and as served."""
        return self.run_.evaluate(images)

    @property
    def prompt(self) -> Prompt:
        """The artefact to deploy."""
        return self.run_.prompt

    @property
    def contexts_(self) -> Floats:
        """The tuned contexts (m, D)."""
        return self.prompt.contexts

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Writes the whole run as a folder, after the fact.

        What a descent or a trainer continues from is copied from the folder that it was tuned in, if there is one.
        """
        refuse_inside(self.data_, Path(out))
        source = self.run_.folder if self._follows_slope else None
        if source is not None and state_generation(source) != len(self.history_):
            raise RunError(f"{source} has changed since: where this run ended is no longer known, so it is not saved")
        if source is not None and Path(out).resolve() == source.resolve():
            raise RunError(f"{out} is where this run was tuned: it is saved there already")
        with RunFolder.create(out, self.config_, overwrite) as run:
            for generation in self.history_:
                run.append(generation)
            if source is not None:
                run.write_state(read_state(source)[1])
            elif self.run_.recorder.state:
                run.write_state(self.run_.recorder.state)
            keep_fitted(self.run_, run)

    def finish(self, out: str | Path, test: Images | BoundImages) -> ResultRecord:
        """Scores the test images and completes a run folder that was made without them: answers, picture, result."""
        if is_finished(out):
            return read_result(out)
        with RunFolder.open(out, wait=60) as run:
            return complete(self.run_, run, test)

    def result(self, found: Evaluation, train: Scores, seconds: float = 0.0) -> ResultRecord:
        """What `result.json` holds."""
        return self.run_.result(found, train, seconds)

    def task(self, model: BlackBox, data: Data) -> Task:
        """What `fit` will run on this model and data."""
        return make_task(model, data, self.forget, self.method, self.preset, self.seed, self.settings)

    @property
    def _follows_slope(self) -> bool:
        """Whether what continues this run is a saved state, not a replay."""
        return self.settings_.search == "gradient" and not METHODS[self.method].untuned

    def _take(self, found: TunedRun) -> PromptTuner:
        task, recorder = found.task, found.recorder
        self.run_ = found
        self.fitted_ = found.fitted
        self.model_, self.data_, self.settings_ = task.model, task.data, task.settings
        self.config_ = found.config
        self.class_names_, self.forget_mask_ = task.data.class_names, task.forget
        self.skipped_ = task.split.skipped
        self.valid_, self.history_, self.ledger_ = found.valid, recorder.history, recorder.ledger
        self.warnings_ = recorder.warnings
        return self
