"""The data sets known by name: what they look like on disk, how to get them, and whether they are there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unsee.data.cifar import TEN, find_cifar10, find_cifar100, load_cifar10, load_cifar100
from unsee.data.cifar_batches import find_batches
from unsee.data.cub import find_cub200, load_cub200
from unsee.data.data_set import Data
from unsee.data.demo import FOLDER
from unsee.data.imagenet import find_imagenet, find_imagenet30, load_imagenet, load_imagenet30

CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True)
class NamedDataSet:
    """A data set that is looked for by name."""

    name: str
    folder: str  # below the data folder
    layout: str  # what is looked for in it
    page: str  # where it is published
    archives: Mapping[str, str]  # file -> md5, "" where none is published
    get: str  # what to do to have it, with places for {archives}, {page} and {place}
    find: Callable[[Path], str | None]  # folder -> the form it holds, if any; cheap
    load: Callable[[Path], Data]

    def row(self, data_dir: Path) -> Mapping[str, Any]:
        """Whether it is there, where it was looked for, and how to get it."""
        place = data_dir / self.folder
        form = self.find(place)
        return {
            "name": self.name,
            "found": form is not None,
            "form": form,
            "place": str(place),
            "short": "–" if form else self.short,
            "where": f"{place}" + (f" ({form})" if form else ""),
            "get": self.how_to_get(place),
            "layout": self.layout,
            "page": self.page,
            "archives": dict(self.archives),
        }

    @property
    def short(self) -> str:
        """How to get it, in a few words."""
        return "unsee data get cifar10" if self.folder == "cifar10" else f"download from {self.page}"

    def how_to_get(self, place: Path) -> str:
        """One line: what to fetch from where, and what this folder must then hold."""
        files = [name + (f" (md5 {md5})" if md5 else " (no checksum published)") for name, md5 in self.archives.items()]
        what = self.get.format(archives=", ".join(files), page=self.page, place=place)
        return f"{what}; wanted there: {self.layout}. --data-dir names another data folder"


def list_data_sets(data_dir: Path) -> list[Mapping[str, Any]]:
    """Every data set that has a name, the embedded one first."""
    about = "embedded: 3,000 images of CIFAR-10"
    embedded = {"name": "demo", "found": True, "place": "embedded", "short": "–", "where": str(FOLDER), "get": about}
    return [embedded, *(known.row(data_dir) for known in NAMED.values())]


def cifar10_batch5(folder: Path) -> Data:
    """CIFAR-10 with shots from data_batch_5 alone, which the embedded model was not trained on."""
    data = load_cifar10(folder)
    return dataclasses.replace(data, name="cifar10-batch5", train=data.train.subset(np.arange(40_000, 50_000)))


def cifar100_tenth(folder: Path) -> Data:
    """CIFAR-100 with shots from every tenth training photo of a class, which the embedded model was not trained on."""
    data = load_cifar100(folder)
    return dataclasses.replace(data, name="cifar100-tenth", train=data.train.subset(np.arange(0, len(data.train), 10)))


def _folders_alone(folder: Path) -> str | None:
    return "folders" if find_cifar100(folder) == "folders" else None


_CIFAR10 = NamedDataSet(
    name="cifar10",
    folder="cifar10",
    layout="cifar-10-batches-bin/, cifar-10-batches-py/, data_batch_1..5.png, plain_text/*.parquet (Hugging "
    "Face's uoft-cs/cifar10), or train/<class>/* and test/<class>/*",
    page=CIFAR_PAGE,
    archives={
        "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    },
    get="unsee data get cifar10, or one of {archives} from {page}, unpacked in {place}",
    find=find_cifar10,
    load=load_cifar10,
)
_CIFAR100 = NamedDataSet(
    name="cifar100",
    folder="cifar100",
    layout="cifar-100-python/, cifar-100-binary/, cifar100/*.parquet (Hugging Face's uoft-cs/cifar100), or "
    "train/<class>/* and test/<class>/*",
    page=CIFAR_PAGE,
    archives={
        "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
        "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    },
    get="one of {archives} from {page}, unpacked in {place}",
    find=find_cifar100,
    load=load_cifar100,
)
_EVERY = (
    _CIFAR10,
    dataclasses.replace(
        _CIFAR10,
        name="cifar10-batch5",
        layout="cifar-10-batches-bin/, cifar-10-batches-py/ or data_batch_1..5.png",
        get="as cifar10; shots come from data_batch_5, which mini never saw",
        find=partial(find_batches, TEN),  # other forms need not keep the order of the batches
        load=cifar10_batch5,
    ),
    _CIFAR100,
    dataclasses.replace(
        _CIFAR100,
        name="cifar100-tenth",
        layout="train/<class>/* and test/<class>/*",
        get="as cifar100, in folders, files under their own names; shots are every tenth, which mini never saw",
        find=_folders_alone,  # other forms are not in the order of the files' names
        load=cifar100_tenth,
    ),
    NamedDataSet(
        name="cub200",
        folder="cub200",
        layout="CUB_200_2011/ with images/, classes.txt, images.txt, image_class_labels.txt, train_test_split.txt; or "
        "train/001.Black_footed_Albatross/* and test/…",
        page="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        archives={"CUB_200_2011.tgz": "97eceeb196236b17998738112f37df78"},
        get="{archives} from {page}, unpacked in {place}",
        find=find_cub200,
        load=load_cub200,
    ),
    NamedDataSet(
        name="imagenet30",
        folder="imagenet30",
        layout="one_class_train/<class>/* and one_class_test/<class>/*",
        page="https://github.com/hendrycks/ss-ood",
        archives={"one_class_train.tar": "", "one_class_test.tar": ""},
        get="both of {archives}, linked on {page}, unpacked in {place}",
        find=find_imagenet30,
        load=load_imagenet30,
    ),
    NamedDataSet(
        name="imagenet",
        folder="imagenet",
        layout="train/<synset>/*, val/<synset>/* (or val/*.JPEG with LOC_val_solution.csv or val.txt), and the class "
        "names: classnames.txt, LOC_synset_mapping.txt or imagenet_class_index.json",
        page="https://www.image-net.org/download.php",
        archives={
            "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
            "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
        },
        get="both of {archives} from {page}, unpacked in {place}, one folder per class; classnames.txt is linked in "
        "DATASETS.md of https://github.com/KaiyangZhou/CoOp",
        find=find_imagenet,
        load=load_imagenet,
    ),
)
NAMED: dict[str, NamedDataSet] = {known.name: known for known in _EVERY}
