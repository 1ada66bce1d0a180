"""Linear algebra on one thread: on small matrices more threads only wait, and their sums round otherwise."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which BLAS has one thread: with all of them a search on CIFAR-100 is ten times slower."""
    found: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return found


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks for libraries, which takes longer than a small fit
