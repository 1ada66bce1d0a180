"""The embedded images: 3,000 of CIFAR-10, none of which the embedded model was trained on.

Shots come from `pool.png` (data_batch_5), test images from `test.png` (test_batch); `demo.json` says which
images these are, and cites their source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from unsee.data.data_set import Data
from unsee.data.images import ArraySource, Images, labelled

FOLDER = Path(__file__).parent.parent / "assets" / "demo"


def load_demo() -> Data:
    """The embedded images as a data set."""
    facts = describe_demo()
    return Data("demo", _images(facts, "pool"), _images(facts, "test"))


def describe_demo() -> Mapping[str, Any]:
    """Where the embedded images come from."""
    found: dict[str, Any] = json.loads((FOLDER / "demo.json").read_text(encoding="utf-8"))
    return found


def _images(facts: Mapping[str, Any], part: str) -> Images:
    side, columns = facts["side"], facts[part]["columns"]
    with Image.open(FOLDER / facts[part]["file"]) as sheet:
        grid = np.asarray(sheet.convert("RGB"))
    pixels = grid.reshape(-1, side, columns, side, 3).transpose(0, 2, 1, 3, 4).reshape(-1, side, side, 3)
    source = ArraySource(np.ascontiguousarray(pixels), label=f"demo/{part}")
    return labelled(source, facts[part]["labels"], facts["class_names"])
