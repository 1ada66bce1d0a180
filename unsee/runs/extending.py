"""A run for other classes to forget that starts from the answers of an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load

from unsee.errors import InputError, RunError, unknown
from unsee.methods.asked import AskedImages
from unsee.methods.build import make_goal, make_parametrization, make_search
from unsee.methods.inherited import Inherited, from_arrays, retrace
from unsee.methods.task import Task
from unsee.runs.folder import INHERITED, RunFolder
from unsee.runs.identity import describe_run, identify
from unsee.runs.records import ConfigRecord
from unsee.types import Ledger
from unsee.versions import changes

EXTENDED_SHARE = 10  # an extended run is given this part of the image queries of the run it starts from


def other_list(config: ConfigRecord, forget: Sequence[str], restore: Sequence[str]) -> tuple[str, ...]:
    """The classes that an extended run forgets, in the order of the run's classes."""
    for name in (*forget, *restore):
        if name not in config.class_names:
            raise InputError(unknown("class", name, config.class_names))
    for name in restore:
        if name not in config.forget:
            raise InputError(f"{name!r} is not forgotten by the run, so it cannot be restored")
    wanted = ({*config.forget} | {*forget}) - {*restore}
    if wanted == set(config.forget):
        raise InputError("say what to forget as well (--forget) or no longer (--restore): this is the run's own list")
    if not wanted:
        raise InputError("with these classes restored nothing is forgotten: the plain prompt does that")
    return tuple(name for name in config.class_names if name in wanted)


def inherit(parent: Path, before: Task, now: Task) -> Task:
    """The new task with all answers that the parent run has; RunError if these are of anything else than it asks.

    before: the parent's own task, made again from its config.
    """
    with RunFolder.open(parent) as run:
        before = replace(before, inherited=read_inherited(parent, run.config))
        mine, theirs = identify(describe_run(now)), identify(describe_run(before))
        but_for_the_list = mine.model_copy(update={"forget": theirs.forget, "parent": theirs.parent})
        different = identify(run.config).difference(theirs) or theirs.difference(but_for_the_list)
        if different is not None:
            raise RunError(f"{parent} cannot be extended: {different}")
        if not any(generation.answers is not None for generation in run.history):
            raise RunError(f"{parent} has kept no answers; a run of --method guided has, and can be extended")
        asked = AskedImages(before, Ledger())
        blocks = make_parametrization(before.settings, before.model).blocks
        search = make_search(before, asked, cache(lambda: make_goal(before, asked)), blocks)
        known = retrace(search, run.history, changes(run.config.versions))
        earlier = () if before.inherited is None else tuple(e for e in before.inherited.known if e.rows is not None)
        return replace(now, inherited=Inherited(parent.name, run.config.forget, (*earlier, *known)))


def read_inherited(folder: Path, config: ConfigRecord) -> Inherited | None:
    """The answers that a run started from; None for one that has no parent."""
    if config.parent is None:
        return None
    path = folder / INHERITED
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != config.parent.answers:
            raise ValueError("not what the run started from")
        images = len(config.split.train) + len(config.split.valid)
        known = from_arrays(load(content), images, len(config.class_names))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise RunError(f"{path}: damaged ({error})") from None
    return Inherited(config.parent.run, config.parent.forget, known)
