"""What is audited: a finished run of any method, put back together so that it answers again.

A tuned prompt can be put before any names, and a rule works on any label list. Trained weights and projected
classifiers are fixed to their classes: parts of an audit that ask about other names leave them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unsee import methods
from unsee.answers.rules import serve
from unsee.audit.service_sample import usual_rows
from unsee.data.class_names import in_prompt
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.errors import InputError
from unsee.methods.fitted import Fitted, TunedContexts
from unsee.methods.recorder import Recorder
from unsee.methods.registry import METHODS
from unsee.methods.task import Task, make_task
from unsee.methods.untuned import FixedRule
from unsee.models.black_box import BlackBox, BoundImages, Metered, bind, rebind
from unsee.models.remote.classifying import ServedBound
from unsee.models.remote.remote_model import RemoteModel
from unsee.runs.folder import RunFolder, read_config
from unsee.runs.identity import describe_run, identify
from unsee.runs.prompt import load_prompt
from unsee.types import Floats, Ledger, Mask

BY_SERVICE = "by the service"  # the rule of answers that pass through a key's own prompt, whatever it is


class KeyAnswers:
    """What a key of a service sees that may classify and no more: answers under the service's own prompt and rule."""

    def confidences(self, images: BoundImages) -> Floats:
        """Answers as served, (n, C)."""
        if not isinstance(images.bound, ServedBound):
            raise InputError("this key may classify only")
        return images.bound.served()


@dataclass(frozen=True, eq=False)
class Subject:
    """A run that answers, with or without what it learned; what it is asked is counted."""

    model: BlackBox
    data: Data
    task: Task
    fitted: Fitted
    ledger: Ledger = field(default_factory=Ledger)
    left_out: int = 0  # test images that a service is not asked about

    @property
    def forget(self) -> Mask:
        return self.task.forget

    @property
    def template(self) -> str:
        return self.task.settings.template

    @property
    def seed(self) -> int:
        return self.task.settings.seed

    @property
    def takes_names(self) -> bool:
        """Whether it answers under other names than those it was made for."""
        return isinstance(self.fitted, (TunedContexts, FixedRule))

    def usable(self, images: Images) -> Images:
        """These images, without those that cannot be read if the run left such images out."""
        return images.readable()[0] if self.task.settings.skip_bad_images else images

    def bind(self, images: Images) -> BoundImages:
        return bind(self.model, images, self.data.class_names)

    def before(self, bound: BoundImages, template: str | None = None) -> Floats | None:
        """Answers under the plain prompt; None for a model that answers none."""
        found = bound.zero_shot(template or self.template)
        return None if found is None else self._count(found)

    def after(self, bound: BoundImages) -> Floats:
        """What a caller sees of the run's answers, to images bound to the run's own names."""
        return self.seen(self.unserved(bound))

    def unserved(self, bound: BoundImages) -> Floats:
        """The same answers before the rule that the prompt carries."""
        return self._count(self.fitted.confidences(bound))

    def seen(self, found: Floats) -> Floats:
        """What the prompt's rule leaves of these answers, if it has one."""
        return self.fitted.served(found) if isinstance(self.fitted, TunedContexts) else found

    @property
    def one_by_one(self) -> bool:
        """Whether each image is sent for each question."""
        return isinstance(self.fitted, KeyAnswers)

    @property
    def rule(self) -> str:
        """What is done to answers before they leave."""
        if isinstance(self.fitted, KeyAnswers):
            return BY_SERVICE
        return self.fitted.rule if isinstance(self.fitted, TunedContexts) else "as-is"

    def after_renamed(self, bound: BoundImages, listed: Mask, renamed: Sequence[str | None]) -> Floats:
        """Answers to images bound to other names. `listed`: which of them a rule still finds on its list.

        renamed: for each of the run's own classes its name now, or None; contexts that apply to some classes only
        go with them.
        """
        if isinstance(self.fitted, FixedRule):
            return self.fitted.apply(self._plain(bound, self.template), listed)
        return serve(self.unserved_renamed(bound, renamed), listed, self._contexts.rule)

    def unserved_renamed(self, bound: BoundImages, renamed: Sequence[str | None]) -> Floats:
        """The same answers before any rule: under the contexts, or where there are none under the plain prompt."""
        if isinstance(self.fitted, FixedRule):
            return self._plain(bound, self.template)
        tuned = self._contexts.applies_to
        if tuned is not None:
            now = dict(zip(self.data.class_names, renamed, strict=True))
            tuned = tuple(name for old in tuned if (name := now[old]) is not None)
            if not tuned:  # no name is left that the contexts apply to
                return self._plain(bound, self.template)
        return self._tuned(bound, tuned)

    def after_template(self, bound: BoundImages, template: str) -> Floats:
        """Answers with other words around the names: between them and the contexts, or for a rule as a whole prompt."""
        if isinstance(self.fitted, FixedRule):
            return self.fitted.apply(self._plain(bound, f"{template}."))
        own, tuned = self.data.class_names, self._contexts.applies_to
        names = [template.replace("{}", in_prompt(n)) if tuned is None or n in tuned else n for n in own]
        now = dict(zip(own, names, strict=True))
        now_tuned = None if tuned is None else tuple(now[name] for name in tuned)
        found = self._tuned(rebind(self.model, bound, names), now_tuned)
        return serve(found, self.forget, self._contexts.rule)

    @property
    def _contexts(self) -> TunedContexts:
        if not isinstance(self.fitted, TunedContexts):
            raise InputError(f"{self.fixed} is fixed to the names it was made for")
        return self.fitted

    @property
    def fixed(self) -> str:
        """What it is, for those who ask under other names in vain."""
        return "a key that may classify only" if self.one_by_one else f"method {self.task.settings.method!r}"

    def _tuned(self, bound: BoundImages, names: tuple[str, ...] | None) -> Floats:
        ready = Metered(bound.at(self._contexts.position).apply_to(names, self.template), Ledger())
        ready.check_room(len(self._contexts.contexts))
        return self._count(ready.bound.confidences(self._contexts.contexts[None])[0])

    def _plain(self, bound: BoundImages, template: str) -> Floats:
        found = bound.zero_shot(template)
        if found is None:
            raise InputError("this model answers no plain-text prompt")
        return self._count(found)

    def _count(self, found: Floats) -> Floats:
        self.ledger.candidates += 1
        self.ledger.prompts_encoded += found.shape[1]
        self.ledger.image_queries += len(found)
        return found


def open_subject(run: str | Path, model: BlackBox, data: Data, all_images: bool = False) -> Subject:
    """The finished run in this folder, on its model and data; of a service that only classifies, on a sample."""
    run = Path(run)
    config = read_config(run)
    given = config.settings.as_dict()
    method, preset, seed = (given.pop(name) for name in ("method", "preset", "seed"))
    task = make_task(model, data, config.forget, str(method), str(preset), int(seed or 0), given)
    different = identify(config).difference(identify(describe_run(task)))
    if different is not None:
        raise InputError(f"{run} cannot be audited on this model and data: {different}")
    if isinstance(model, RemoteModel) and model.role == "classify":
        if all_images:
            return Subject(model, data, task, KeyAnswers())
        some = data.test.subset(usual_rows(data.test.labels, task.forget, task.settings.seed))
        left_out = len(data.test) - len(some)
        return Subject(model, replace(data, test=some), task, KeyAnswers(), left_out=left_out)
    if METHODS[task.settings.method].tunes_prompt and METHODS[task.settings.method].sees != "weights":
        prompt = load_prompt(run)
        prompt.check(model)
        parts = prompt.contexts, prompt.applies_to, prompt.template, task.forget, prompt.serve, prompt.position
        served = TunedContexts(*parts)
        return Subject(model, data, task, served)
    with RunFolder.open(run, wait=60) as folder:
        return Subject(model, data, task, methods.fit(task, Recorder(task.settings, folder)))
