"""One run, from its task to its result: tune, score the test images, complete the run folder.

With a folder, all of it happens while the folder is open and locked, so nobody can come between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unsee import methods
from unsee.answers.evaluation import Evaluation, evaluate
from unsee.answers.metrics import scores, top_classes
from unsee.data.class_folders import refuse_inside
from unsee.data.images import Images
from unsee.errors import InputError, RunError
from unsee.files import write_with
from unsee.methods.fitted import Fitted, TunedContexts
from unsee.methods.recorder import Recorder, Watch
from unsee.methods.registry import METHODS
from unsee.methods.task import Task, check_lengths
from unsee.models.black_box import BoundImages, bind
from unsee.runs.callbacks import Callback, follow
from unsee.runs.extending import read_inherited
from unsee.runs.folder import PICTURE, RunFolder, is_finished, read_config, read_result
from unsee.runs.front import front_table
from unsee.runs.identity import describe_run, identify, inherited_bytes
from unsee.runs.prompt import Prompt, load_prompt
from unsee.runs.records import ConfigRecord, ResultRecord
from unsee.types import Say, Scores
from unsee.versions import changes


@dataclass(frozen=True, eq=False)
class TunedRun:
    """A run that was tuned: what it is, what it found, and its record."""

    task: Task
    config: ConfigRecord
    fitted: Fitted
    recorder: Recorder
    valid: Scores
    folder: Path | None = None

    def __repr__(self) -> str:
        s, config = self.task.settings, self.config
        where = f"{s.method}, seed {s.seed}, on {config.data.name!r} with {config.model.name!r}"
        found = f"valid H {self.valid.h:.2f}, {self.recorder.ledger.candidates} candidates"
        return f"TunedRun({where}: forgets {', '.join(config.forget)}, {found})"

    @property
    def front(self) -> Any:
        """Other trade-offs that the run has paid for: a pandas DataFrame if pandas is there, else a list of records."""
        return front_table(self.recorder.front)

    @property
    def rule(self) -> str:
        """What is done to answers before a caller sees them."""
        return self.fitted.rule if isinstance(self.fitted, TunedContexts) else "as-is"

    @property
    def prompt(self) -> Prompt:
        """The artefact to deploy."""
        if not isinstance(self.fitted, TunedContexts):
            raise InputError(f"method {self.task.settings.method!r} tunes no prompt")
        card, found = self.task.model.card, self.fitted
        names, gone, template = self.task.data.class_names, self.config.forget, self.task.settings.template
        where = found.applies_to, found.rule, found.position
        return Prompt(found.contexts, names, gone, card.name, card.fingerprint, template, *where)

    def bind(self, images: Images | BoundImages) -> BoundImages:
        """Labelled images bound to the model, their labels and the answers in the order of the run's classes."""
        names = self.task.data.class_names
        given = images.images if isinstance(images, BoundImages) else images
        if not isinstance(given, Images):
            raise InputError(f"only labelled images such as data.test can be scored, not {given!r}")
        ordered = given.in_classes(names)
        if isinstance(images, BoundImages) and ordered is given and images.class_names == names:
            return images
        return bind(self.task.model, ordered, names)

    def score(self, images: Images | BoundImages) -> Scores:
        """H, Err_for and Acc_mem on labelled images, of what was tuned: before any rule for answers."""
        bound = self.bind(images)
        return scores(top_classes(self.fitted.confidences(bound)), bound.labels, self.task.forget)

    def evaluate(self, images: Images | BoundImages) -> Evaluation:
        """Scores on labelled images, beside zero-shot and label mask, and as served."""
        bound = self.bind(images)
        plain = bound.zero_shot(self.task.settings.template)
        return evaluate(plain, self.fitted.confidences(bound), bound.labels, self.task.forget, self.rule)

    def result(self, found: Evaluation, train: Scores, seconds: float = 0.0) -> ResultRecord:
        """What `result.json` holds."""
        s, config = self.task.settings, self.config
        return ResultRecord(
            method=s.method,
            preset=s.preset,
            seed=s.seed,
            model=config.model.name,
            data=config.data.name,
            forget=config.forget,
            zero_shot=found.zero_shot,
            valid=self.valid,
            test=found.tuned,
            served=found.served,
            label_mask=found.label_mask,
            per_class=found.per_class(self.task.data.class_names),
            entropy_forgotten=found.entropy_forgotten,
            access=METHODS[s.method].sees,
            ledger=self.recorder.ledger,
            seconds={"tuning": round(self.recorder.seconds, 3), "evaluation": round(seconds, 3)},
            train=train,
            warnings=tuple(self.recorder.warnings),
        )


def tune(
    task: Task,
    run: RunFolder | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
    changed: str = "",
    config: ConfigRecord | None = None,
) -> TunedRun:
    """Runs a task's method, from where the history of the run folder ends, and keeps what it finds there.

    watch is called after every generation, say with sentences such as warnings. changed: see `Recorder`. config: that
    of a run without a folder, if it is known already.
    """
    config = run.config if run is not None else config or describe_run(task)
    recorder = Recorder(task.settings, run, watch, say, changed)
    if run is not None and is_finished(run.folder):  # with the same limits there is nothing left to do
        same = task.settings == read_config(run.folder).settings
        recorder.finished = same and read_result(run.folder).ledger.generations == recorder.ledger.generations
    prompt = None if run is None or not recorder.done else _finished_prompt(run.folder)
    if run is None or prompt is None:
        fitted = methods.fit(task, recorder)
    else:
        fitted = _recall(prompt, read_result(run.folder), task, recorder)
    if recorder.best.scores is None:
        raise RunError("the run has no validation scores")
    folder = None if run is None else run.folder.absolute()
    found = TunedRun(task, config, fitted, recorder, recorder.best.scores, folder)
    if run is not None:
        keep_fitted(found, run)
    return found


def start_run(
    task: Task,
    out: Path | None,
    test: Images | BoundImages | None = None,
    *,
    overwrite: bool = False,
    watch: Watch | None = None,
    callbacks: Sequence[Callback] = (),
    say: Say | None = None,
) -> TunedRun:
    """A new run in this folder, completed with its scores if there are test images; without a folder, in memory."""
    check_lengths(task)
    config = describe_run(task)
    if out is None:
        with follow(callbacks, config, watch) as ending:
            return tune(task, None, ending.watch, say, config=config)
    refuse_inside(task.data, out)
    with RunFolder.create(out, config, overwrite) as run, follow(callbacks, config, watch) as ending:
        run.inherited = None if task.inherited is None else inherited_bytes(task.inherited.known)
        found = tune(task, run, ending.watch, say)
        if test is not None:
            ending.result = complete(found, run, test)
        return found


def continue_run(
    out: Path,
    make: Callable[[ConfigRecord], Task],
    test: Images | BoundImages | None = None,
    *,
    watch: Watch | None = None,
    callbacks: Sequence[Callback] = (),
    say: Say | None = None,
) -> TunedRun:
    """Continues a run folder exactly where it stopped, as the task that `make` gives for its config."""
    with RunFolder.open(out) as run:
        task = replace(make(run.config), inherited=read_inherited(out, run.config))
        config, changed = describe_run(task), changes(run.config.versions)
        _check_same(run, config)
        run.continue_as(config)
        with follow(callbacks, config, watch) as ending:
            found = tune(task, run, ending.watch, say, changed)
            if test is not None:
                ending.result = complete(found, run, test)
        return found


def complete(found: TunedRun, run: RunFolder, test: Images | BoundImages) -> ResultRecord:
    """Scores the test images and completes the open run folder: answers, picture, result.

    The result is written last: a folder that has one is whole. It is then read, and nothing is asked again: a further
    generation would have deleted it.
    """
    from unsee.answers.picture import before_after

    if is_finished(run.folder):
        return read_result(run.folder)
    started = time.perf_counter()
    test = found.bind(test)
    scored = found.evaluate(test)
    shots = found.score(found.task.data.train.subset(found.config.split.train))
    result = found.result(scored, shots, time.perf_counter() - started)
    run.write_answers(scored.arrays() | {"labels": test.labels})
    picture = before_after(test.images, scored, found.task.forget)
    write_with(run.folder / PICTURE, lambda path: picture.save(path, format="PNG"))
    run.write_result(result)
    return result


def keep_fitted(found: TunedRun, run: RunFolder) -> None:
    """Writes the prompt, or the trained weights if they are wanted."""
    if _finished_prompt(run.folder) is not None:
        return  # of this very history: a further generation would have deleted the result
    settings = found.task.settings
    if isinstance(found.fitted, TunedContexts):
        found.prompt.save(run.folder)
    elif settings.save_weights and METHODS[settings.method].trains_weights:
        from unsee.methods.training import TrainedWeights  # imports torch

        if isinstance(found.fitted, TrainedWeights):
            run.write_weights(found.fitted.arrays())


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
    recorder.ledger.reset(result.ledger.as_dict())
    recorder.warnings[:] = result.warnings
    return TunedContexts(
        prompt.contexts, prompt.applies_to, prompt.template, task.forget, prompt.serve, prompt.position
    )


def _check_same(run: RunFolder, now: ConfigRecord) -> None:
    """Refuses to continue a run as another one: its losses would be replayed through a search that never saw them."""
    different = identify(run.config).difference(identify(now))
    if different is not None:
        raise RunError(f"{run.folder} cannot be resumed as another run: {different}")
    done = run.history[-1] if run.history else None
    s = now.settings
    spent = 0 if done is None else done.ledger.get("image_queries", 0)
    less = done is not None and (s.generations < done.number or (s.budget or done.candidates) < done.candidates)
    if done is not None and (less or (s.image_queries or spent) < spent):
        raise RunError(
            f"{run.folder} has tried {done.candidates} candidates in {done.number} generations already, "
            f"{spent:,} image queries; it cannot be resumed with less"
        )
    method, then, planned = now.settings.method, run.config.settings.iterations, now.settings.iterations
    if METHODS[method].planned_steps and planned != then and run.history:
        raise RunError(
            f"{run.folder}: {method} plans its step sizes over all of its {then} iterations, so it cannot be continued "
            f"to {planned}; start a new run with --iterations {planned}"
        )
