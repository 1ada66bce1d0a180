"""The parts of a run, made as the loop makes them."""

from __future__ import annotations

from functools import cache

from unsee.methods.asked import AskedImages
from unsee.methods.build import make_goal, make_parametrization, make_search
from unsee.methods.gradient import LossSlope
from unsee.methods.objective import Objective
from unsee.types import Ledger


def objective_of(task, ledger=None):
    asked = AskedImages(task, ledger or Ledger())
    return Objective(asked, cache(lambda: make_goal(task, asked)))


def slope_of(task, shape):
    asked = AskedImages(task, Ledger())
    return LossSlope(asked, cache(lambda: make_goal(task, asked)), shape)


def search_of(task):
    asked = AskedImages(task, Ledger())
    blocks = make_parametrization(task.settings, task.model).blocks
    return make_search(task, asked, cache(lambda: make_goal(task, asked)), blocks)


def contexts_of(task, z):
    return make_parametrization(task.settings, task.model).contexts(z)
