"""Make a black-box vision-language model unsee the classes you name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unsee.telemetry import switch_off

if TYPE_CHECKING:
    from unsee.audit.audit_run import audit_run
    from unsee.data import load_data
    from unsee.data.data_set import Data
    from unsee.data.images import Images, as_images
    from unsee.errors import (
        DataError,
        ImageError,
        InputError,
        MissingExtra,
        ModelError,
        NotFittedError,
        RunError,
        UnseeError,
    )
    from unsee.models import FeatureCache, load_model
    from unsee.runs.callbacks import Callback
    from unsee.runs.prompt import Answer, Prompt, load_prompt
    from unsee.runs.trackers import MLflow, TensorBoard, WandB
    from unsee.settings import Settings
    from unsee.tuner import PromptTuner
    from unsee.types import Card, Ledger, Scores

switch_off()  # here, as this runs before any part of unsee imports a library that reports its use

# Where each public name is; it is imported when it is first used, so that `import unsee` takes no time.
_WHERE = {
    "Answer": "runs.prompt",
    "Callback": "runs.callbacks",
    "Card": "types",
    "Data": "data.data_set",
    "DataError": "errors",
    "FeatureCache": "models",
    "ImageError": "errors",
    "Images": "data.images",
    "InputError": "errors",
    "Ledger": "types",
    "MLflow": "runs.trackers",
    "MissingExtra": "errors",
    "ModelError": "errors",
    "NotFittedError": "errors",
    "Prompt": "runs.prompt",
    "PromptTuner": "tuner",
    "RunError": "errors",
    "Scores": "types",
    "Settings": "settings",
    "TensorBoard": "runs.trackers",
    "UnseeError": "errors",
    "WandB": "runs.trackers",
    "as_images": "data.images",
    "audit_run": "audit.audit_run",
    "load_data": "data",
    "load_model": "models",
    "load_prompt": "runs.prompt",
}
__all__ = [
    "Answer",
    "Callback",
    "Card",
    "Data",
    "DataError",
    "FeatureCache",
    "ImageError",
    "Images",
    "InputError",
    "Ledger",
    "MLflow",
    "MissingExtra",
    "ModelError",
    "NotFittedError",
    "Prompt",
    "PromptTuner",
    "RunError",
    "Scores",
    "Settings",
    "TensorBoard",
    "UnseeError",
    "WandB",
    "as_images",
    "audit_run",
    "load_data",
    "load_model",
    "load_prompt",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("unsee.versions").version()
    if name in _WHERE:
        return getattr(import_module(f"unsee.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'unsee' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
