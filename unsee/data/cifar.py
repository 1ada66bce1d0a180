"""CIFAR-10 and CIFAR-100 in the forms in which they are published.

| form    | CIFAR-10                                                 | CIFAR-100                         |
|---------|----------------------------------------------------------|-----------------------------------|
| binary  | cifar-10-batches-bin/data_batch_1..5.bin, test_batch.bin | cifar-100-binary/train.bin, test.bin |
| python  | cifar-10-batches-py/data_batch_1..5, test_batch          | cifar-100-python/train, test, meta |
| sheets  | data_batch_1..5.png, test_batch.png, train_lables.json, test_lables.json (npm) | –           |
| parquet | plain_text/train-*.parquet, test-*.parquet (Hugging Face: uoft-cs/cifar10) | cifar100/… (uoft-cs/cifar100) |
| folders | train/<class>/*, test/<class>/*                          | the same                          |

The first three hold the same images in the same order. Python batches are pickles: a file is opened only if its
checksum is the published one, and then read without executing anything. Labels are read at once; a batch of pixels only
when one of its images is asked for. The checksums of CIFAR-10's pixels are known, too, and verified in the first three
forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from unsee.data.cifar_batches import Layout, find_batches, read_batches, read_python
from unsee.data.class_folders import official_folders, read_classes
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.data.named_set import NamedDataSet
from unsee.data.paper_names import CIFAR10, CIFAR100
from unsee.data.parquet import find_shards, read_parquet
from unsee.errors import DataError

CIFAR_PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
TRAIN_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
BATCHES = (*TRAIN_BATCHES, "test_batch")
TEN = Layout(
    title="CIFAR-10",
    class_names=CIFAR10,
    key="labels",
    label_bytes=1,
    train=TRAIN_BATCHES,
    test=("test_batch",),
    size=dict.fromkeys(BATCHES, 10_000),
    forms={
        "binary": ("cifar-10-batches-bin", ".bin", ()),
        "python": ("cifar-10-batches-py", "", ()),
        "sheets": ("", ".png", ("train_lables.json", "test_lables.json")),
    },
    again="get it again: unsee data get cifar10",
    pixel_seals={
        "data_batch_1": "fc115a3de050d667b88cbd5b0b9612ebf996c54230fe7758f3a14bb5af9a1c27",
        "data_batch_2": "89e609b642f687bc796fa3bfa4211005582a0e8131d463d996d11ddb297d312e",
        "data_batch_3": "93a365823e61729490a8801d80864ccd0ab1e8c98f19d71af65644d1c5f1486e",
        "data_batch_4": "809eb95ecd057a36516318f5023ea619009dd70dd38193db9da43125a928e6fa",
        "data_batch_5": "d05b7d66d216d6df882cc760cdc0ff2f1f0437abf699ed16005c021ef0add9cb",
        "test_batch": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    },
    file_seals={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
    },
)
HUNDRED = Layout(
    title="CIFAR-100",
    class_names=CIFAR100,
    key="fine_labels",
    label_bytes=2,  # the coarse label, then the fine one
    train=("train",),
    test=("test",),
    size={"train": 50_000, "test": 10_000},
    forms={"python": ("cifar-100-python", "", ()), "binary": ("cifar-100-binary", ".bin", ())},
    again="unpack cifar-100-python.tar.gz again",
    # No true pixels could be had where this was written, so only the official files' own checksums are known.
    file_seals={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
)
# Where the parquet files are in a copy of the Hugging Face repository, and what their columns are called.
_PARQUET = {"CIFAR-10": ("plain_text", "label"), "CIFAR-100": ("cifar100", "fine_label")}


def find_cifar10(folder: Path) -> str | None:
    """Which form of CIFAR-10 is in this folder, if any."""
    return _find(TEN, folder)


def find_cifar100(folder: Path) -> str | None:
    """Which form of CIFAR-100 is in this folder, if any."""
    return _find(HUNDRED, folder)


def load_cifar10(folder: Path, seals: Mapping[str, str] | None = None) -> Data:
    """CIFAR-10 from a folder that holds one of its forms; seals: sha256 of each batch's pixels, not of its files."""
    layout = TEN if seals is None else replace(TEN, pixel_seals=seals, file_seals={})
    return Data("cifar10", *_load(layout, folder, "get it with: unsee data get cifar10"))


def load_cifar100(folder: Path, seals: Mapping[str, str] | None = None) -> Data:
    """CIFAR-100 (fine labels) from a folder that holds one of its forms; seals: md5 to hold each python file to."""
    layout = HUNDRED if seals is None else replace(HUNDRED, file_seals=seals)
    return Data("cifar100", *_load(layout, folder, "unsee data says how to get it"))


def _find(layout: Layout, folder: Path) -> str | None:
    form = find_batches(layout, folder)
    if form is None and all(_shards(layout, folder, part) for part in ("train", "test")):
        return "parquet"
    if form is None and all((folder / part).is_dir() for part in ("train", "test")):
        return "folders"
    return form


def _load(layout: Layout, folder: Path, get: str) -> tuple[Images, Images]:
    form = _find(layout, folder)
    if form is None:
        raise DataError(f"no {layout.title} in {folder}; {get}")
    if form == "folders":
        return _folders(layout, folder, "train"), _folders(layout, folder, "test")
    if form == "parquet":
        return _parquet(layout, folder, "train", layout.train), _parquet(layout, folder, "test", layout.test)
    if form == "python":
        _check_names(layout, folder / layout.forms[form][0] / "meta")
    return read_batches(layout, folder, form, layout.train), read_batches(layout, folder, form, layout.test)


def _folders(layout: Layout, folder: Path, part: str) -> Images:
    return read_classes(folder, part, official_folders(folder / part, layout.class_names), layout.class_names)


def _shards(layout: Layout, folder: Path, part: str) -> list[Path]:
    return find_shards([folder / below for below in (_PARQUET[layout.title][0], "data", "")], part)


def _parquet(layout: Layout, folder: Path, part: str, batches: tuple[str, ...]) -> Images:
    shards, count = _shards(layout, folder, part), sum(layout.size[batch] for batch in batches)
    return read_parquet(shards, "img", _PARQUET[layout.title][1], layout.class_names, count)


def _check_names(layout: Layout, path: Path) -> None:
    """CIFAR-100 brings its class names along, if the whole archive was unpacked: they must be in the order known."""
    if not path.is_file():
        return
    found = read_python(layout, path).get(b"fine_label_names")
    if found != [name.replace(" ", "_").encode() for name in layout.class_names]:
        raise DataError(f"{path}: its class names are not {layout.title}'s; {layout.again}")


def cifar10_batch5(folder: Path) -> Data:
    """CIFAR-10 with shots from data_batch_5 alone, which the embedded model was not trained on."""
    data = load_cifar10(folder)
    return replace(data, name="cifar10-batch5", train=data.train.subset(np.arange(40_000, 50_000)))


def cifar100_tenth(folder: Path) -> Data:
    """CIFAR-100 with shots from every tenth training photo of a class, which the embedded model was not trained on."""
    data = load_cifar100(folder)
    return replace(data, name="cifar100-tenth", train=data.train.subset(np.arange(0, len(data.train), 10)))


def _folders_alone(folder: Path) -> str | None:
    return "folders" if find_cifar100(folder) == "folders" else None


CIFAR10_SET = NamedDataSet(
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
CIFAR100_SET = NamedDataSet(
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
CIFAR10_BATCH5 = replace(
    CIFAR10_SET,
    name="cifar10-batch5",
    layout="cifar-10-batches-bin/, cifar-10-batches-py/ or data_batch_1..5.png",
    get="as cifar10; shots come from data_batch_5, which mini never saw",
    find=partial(find_batches, TEN),  # other forms need not keep the order of the batches
    load=cifar10_batch5,
)
CIFAR100_TENTH = replace(
    CIFAR100_SET,
    name="cifar100-tenth",
    layout="train/<class>/* and test/<class>/*",
    get="as cifar100, in folders, files under their own names; shots are every tenth, which mini never saw",
    find=_folders_alone,  # other forms are not in the order of the files' names
    load=cifar100_tenth,
)
