from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

import unsee
from tests import tiny
from unsee import DataError, InputError
from unsee.data.splits import few_shot_split, largest_shots


def test_a_folder_with_train_and_test_is_read_with_its_class_names(image_folder):
    data = unsee.load_data(image_folder)
    assert data.class_names == tiny.NAMES
    assert (len(data.train), len(data.test)) == (80, 60)
    assert data.train.name(0).endswith("train/airplane/000.png")


def test_class_folders_alone_are_halved_by_seed(image_folder):
    halves = [unsee.load_data(image_folder / "train", seed=seed) for seed in (0, 0, 1)]
    assert all(len(half.train) == len(half.test) == 40 for half in halves)
    names = [{half.train.name(i) for i in range(40)} for half in halves]
    assert names[0] == names[1] != names[2]
    assert not names[0] & {halves[0].test.name(i) for i in range(40)}


def test_a_negative_seed_is_one_line(image_folder):
    with pytest.raises(InputError, match="seed must not be negative, but is -1"):
        unsee.load_data(image_folder / "train", seed=-1)


def test_underscores_in_folder_names_are_spaces_in_class_names(tmp_path):
    tiny.write_images(tmp_path, names=("sea_lion", "otter"), train=2, test=1)
    assert unsee.load_data(tmp_path).class_names == ("otter", "sea lion")


def test_folders_that_cannot_be_data_say_why(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        unsee.load_data(tmp_path / "nothing")
    with pytest.raises(DataError, match="holds no class folders"):
        unsee.load_data(tmp_path)
    tiny.write_images(tmp_path, names=("a", "b"), train=2, test=1)
    shutil.rmtree(tmp_path / "test" / "b")
    with pytest.raises(DataError, match=r"class 'b' has no images in .*test"):
        unsee.load_data(tmp_path)
    shutil.rmtree(tmp_path / "test")
    with pytest.raises(DataError, match="has train/ but no test/"):
        unsee.load_data(tmp_path)


def put_images(*folders, count=4):
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"{i}.png")


@pytest.mark.parametrize("names", [("train", "bus", "car"), ("test", "val"), ("train", "test", "bus"), ("Valid", "a")])
def test_a_class_may_be_called_train_or_test(tmp_path, names):
    put_images(*(tmp_path / name for name in names))
    data = unsee.load_data(tmp_path)
    assert data.class_names == tuple(sorted(names))
    assert len(data.train) == len(data.test) == 2 * len(names)


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_a_class_called_train_may_be_in_a_folder_with_train_and_test(tmp_path, test):
    put_images(*(tmp_path / part / name for part in ("train", test) for name in ("train", "bus")))
    put_images(tmp_path / "unlabelled")
    data = unsee.load_data(tmp_path)
    assert data.class_names == ("bus", "train")
    assert (len(data.train), len(data.test), data.split_seed) == (8, 8, None)


def test_a_test_folder_without_class_folders_gives_way_to_one_that_has_them(tmp_path):
    put_images(*(tmp_path / part / name for part in ("train", "val") for name in ("car", "bus")), tmp_path / "test")
    assert unsee.load_data(tmp_path).test.name(0).endswith("val/bus/0.png")


def test_a_folder_that_may_be_a_class_or_a_part_is_refused_with_a_way_out(tmp_path):
    put_images(*(tmp_path / "train" / name for name in ("car", "bus")), tmp_path / "test")
    with pytest.raises(DataError, match=r"train/ holds class folders, but test/ holds images.*test/<class>/.*move"):
        unsee.load_data(tmp_path)
    shutil.rmtree(tmp_path / "test")
    put_images(tmp_path / "bus", tmp_path / "train")
    with pytest.raises(DataError, match=r"has train/ but no test/ .*if 'train' is a class, move the folders"):
        unsee.load_data(tmp_path)


def test_the_fingerprint_follows_names_and_labels(image_folder, tmp_path):
    before = unsee.load_data(image_folder).listing
    assert unsee.load_data(image_folder).listing == before
    copy = shutil.copytree(image_folder, tmp_path / "copy")
    assert unsee.load_data(copy).listing == before, "where it is stored does not matter"
    (copy / "train" / "cat" / "000.png").rename(copy / "train" / "cat" / "900.png")
    assert unsee.load_data(copy).listing != before


def test_a_split_has_k_and_k_different_images_of_each_class(data):
    split = few_shot_split(data.train, 3, seed=0)
    for rows in (split.train, split.valid):
        assert np.bincount(data.train.labels[rows]).tolist() == [3] * 10
    assert not set(split.train) & set(split.valid)
    again, other = few_shot_split(data.train, 3, seed=0), few_shot_split(data.train, 3, seed=1)
    assert np.array_equal(split.train, again.train)
    assert not np.array_equal(split.train, other.train)


def test_too_few_images_name_the_class_and_the_way_out(data):
    with pytest.raises(DataError, match=r"class 'airplane' has 8 images to tune on; 5 shots need 10.*--shots 4"):
        few_shot_split(data.train, 5, seed=0)
    assert largest_shots(data.train) == 4


def test_bad_images_are_skipped_only_if_asked(image_folder, tmp_path):
    copy = shutil.copytree(image_folder, tmp_path / "copy")
    for i in range(2):
        (copy / "train" / "cat" / f"00{i}.png").write_bytes(b"")
    train = unsee.load_data(copy).train
    split = few_shot_split(train, 3, seed=0, skip_bad_images=True)
    used = {train.name(int(i)) for i in (*split.train, *split.valid)}
    assert not any(name.endswith(("cat/000.png", "cat/001.png")) for name in used)
    assert len(split.train) == len(split.valid) == 30
    with pytest.raises(DataError, match="class 'cat' has only 6 readable images"):
        few_shot_split(train, 4, seed=0, skip_bad_images=True)
