"""The data sets known by name, in one dict."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unsee.data.cifar import CIFAR10_BATCH5, CIFAR10_SET, CIFAR100_SET, CIFAR100_TENTH
from unsee.data.cub import CUB200_HALF, CUB200_SET
from unsee.data.demo import FOLDER
from unsee.data.imagenet import IMAGENET30_SET, IMAGENET_SET
from unsee.data.imagenet_six import IMAGENET30_SIX, IMAGENET_SIX
from unsee.data.named_set import NamedDataSet
from unsee.data.tiny_imagenet import TINY30_SET, TINY200_SET

NAMED: dict[str, NamedDataSet] = {
    "cifar10": CIFAR10_SET,
    "cifar10-batch5": CIFAR10_BATCH5,
    "cifar100": CIFAR100_SET,
    "cifar100-tenth": CIFAR100_TENTH,
    "cub200": CUB200_SET,
    "cub200-half": CUB200_HALF,
    "imagenet30": IMAGENET30_SET,
    "imagenet": IMAGENET_SET,
    "imagenet30-six": IMAGENET30_SIX,
    "imagenet-six": IMAGENET_SIX,
    "tiny30": TINY30_SET,
    "tiny200": TINY200_SET,
}


def list_data_sets(data_dir: Path) -> list[Mapping[str, Any]]:
    """Every data set that has a name, the embedded one first."""
    about = "embedded: 3,000 images of CIFAR-10"
    embedded = {"name": "demo", "found": True, "place": "embedded", "short": "–", "where": str(FOLDER), "get": about}
    return [embedded, *(known.row(data_dir) for known in NAMED.values())]
