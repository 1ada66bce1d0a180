"""The process of the service: how its threads share the interpreter, and how it gives memory back."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from contextlib import suppress

SWITCH_SECONDS = 0.0001  # that one thread keeps the interpreter while others want it
MAPPED_BYTES = 4 * 2**20  # blocks of memory from this size on go back to the system when they are freed
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of mallopt(3)


def share_evenly() -> None:
    """Makes the threads of this process take short turns, so that none of them keeps a small request waiting.

    By default Python's threads hand the interpreter over every 5 ms; a request changes threads ten times, and while
    others compute it would wait as often. What was imported is no longer looked through for garbage, which takes a
    tenth of a second. A process that held large bodies for a moment does not keep their memory.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    _call_glibc("mallopt", _MMAP_THRESHOLD, MAPPED_BYTES)


def give_memory_back() -> None:
    """Returns to the system what is free in smaller blocks."""
    _call_glibc("malloc_trim", 0)


def model_threads() -> int:
    """How many cores the model gets by default: all but one, which is for the service around it.

    The threads of one forward wait for each other, busily: if the last core has other work to do, all are late.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - 1)


def _call_glibc(function: str, *numbers: int) -> None:
    with suppress(OSError, AttributeError, TypeError):  # other libraries have no such function
        getattr(ctypes.CDLL(None), function)(*numbers)
