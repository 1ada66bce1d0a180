"""`PromptTuner` is used like a scikit-learn estimator: the constructor stores settings, `fit` works, what it
learned ends in an underscore. With `out=` the run is a folder that survives a kill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from unsee.answers.evaluation import Evaluation
from unsee.answers.metrics import top_classes
from unsee.data.class_folders import refuse_inside
from unsee.data.class_names import read_names
from unsee.data.data_set import Data
from unsee.data.images import Anything, Images, as_images
from unsee.errors import ImageError, InputError, NotFittedError, RunError
from unsee.methods.fitted import Fitted, TunedContexts
from unsee.methods.presets import default_method
from unsee.methods.recorder import Watch
from unsee.methods.registry import METHODS
from unsee.methods.task import Task, make_task
from unsee.models.black_box import BlackBox, BoundImages, bind
from unsee.runs.callbacks import Callback
from unsee.runs.checkpoint import read_state, state_generation
from unsee.runs.folder import RunFolder, is_finished, read_result
from unsee.runs.given import given_data, given_folder, given_model
from unsee.runs.prompt import Prompt
from unsee.runs.records import ConfigRecord, ResultRecord
from unsee.runs.tuning import TunedRun, complete, continue_run, keep_fitted, start_run
from unsee.settings import EXTENDABLE, GivenSettings, Settings, Value, check_names
from unsee.text_table import harmless
from unsee.types import Floats, Generation, Ledger, Mask, Say, Scores

if TYPE_CHECKING:
    from unsee.runs.plots import RunFigure

_OWN = {"method": None, "preset": "tuned", "seed": 0, "verbose": False}  # parameters that are no settings


class PromptTuner:
    """Makes a model no longer recognise the classes in `forget`, and keep recognising the rest.

    `method` is the paper's or one of its rivals; all have this interface. Any setting of `unsee.Settings` may be given
    by name; the others come from the preset's sizes for the model and data set.
    """

    run_: TunedRun
    fitted_: Fitted
    model_: BlackBox
    data_: Data
    settings_: Settings
    config_: ConfigRecord
    class_names_: tuple[str, ...]
    forget_mask_: Mask  # (C,)
    skipped_: Sequence[ImageError]  # images that could not be read
    valid_: Scores
    history_: list[Generation]
    ledger_: Ledger
    warnings_: list[str]
    folder_: Path | None  # where the run is kept

    def __init__(
        self,
        forget: str | Sequence[str],
        method: str | None = None,
        *,
        preset: str = "tuned",
        seed: int = 0,
        verbose: bool = False,
        **settings: Unpack[GivenSettings],
    ) -> None:
        read_names(forget)  # to refuse nonsense at once; it is kept as given, as scikit-learn's `clone` wants it
        self.forget = forget
        self.method = method
        self.preset = preset
        self.seed = seed
        self.verbose = verbose
        self.settings: dict[str, Value] = cast(dict[str, Value], settings)

    @classmethod
    def from_config(cls, config: ConfigRecord) -> PromptTuner:
        """The tuner whose run has this config."""
        settings = config.settings.as_dict()
        method, preset, seed = (settings.pop(key) for key in ("method", "preset", "seed"))
        given = cast(GivenSettings, settings)
        return cls(config.forget, str(method), preset=str(preset), seed=int(seed or 0), **given)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Everything that the constructor was given, by name, as scikit-learn has it."""
        return {"forget": self.forget, **{name: getattr(self, name) for name in _OWN}, **self.settings}

    def set_params(self, **params: Any) -> PromptTuner:
        """The tuner itself, with these parameters in place of its own."""
        own = {name: value for name, value in params.items() if name == "forget" or name in _OWN}
        settings = {name: value for name, value in params.items() if name not in own}
        check_names(settings)
        read_names(own.get("forget", self.forget))
        for name, value in own.items():
            setattr(self, name, value)
        self.settings = {**self.settings, **settings}
        return self

    def __repr__(self) -> str:
        given = [repr(self.forget), *([repr(self.method)] if self.method != _OWN["method"] else [])]
        named = {name: getattr(self, name) for name in ("preset", "seed", "verbose")}
        given += [f"{name}={value!r}" for name, value in named.items() if value != _OWN[name]]
        return f"PromptTuner({', '.join([*given, *(f'{name}={value!r}' for name, value in self.settings.items())])})"

    def fit(
        self,
        model: BlackBox | str | Path,
        data: Data | str | Path,
        *,
        out: str | Path | None = None,
        test: Images | BoundImages | None = None,
        overwrite: bool = False,
        watch: Watch | None = None,
        callbacks: Sequence[Callback] = (),
        say: Say | None = None,
        verbose: bool | None = None,
    ) -> PromptTuner:
        """Tunes; with `out`, as a run folder that can be resumed, and with `test`, completed by its scores.

        model and data are what `load_model` and `load_data` return, or names that they take. watch is called after
        every generation, callbacks (see `unsee.Callback`) also at the start and the end, say with sentences such as
        warnings. verbose shows progress and sentences on stderr: a bar on a terminal, lines elsewhere.
        """
        folder = None if out is None else given_folder(out)
        task = self.task(given_model(model), self._readable(given_data(data, self.seed)))
        with self._shown(verbose, watch, say) as (watch, say):
            run = start_run(task, folder, test, overwrite=overwrite, watch=watch, callbacks=callbacks, say=say)
            return self._take(run)

    def resume(
        self,
        model: BlackBox | str | Path,
        data: Data | str | Path,
        out: str | Path,
        *,
        test: Images | BoundImages | None = None,
        watch: Watch | None = None,
        callbacks: Sequence[Callback] = (),
        say: Say | None = None,
        verbose: bool | None = None,
        **longer: int | None,
    ) -> PromptTuner:
        """Continues a run folder exactly where it stopped; `longer` may raise its budget or iterations."""
        check_names(longer)
        for name in longer:
            if name not in EXTENDABLE:
                raise InputError(f"a run is resumed with other {' or '.join(EXTENDABLE)} only, not {name}")

        loaded, images = given_model(model), self._readable(given_data(data, self.seed))

        def make(config: ConfigRecord) -> Task:
            self.method = config.settings.method if self.method is None else self.method
            lengths: dict[str, Value] = {name: getattr(config.settings, name) for name in EXTENDABLE}
            given = {name: value for name, value in (self.settings | longer).items() if value is not None}
            self.settings = {**self.settings, **lengths, **{k: v for k, v in given.items() if k in EXTENDABLE}}
            return self.task(loaded, images)

        with self._shown(verbose, watch, say) as (watch, say):
            run = continue_run(given_folder(out), make, test, watch=watch, callbacks=callbacks, say=say)
            return self._take(run)

    def predict(self, images: Anything) -> list[str]:
        """The class each image is now taken for, as a caller sees it: after the prompt's rule, if it has one."""
        return [self.class_names_[i] for i in top_classes(self.predict_proba(images))]

    def predict_proba(self, images: Anything) -> Floats:
        """Confidences as a caller sees them, after the prompt's rule. -> (n, C), columns in the order of class_names_.

        Rows sum to 1.
        """
        fitted = self.fitted_
        found = fitted.confidences(bind(self.model_, as_images(images), self.class_names_))
        return fitted.served(found) if isinstance(fitted, TunedContexts) else found

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

    @property
    def front_(self) -> Any:
        """Other trade-offs that the run has paid for: a pandas DataFrame if pandas is there, else a list of records."""
        return self.run_.front

    def plot(self) -> RunFigure:
        """A matplotlib figure: loss and validation H by generation, and the trade-offs of `front_`."""
        from unsee.runs.plots import plot_run  # imports matplotlib

        return plot_run(self.history_, self.run_.recorder.front)

    def save(self, out: str | Path, *, test: Images | BoundImages | bool = True, overwrite: bool = False) -> None:
        """Writes the whole run as a folder, after the fact, complete for `unsee report` and `unsee audit`.

        test: images to score for its result. True: the data's own, which asks the model about each of them once
        without and once with the prompt; False: none, and the folder is not finished until `finish`. What a descent or
        a trainer continues from is copied from the folder that it was tuned in, if there is one.
        """
        refuse_inside(self.data_, given_folder(out))
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
            if test is not False:
                complete(self.run_, run, self.data_.test if test is True else test)
        self.folder_ = Path(out).absolute()

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
        settings = {name: _plain(value) for name, value in self.settings.items()}
        method = default_method(self.preset, settings, len(data.class_names)) if self.method is None else self.method
        for what, name in (("method", method), ("preset", self.preset)):
            if not isinstance(name, str):
                raise InputError(f"{what} is a name, not {name!r}")
        return make_task(model, data, read_names(self.forget), method, self.preset, _plain(self.seed), settings)

    def _readable(self, data: Data) -> Data:
        """The data without test images that cannot be read, if asked for; the split leaves out those to tune on."""
        return replace(data, test=data.test.readable()[0]) if self.settings.get("skip_bad_images") else data

    @property
    def _follows_slope(self) -> bool:
        """Whether what continues this run is a saved state, not a replay."""
        return self.settings_.search == "gradient" and not METHODS[self.settings_.method].untuned

    @contextmanager
    def _shown(
        self, verbose: bool | None, watch: Watch | None, say: Say | None
    ) -> Iterator[tuple[Watch | None, Say | None]]:
        """Who is told of the progress: those given, and stderr if this is verbose."""
        if watch is not None and not callable(watch):
            raise InputError(f"watch is a function, not {watch!r}")
        if not (self.verbose if verbose is None else verbose):
            yield watch, say
            return
        from unsee.runs.progress import plain_console, show_progress  # imports rich

        console = plain_console()
        with show_progress(console) as show:

            def both(generation: Generation, settings: Settings) -> None:
                show(generation, settings)
                if watch is not None:
                    watch(generation, settings)

            yield both, say or (lambda text: console.print(harmless(text), soft_wrap=True))

    if not TYPE_CHECKING:  # so that mypy still knows which attributes there are

        def __getattr__(self, name: str) -> object:
            if name in type(self).__annotations__ or name in vars(type(self)):
                raise NotFittedError("this PromptTuner is not fitted yet; call fit(model, data) first")
            raise AttributeError(f"'PromptTuner' object has no attribute {name!r}")

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
        self.folder_ = found.folder
        return self


def _plain(value: Any) -> Any:
    """A number of numpy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
