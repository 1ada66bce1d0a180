"""CIFAR in the parquet files of Hugging Face's repositories."""

from __future__ import annotations

import io
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import unsee
from unsee import DataError, ImageError
from unsee.data.cifar import find_cifar10, find_cifar100, load_cifar10, load_cifar100
from unsee.data.paper_names import CIFAR10, CIFAR100

COUNTS = {"train": 50_000, "test": 10_000}
IMG = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
REPOSITORIES = {
    "uoft-cs/cifar10": ("plain_text", "label", find_cifar10, load_cifar10, CIFAR10),
    "uoft-cs/cifar100": ("cifar100", "fine_label", find_cifar100, load_cifar100, CIFAR100),
}


def png(value):
    out = io.BytesIO()
    Image.fromarray(np.full((32, 32, 3), value, dtype=np.uint8)).save(out, "png")
    return out.getvalue()


PNGS = [png(value) for value in range(251)]  # image i is of colour i % 251


def table(first, count, label, labels):
    files = [{"bytes": PNGS[i % 251], "path": None} for i in range(first, first + count)]
    columns = {"img": pa.array(files, IMG), label: pa.array(labels[first : first + count], pa.int64())}
    return pa.table(columns | ({"coarse_label": columns[label]} if label == "fine_label" else {}))


def write_parquet(folder, below, label, labels, shards=1):
    (folder / below).mkdir(parents=True)
    for part, count in COUNTS.items():
        each = count // shards
        for shard in range(shards):
            path = folder / below / f"{part}-{shard:05}-of-{shards:05}.parquet"
            pq.write_table(table(shard * each, each, label, labels[part]), path, row_group_size=1000)


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(2)
    return {part: rng.integers(0, 10, count) for part, count in COUNTS.items()}


@pytest.fixture
def folder(tmp_path, labels):
    write_parquet(tmp_path, "plain_text", "label", labels)
    return tmp_path


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("repository", REPOSITORIES)
def test_both_repositories_are_read_lazily(repository, shards, tmp_path, labels):
    below, label, find, load, class_names = REPOSITORIES[repository]
    write_parquet(tmp_path, below, label, labels, shards)
    assert find(tmp_path) == "parquet"
    data = load(tmp_path)
    assert data.class_names == class_names
    assert np.array_equal(data.train.labels, labels["train"])
    assert np.array_equal(data.test.labels, labels["test"])
    assert data.train.source._kept == {}
    for row in (0, 999, 1000, 25_000, 49_999):
        assert np.asarray(data.train.read(row)).tolist() == np.full((32, 32, 3), row % 251).tolist()
    assert len(data.train.source._kept) == 4, "only the row groups asked for"
    assert data.train.digest(5) == data.train.digest(256) != data.train.digest(6)
    place = f"train-0000{shards - 1}-of-0000{shards}"
    assert data.train.source.key(49_999) == f"{place}[{50_000 // shards - 1}]"
    assert data.train.name(49_999) == str(tmp_path / below / f"{place}.parquet[{50_000 // shards - 1}]")
    assert data.listing == load(tmp_path).listing


def test_labels_are_read_though_the_images_are_destroyed(folder, labels):
    path = folder / "plain_text" / "train-00000-of-00001.parquet"
    group = pq.ParquetFile(path).metadata.row_group(3)
    image = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "img.bytes")
    start = min(o for o in (image.data_page_offset, image.dictionary_page_offset) if o)
    content = bytearray(path.read_bytes())
    content[start : start + image.total_compressed_size] = b"\xff" * image.total_compressed_size
    path.write_bytes(content)
    data = load_cifar10(folder)
    assert np.array_equal(data.train.labels, labels["train"])
    assert data.train.read(2999).size == (32, 32)
    with pytest.raises(DataError, match=r"train-00000-of-00001\.parquet: damaged, or not a parquet file") as caught:
        data.train.read(3000)
    assert "\n" not in str(caught.value)


def test_a_row_that_is_no_image_is_named(folder):
    path = folder / "plain_text" / "test-00000-of-00001.parquet"
    files = [{"bytes": PNGS[0], "path": None}] * 9_998 + [{"bytes": b"no image", "path": None}, None]
    pq.write_table(pa.table({"img": pa.array(files, IMG), "label": pa.array([1] * 10_000)}), path)
    test = load_cifar10(folder).test
    with pytest.raises(ImageError, match=r"parquet\[9998\]: not an image this machine can decode"):
        test.read(9_998)
    with pytest.raises(ImageError, match=r"parquet\[9999\]: the row holds no image"):
        test.read(9_999)


def test_what_is_damaged_or_strange_is_one_clear_line(folder, labels):
    path = folder / "plain_text" / "test-00000-of-00001.parquet"
    whole = path.read_bytes()

    def refused(message):
        with pytest.raises(DataError, match=message) as caught:
            load_cifar10(folder)
        assert "\n" not in str(caught.value)

    for content in (whole[: len(whole) // 2], b"", b"PAR1"):
        path.write_bytes(content)
        refused(r"test-00000-of-00001\.parquet: damaged, or not a parquet file")
    images = pa.array([{"bytes": PNGS[0], "path": None}] * 3, IMG)
    for columns, message in (
        ({"img": images}, "has no column 'label'"),
        ({"label": pa.array([1, 2, 3])}, r"has no column 'img\.bytes'"),
        ({"img": images, "label": pa.array(["cat", "dog", "cat"])}, "whole numbers without gaps, not string"),
        ({"img": images, "label": pa.array([1, None, 3])}, "whole numbers without gaps"),
        ({"img": images, "label": pa.array([1, 2, 3])}, "hold 3 images, not 10000"),
    ):
        pq.write_table(pa.table(columns), path)
        refused(message)
    pq.write_table(table(0, 10_000, "label", [10] * 10_000), path)
    refused("a 'label' is 10; there are 10 classes")
    path.rename(path.with_name("test-00000-of-00002.parquet"))
    refused("has 1 of the 2 files test-")


def test_without_pyarrow_the_install_line_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what an import finds where it is not installed
    with pytest.raises(unsee.MissingExtra, match=r"pip install .*\[parquet\]"):
        load_cifar10(folder)


def test_shots_of_the_fifth_batch_need_the_official_order(tmp_path, labels):
    write_parquet(tmp_path / "cifar10", "plain_text", "label", labels)
    assert len(unsee.load_data("cifar10", data_dir=tmp_path).train) == 50_000
    with pytest.raises(DataError, match="cifar10-batch5 is not in"):
        unsee.load_data("cifar10-batch5", data_dir=tmp_path)
