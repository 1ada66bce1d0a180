"""Which versions made a run: of unsee, of the libraries, and the epoch of its numbers."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

EPOCH = 4  # raised by hand when a change of the code changes numbers: earlier runs are then not reused or resumed
FEATURE_EPOCH = 1  # the same for image features; part of a model's fingerprint, so earlier prompts are then refused
RECORDED = ("numpy", "torch", "cma", "transformers", "onnxruntime", "pillow")


def version() -> str:
    """The version of unsee, or "0" where it runs from a bare checkout."""
    return _version("unsee") or "0"


@cache
def versions() -> dict[str, str]:
    """Versions of what results depend on."""
    found = {name: _version(name) for name in RECORDED}
    return {"python": platform.python_version()} | {name: v for name, v in found.items() if v is not None}


def changes(then: Mapping[str, str]) -> str:
    """In which versions these differ from what is installed now, in words; nothing if they do not."""
    now = versions()
    differ = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return ", ".join(f"{name} {then.get(name, 'missing')} then, {now.get(name, 'missing')} now" for name in differ)


def _version(package: str) -> str | None:
    try:
        return installed(package)
    except PackageNotFoundError:
        return None
