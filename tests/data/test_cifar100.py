"""CIFAR-100 in its official forms, written byte for byte as they are; whole, damaged and malicious."""

from __future__ import annotations

import hashlib
import pickle
import struct

import numpy as np
import pytest
from PIL import Image

import unsee
from tests import tiny
from unsee import DataError
from unsee.data.cifar import find_cifar10, find_cifar100, load_cifar10, load_cifar100
from unsee.data.paper_names import CIFAR10, CIFAR100

SIZES = {"train": 50_000, "test": 10_000}


def python2(value) -> bytes:
    """A value as Python 2's cPickle wrote it, protocol 2, without the frame: byte strings, not texts."""
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(key) + python2(item) for key, item in value.items()) + b"u"
    shape = b"".join(map(python2, value.shape)) + b"\x86"
    kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    state = b"(K\x01" + shape + kind + b"\x89" + python2(value.tobytes()) + b"tb"
    return b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R" + state


def write_pickle(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x80\x02" + python2(value) + b".")


@pytest.fixture(scope="module")
def planes():
    """Images that can be told apart, channel by channel as CIFAR stores them: (n, 3072)."""
    made = {part: np.zeros((size, 3072), dtype=np.uint8) for part, size in SIZES.items()}
    for part, rows in made.items():
        for channel, shift in ((0, 0), (1, 8), (2, 16)):
            rows[:, channel * 1024 + 33] = (np.arange(len(rows)) + (part == "test")) >> shift  # row 1, column 1
    return made


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(1)
    return {part: rng.integers(0, 100, size) for part, size in SIZES.items()}


def names():
    return [name.replace(" ", "_").encode() for name in CIFAR100]


@pytest.fixture(scope="module")
def python_form(planes, labels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("python")
    for part, rows in planes.items():
        fine = labels[part].tolist()
        batch = {b"batch_label": b"b", b"fine_labels": fine, b"coarse_labels": [label // 5 for label in fine]}
        write_pickle(folder / "cifar-100-python" / part, batch | {b"data": rows})
    write_pickle(folder / "cifar-100-python" / "meta", {b"fine_label_names": names(), b"coarse_label_names": [b"fish"]})
    return folder


@pytest.fixture(scope="module")
def binary_form(planes, labels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary")
    (folder / "cifar-100-binary").mkdir()
    for part, rows in planes.items():
        heads = np.stack([labels[part] // 5, labels[part]], axis=1).astype(np.uint8)
        np.concatenate([heads, rows], axis=1).tofile(folder / "cifar-100-binary" / f"{part}.bin")
    return folder


@pytest.mark.parametrize("form", ["python", pytest.param("binary", marks=pytest.mark.slow)])
def test_both_official_forms_give_the_fine_labels_and_the_same_pixels(form, request, planes, labels):
    folder = request.getfixturevalue(f"{form}_form")
    assert find_cifar100(folder) == form
    data = load_cifar100(folder, seals={})
    assert data.class_names == CIFAR100
    for part, images in (("train", data.train), ("test", data.test)):
        assert np.array_equal(images.labels, labels[part])
        assert images.source._kept == {}, "labels were read, pixels were not kept"
        for row in (0, 257, SIZES[part] - 1):
            wanted = planes[part][row].reshape(3, 32, 32).transpose(1, 2, 0)
            assert np.array_equal(np.asarray(images.read(row)), wanted)
    assert data.train.source.key(7) == "train[7]"


@pytest.mark.slow
def test_the_python_files_are_held_to_their_checksums(python_form):
    own = {p: hashlib.md5((python_form / "cifar-100-python" / p).read_bytes()).hexdigest() for p in SIZES}
    assert load_cifar100(python_form, seals=own).test.read(0).size == (32, 32)
    for part in SIZES:
        with pytest.raises(DataError, match=rf"{part}: is not CIFAR-100's \(its md5 is not {'0' * 32}"):
            load_cifar100(python_form, seals={**own, part: "0" * 32})


def test_not_even_the_class_names_are_unpickled_from_another_file(python_form):
    with pytest.raises(DataError, match=r"meta: is not CIFAR-100's \(its md5 is not 7973b15100ade9"):
        load_cifar100(python_form)


def linked(folder, target):
    """A copy in which single files can be replaced; the others are links."""
    below = next(folder.iterdir())
    (target / below.name).mkdir(parents=True)
    for file in below.iterdir():
        (target / below.name / file.name).symlink_to(file)
    return target / below.name


def replaced(path, content):
    path.unlink()
    path.write_bytes(content)


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (open, (str(self.marker), "w"))


def test_a_malicious_pickle_runs_nothing(python_form, tmp_path):
    marker = tmp_path / "ran"
    for part in ("train", "test", "meta"):
        below = linked(python_form, tmp_path / part)
        replaced(below / part, pickle.dumps({b"fine_labels": Bomb(marker), b"fine_label_names": Bomb(marker)}))
        with pytest.raises(DataError, match=rf"{part}: refused, it holds more than data \(it asks for io.open\)"):
            load_cifar100(tmp_path / part, seals={})
    assert not marker.exists()


@pytest.mark.slow
def test_damaged_and_strange_batches_are_one_clear_line(python_form, binary_form, tmp_path):
    whole = (python_form / "cifar-100-python" / "test").read_bytes()
    for number, (content, message) in enumerate(
        (
            (whole[: len(whole) // 2], r"test: damaged, or not a CIFAR batch"),
            (b"", "test: damaged, or not a CIFAR batch"),
            (pickle.dumps({b"labels": [1]}), "test: holds no list of 'fine_labels'"),
            (pickle.dumps({b"fine_labels": [1, 2]}), "the labels of test are damaged"),
            (pickle.dumps({b"fine_labels": [100] * 10_000}), "the labels of test are damaged"),
        )
    ):
        below = linked(python_form, tmp_path / str(number))
        replaced(below / "test", content)
        with pytest.raises(DataError, match=message) as caught:
            load_cifar100(tmp_path / str(number), seals={})
        assert "\n" not in str(caught.value)
    below = linked(python_form, tmp_path / "data")
    replaced(below / "test", pickle.dumps({b"fine_labels": [1] * 10_000, b"data": np.zeros((3, 3072), np.uint8)}))
    with pytest.raises(DataError, match="test: holds no uint8 'data' of shape"):
        load_cifar100(tmp_path / "data", seals={}).test.read(0)
    below = linked(python_form, tmp_path / "names")
    (below / "meta").unlink()
    write_pickle(below / "meta", {b"fine_label_names": names()[::-1]})
    with pytest.raises(DataError, match="meta: its class names are not CIFAR-100's"):
        load_cifar100(tmp_path / "names", seals={})
    below = linked(binary_form, tmp_path / "binary")
    replaced(below / "test.bin", (binary_form / "cifar-100-binary" / "test.bin").read_bytes()[:-5])
    with pytest.raises(DataError, match=r"test\.bin: is 30739995 bytes long, not 30740000"):
        load_cifar100(tmp_path / "binary")


@pytest.mark.parametrize(
    ("find", "load", "class_names"),
    [(find_cifar10, load_cifar10, CIFAR10), (find_cifar100, load_cifar100, CIFAR100)],
)
def test_class_folders_have_the_official_names_and_order(find, load, class_names, tmp_path):
    folders = [name.replace(" ", "_") for name in class_names]
    tiny.write_images(tmp_path, names=folders, train=2, test=1, size=32)
    assert find(tmp_path) == "folders"
    for file in tmp_path.glob("*/*/*"):
        file.write_bytes(b"")  # listing does not open images
    data = load(tmp_path)
    assert data.class_names == class_names
    assert data.train.labels.tolist() == [label for label in range(len(class_names)) for _ in range(2)]
    assert data.test.name(3).endswith(f"test/{folders[3]}/000.png")
    with pytest.raises(unsee.ImageError, match="the file is empty"):
        data.test.read(3)
    last = tmp_path / "test" / folders[-1]
    last.rename(tmp_path / "test" / "zebra")
    with pytest.raises(DataError, match=r"test: the folder 'zebra' is none of the \d+ classes"):
        load(tmp_path)
    (tmp_path / "test" / "zebra").rename(tmp_path / "zebra")
    with pytest.raises(DataError, match=f"test: the class '{class_names[-1]}' of"):
        load(tmp_path)


def test_spellings_of_one_class_are_refused(tmp_path):
    tiny.write_images(tmp_path, names=[*CIFAR100, "maple_tree"], train=1, test=1, size=8)
    with pytest.raises(DataError, match="the folders 'maple tree' and 'maple_tree' stand for one class"):
        load_cifar100(tmp_path)


def test_jpegs_are_read_too(tmp_path):
    tiny.write_images(tmp_path, names=CIFAR10, train=1, test=1, size=32)
    for file in tmp_path.glob("*/cat/000.png"):
        Image.open(file).save(file.with_suffix(".jpg"))
        file.unlink()
    train = load_cifar10(tmp_path).train
    assert train.name(3).endswith("cat/000.jpg")
    assert train.read(3).size == (32, 32)


def test_cifar100_tenth_takes_shots_from_every_tenth_photo_of_a_class(tmp_path):
    folders = [name.replace(" ", "_") for name in CIFAR100]
    tiny.write_images(tmp_path / "cifar100", names=folders, train=20, test=1, size=32)
    data = unsee.load_data("cifar100-tenth", data_dir=tmp_path)
    assert len(data.train) == 200
    assert len(data.test) == 100
    assert [data.train.name(i)[-7:] for i in range(2)] == ["000.png", "010.png"]
    assert np.bincount(data.train.labels).tolist() == [2] * 100


def test_cifar100_tenth_needs_the_files_own_names(tmp_path):
    with pytest.raises(DataError, match="cifar100-tenth is not in"):
        unsee.load_data("cifar100-tenth", data_dir=tmp_path)
