"""How many labelled images bring forgotten classes back? A fresh prompt is tuned to recognise all classes.

The attacker has the model as it is served: a copy whose weights were trained, or answers that pass through a rule. A
prompt that is served is simply replaced by the attacker's own, which starts from no words (the mean token embedding).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsee import methods
from unsee.answers.intervals import wilson
from unsee.answers.metrics import per_class_accuracy, top_classes
from unsee.answers.rules import serve
from unsee.audit.answers import estimate
from unsee.audit.record import Relearned
from unsee.audit.subject import Subject
from unsee.data.images import Images
from unsee.data.splits import few_shot_split
from unsee.errors import InputError
from unsee.methods.fitted import Fitted, TunedContexts
from unsee.methods.recorder import Recorder, Say
from unsee.methods.rules import RULES, FixedRule
from unsee.methods.task import Task, make_task
from unsee.models.black_box import BlackBox, bind
from unsee.seeds import stream
from unsee.settings import Value
from unsee.types import Doubles, Floats

SHOTS = (1, 2, 4, 8, 16)
ENOUGH = 0.9  # of the old accuracy
STEPS = 100  # of CoOp
ITERATIONS = 100  # of LCS, with 20 candidates each
# All shots in every step, whatever the run's preset: audits of runs under different presets must be the same attack.
_BY_GRADIENTS: dict[str, Value] = {"rate": 0.3, "rate_unit": "token-std", "optimizer": "adam", "batch": 0, "views": 0}


def relearn(
    subject: Subject, images: Images, shots: tuple[int, ...] = SHOTS, say: Say = lambda text: None
) -> Relearned:
    """Accuracy of a fresh prompt on these images of forgotten classes, by shots; stops once all are back."""
    model = _served_model(subject)
    gone = images.subset(np.flatnonzero(subject.forget[images.labels]))
    plain = subject.before(subject.bind(gone))
    if plain is None:
        raise InputError("relearning is measured against the plain prompt's accuracy, and this model answers none")
    old, classes = (
        per_class_accuracy(top_classes(plain), gone.labels, len(subject.forget)),
        np.flatnonzero(subject.forget),
    )
    smallest = np.bincount(subject.data.train.labels, minlength=len(subject.forget)).min() // 2
    found: dict[int, float] = {}
    back: dict[int, int | None] = dict.fromkeys(classes.tolist())
    enough = None
    task = _task(subject, model, 1)
    for k in (k for k in shots if k <= smallest):
        task = _task(subject, model, k)
        recorder = Recorder(task.settings)
        fitted = methods.fit(task, recorder)
        subject.ledger.image_queries += recorder.ledger.image_queries
        now = _accuracy(subject, model, fitted, gone)
        found[k] = float(np.nanmean(now[classes]))
        for c in classes.tolist():
            if back[c] is None and now[c] >= ENOUGH * old[c]:
                back[c] = k
        if enough is None and found[k] >= ENOUGH * float(np.nanmean(old[classes])):
            enough = k
        say(f"relearning with {k} labelled images per class: {100 * found[k]:.0f} % of forgotten images")
        if all(back.values()) and enough is not None:
            break
    names = subject.data.class_names
    return Relearned(
        method="coop" if task.settings.search == "gradient" else "lcs",
        accuracy=found,
        shots=enough,
        per_class={names[c]: k for c, k in back.items()},
        recognised={
            k: share for k, right in found.items() if (share := estimate(wilson(right, len(gone)))) is not None
        },
        before=float(np.nanmean(old[classes])),
        images=len(gone),
    )


def _served_model(subject: Subject) -> BlackBox:
    """The model behind what was found; a trained copy where there is one."""
    if isinstance(subject.fitted, (TunedContexts, FixedRule)):
        return subject.model
    learner = getattr(subject.fitted, "learner", None)
    copy: BlackBox | None = getattr(learner, "model", None)
    if copy is None:
        raise InputError(f"method {subject.task.settings.method!r} has no prompt that could be replaced")
    return copy


def _task(subject: Subject, model: BlackBox, shots: int) -> Task:
    """A fresh prompt for all classes, by gradients where the model is in this process."""
    from unsee.models.local import LocalModel

    given: dict[str, Value] = {"shots": shots, "forget_weight": 0.0, "merit": "acc_mem", "origin": "mean"}
    local = isinstance(model, LocalModel)
    given |= _BY_GRADIENTS | {"iterations": STEPS} if local else {"iterations": ITERATIONS}
    own = subject.task.settings
    method = "coop-memorize" if local else "lcs"
    made = make_task(model, subject.data, subject.task.forgotten, method, own.preset, own.seed, given)
    split = few_shot_split(subject.data.train, shots, own.seed, own.skip_bad_images)
    return replace(made, forget=np.zeros_like(subject.forget), split=split)


def _accuracy(subject: Subject, model: BlackBox, fitted: Fitted, images: Images) -> Doubles:
    """Accuracy of each class under the fresh prompt, through the rule that answers are served by, if there is one."""
    p: Floats = fitted.confidences(bind(model, images, subject.data.class_names))
    subject.ledger.image_queries += len(images)
    if isinstance(subject.fitted, TunedContexts):
        p = serve(p, subject.forget, subject.fitted.rule)
    elif isinstance(subject.fitted, FixedRule):
        p = RULES[subject.task.settings.method](p, subject.forget, stream(subject.seed, "gate"))
    return per_class_accuracy(top_classes(p), images.labels, len(subject.forget))
