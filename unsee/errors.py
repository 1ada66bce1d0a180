"""What can go wrong, as a tree; every message is one line that says what to do.

UnseeError
├── InputError      a setting, class name or argument that cannot be used
├── NotFittedError  something that a tuner learns, used before `fit`
├── DataError       a data set that is missing, too small or damaged
│   └── ImageError  one image that cannot be read
├── ModelError      a model that cannot be loaded, or answers nonsense
├── RunError        a run folder that is missing, damaged, taken, or belongs to something else
│   └── RunInUse    another process is writing to it now
├── WriteError      a file that cannot be written: a full disk, a folder that may not be written to
└── MissingExtra    an optional package that is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnseeError(Exception):
    """Base of everything raised on purpose."""


class InputError(UnseeError, ValueError):
    """A setting, class name or argument that cannot be used."""


class NotFittedError(UnseeError, ValueError, AttributeError):
    """Something that a tuner learns was used before `fit`; the built-in errors are those that scikit-learn's is."""


class DataError(UnseeError, ValueError):
    """A data set that is missing, too small or damaged."""


class ImageError(DataError):
    """One image that cannot be read; `name` says which."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"cannot read image {name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, str]]:
        return (ImageError, (self.name, self.reason))


class ModelError(UnseeError, RuntimeError):
    """A model that cannot be loaded, or answers nonsense."""


class RunError(UnseeError, RuntimeError):
    """A run folder that is missing, damaged, taken, or belongs to something else."""


class RunInUse(RunError):
    """A run folder that another process is writing to now."""


class WriteError(UnseeError, OSError):
    """A file that cannot be written: a full disk, a folder that may not be written to."""


class MissingExtra(UnseeError, ImportError):
    """An optional package that is not installed; the message names the install line."""

    def __init__(self, package: str, extra: str) -> None:
        from unsee.installation import install_line  # here: reading what is installed takes time

        super().__init__(f"this needs the package {package}; install it with: {install_line(extra)}")


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """One line for a name that is not there, with the nearest that are."""
    names = list(known)
    hint = did_you_mean(given, names) or "."
    listed = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
    return f"unknown {what} {given!r}{hint} Known: {listed}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The nearest of these names, to end a sentence with; nothing if none is near."""
    near = difflib.get_close_matches(given, list(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
