"""Make a black-box vision-language model unsee the classes you name."""

from unsee.data import load_data
from unsee.errors import DataError, ImageError, InputError, MissingExtra, ModelError, RunError, UnseeError
from unsee.images import Images, as_images
from unsee.models import FeatureCache, load_model
from unsee.prompts import Answer, Prompt, load_prompt
from unsee.provenance import version
from unsee.records import Card, Data, Ledger, Scores
from unsee.settings import Settings
from unsee.tuner import PromptTuner

__version__ = version()
__all__ = [
    "Answer",
    "Card",
    "Data",
    "DataError",
    "FeatureCache",
    "ImageError",
    "Images",
    "InputError",
    "Ledger",
    "MissingExtra",
    "ModelError",
    "Prompt",
    "PromptTuner",
    "RunError",
    "Scores",
    "Settings",
    "UnseeError",
    "as_images",
    "load_data",
    "load_model",
    "load_prompt",
]
