"""`PromptTuner` is used like a scikit-learn estimator: the constructor stores settings, `fit` works, what it
learned ends in an underscore. With `out=` the run is a folder that survives a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unsee.baselines import METHOD_OF
from unsee.errors import InputError
from unsee.evaluation import Evaluation, from_confidences, result_record
from unsee.images import Anything, Images, as_images
from unsee.learned import Learned, Watch
from unsee.loop import TunedPrompt, tune_prompt
from unsee.models import BlackBox, Bound
from unsee.prompts import Prompt, plain_names
from unsee.records import Data, Floats, Scores
from unsee.runs import Run
from unsee.scores import answers
from unsee.task import Task, make_task


class PromptTuner:
    """Makes a model no longer recognise the classes in `forget`, and still the rest.

    `method` is the paper's, or one of its rivals: all have this face. Any setting of `unsee.Settings` may be given
    by name; what is not comes from the preset's entry for the data set.
    """

    def __init__(
        self, forget: str | Sequence[str], method: str = "lcs", *, preset: str = "tuned", seed: int = 0, **settings: Any
    ) -> None:
        self.forget = plain_names(forget)
        self.method = method
        self.preset = preset
        self.seed = seed
        self.settings = settings

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PromptTuner:
        """The tuner whose run has this config."""
        settings = dict(config["settings"])
        method, preset, seed = (settings.pop(key) for key in ("method", "preset", "seed"))
        return cls(config["forget"], method, preset=preset, seed=seed, **settings)

    def fit(
        self,
        model: BlackBox,
        data: Data,
        *,
        out: str | Path | None = None,
        overwrite: bool = False,
        watch: Watch | None = None,
    ) -> PromptTuner:
        """Tunes; with `out`, as a run folder that can be resumed."""
        task = self._task(model, data)
        if out is None:
            return self._learn(task, None, watch)
        with Run.create(out, task.config(), overwrite) as run:
            return self._learn(task, run, watch)

    def resume(
        self, model: BlackBox, data: Data, out: str | Path, *, watch: Watch | None = None, **longer: int | None
    ) -> PromptTuner:
        """Goes on with a run folder exactly where it stopped; `longer` may raise its budget or iterations."""
        with Run.open(out) as run:
            self.settings = self.settings | {name: value for name, value in longer.items() if value is not None}
            task = self._task(model, data)
            task.check_same(run)
            run.write_config(task.config())
            return self._learn(task, run, watch)

    def predict(self, images: Anything) -> list[str]:
        """The class each image is now taken for."""
        return [self.class_names_[i] for i in answers(self.learned_.confidences(as_images(images)))]

    def score(self, images: Images) -> Scores:
        """H, Err_for and Acc_mem on labelled images."""
        return self.evaluate(images).tuned

    def evaluate(self, images: Images, bound: Bound | None = None) -> Evaluation:
        """Labelled images, beside zero-shot and label mask; `bound` if the model is bound to them already."""
        bound = bound or self.model_.bind(images, self.class_names_)
        plain, tuned = bound.zero_shot(self.settings_.template), self.learned_.confidences(images, bound)
        return from_confidences(plain, tuned, images.labels, self.forget_mask_)

    @property
    def prompt(self) -> Prompt:
        """The artefact to deploy."""
        if not isinstance(self.learned_, TunedPrompt):
            raise InputError(f"method {self.method!r} tunes no prompt")
        return self.learned_.prompt

    @property
    def contexts_(self) -> Floats:
        """The tuned contexts (m, D)."""
        return self.prompt.contexts

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Writes the whole run as a folder, after the fact."""
        with Run.create(out, self.config_, overwrite) as run:
            for generation in self.history_:
                run.append(generation)
        self.learned_.save(Path(out))

    def result(self, evaluation: Evaluation, seconds: dict[str, float]) -> dict[str, Any]:
        """What `result.json` holds."""
        return result_record(self.made_, evaluation, seconds)

    def _task(self, model: BlackBox, data: Data) -> Task:
        return make_task(model, data, self.forget, self.method, self.preset, self.seed, self.settings)

    def _learn(self, task: Task, run: Run | None, watch: Watch | None) -> PromptTuner:
        learned: Learned = METHOD_OF.get(self.method, tune_prompt)(task, run, watch)
        self.learned_ = learned
        self.model_ = task.model
        self.settings_ = task.settings
        self.config_ = task.config()
        self.class_names_ = task.data.class_names
        self.forget_mask_ = task.forget
        self.skipped_ = task.split.skipped
        self.valid_, self.history_, self.ledger_ = learned.valid, learned.history, learned.ledger
        self.made_ = task.made(learned.valid, learned.ledger)
        return self
