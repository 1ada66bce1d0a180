"""CUB-200-2011 in the layout of its archive, and in class folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import unsee
from unsee import DataError, ImageError
from unsee.data.cub import find_cub200, load_cub200

CLASSES = ("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Chuck_will_Widow")
EACH = 4  # images a class; the first and third are to train on


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "cub200" / "CUB_200_2011"
    lines = {name: [] for name in ("classes", "images", "image_class_labels", "train_test_split")}
    number = 0
    for label, folder in enumerate(CLASSES, 1):
        (root / "images" / folder).mkdir(parents=True)
        lines["classes"].append(f"{label} {folder}")
        for i in range(EACH):
            number += 1
            file = f"{folder}/{folder[4:]}_{i:04}_{number}.jpg"
            Image.new("RGB", (20, 16), (number * 20, 0, 0)).save(root / "images" / file)
            lines["images"].append(f"{number} {file}")
            lines["image_class_labels"].append(f"{number} {label}")
            lines["train_test_split"].append(f"{number} {(i + 1) % 2}")
    for name, own in lines.items():
        (root / f"{name}.txt").write_text("\n".join(own) + "\n")
    return root


def test_the_half_takes_shots_from_every_second_training_photo_by_name(root):
    whole = load_cub200(root.parent)
    (root / "train_test_split.txt").write_text(
        "".join(f"{n} {int(n % EACH > 0)}\n" for n in range(1, len(CLASSES) * EACH + 1))
    )
    data = unsee.load_data("cub200-half", data_dir=root.parents[1])
    assert data.class_names == whole.class_names
    assert data.train.labels.tolist() == [0, 1, 2]
    assert [Path(data.train.name(i)).stem[-6:] for i in range(3)] == ["0001_2", "0001_6", "001_10"]
    assert len(data.test) == 3


def test_names_labels_and_parts_are_those_of_the_index_files(root):
    assert find_cub200(root.parent) == find_cub200(root) == "archive"
    data = unsee.load_data("cub200", data_dir=root.parent.parent)
    assert data.class_names == ("Black footed Albatross", "Laysan Albatross", "Chuck will Widow")
    assert data.train.labels.tolist() == data.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.train.name(1).endswith(
        "CUB_200_2011/images/001.Black_footed_Albatross/Black_footed_Albatross_0002_3.jpg"
    )
    assert abs(int(np.asarray(data.test.read(5))[0, 0, 0]) - 12 * 20) < 8
    assert load_cub200(root).listing == data.listing


def test_images_are_not_opened_to_list_them(root):
    before = load_cub200(root)
    shutil.rmtree(root / "images" / CLASSES[1])
    after = load_cub200(root)
    assert after.listing == before.listing
    with pytest.raises(ImageError, match=r"002\.Laysan_Albatross.*No such file"):
        after.train.read(2)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("images", lambda s: s[: s.index("6 002")], r"image_class_labels\.txt, line 6: image 6 is not in images\.txt"),
        ("images", lambda s: s.replace("5 002.", "5 "), r"images\.txt, line 5: image 5 is 'Laysan_Albatross/"),
        ("images", lambda s: s.replace("5 002.Laysan_Albatross/", "5 ../"), r"images\.txt, line 5: image 5 is '\.\./"),
        ("images", lambda s: s.replace("5 002", "four 002"), r"images\.txt, line 5: wanted a number and a text"),
        ("images", lambda s: s.replace("5 002", "4 002"), r"images\.txt, line 5: number 4 came before, on line 4"),
        ("images", lambda s: "", r"images\.txt: empty"),
        (
            "image_class_labels",
            lambda s: s[:-5],
            r"image_class_labels\.txt: damaged, image 12 of images",
        ),
        ("image_class_labels", lambda s: s.replace("7 2", "7 9"), r"image_class_labels\.txt, line 7: '9' is no class"),
        ("image_class_labels", lambda s: s.replace("7 2", "7 x"), r"image_class_labels\.txt, line 7: 'x' is no class"),
        ("image_class_labels", lambda s: s.replace("7 2", "7 3"), r"images\.txt, line 7: image 7 is '002\..*not 003\."),
        ("train_test_split", lambda s: s[:-3], r"train_test_split\.txt, line 12: wanted a number and a text"),
        ("train_test_split", lambda s: s.replace("7 1", "7 2"), r"train_test_split\.txt, line 7: must be 1 \(train\)"),
        ("train_test_split", lambda s: s + "13 1\n", r"train_test_split\.txt, line 13: image 13 is not in images\.txt"),
        ("train_test_split", lambda s: s.replace(" 0", " 1"), r"class '001\..*' has no image to test on"),
        ("classes", lambda s: s.splitlines()[0], r"image_class_labels\.txt, line 5: '2' is no class"),
        ("classes", lambda s: s.replace("2 002", "4 002"), r"classes\.txt, line 3: class 2 is missing"),
        (
            "classes",
            lambda s: s.replace("002.Laysan", "Laysan"),
            r"classes\.txt, line 2: a class is written like",
        ),
    ],
)
def test_damaged_and_inconsistent_index_files_name_file_and_line(root, name, change, message):
    path = root / f"{name}.txt"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=message) as caught:
        load_cub200(root)
    assert "\n" not in str(caught.value)


def test_what_is_no_text_or_not_there_is_said(root):
    (root / "images.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"images\.txt: damaged, it is no text"):
        load_cub200(root)
    (root / "images.txt").unlink()
    assert find_cub200(root) is None
    with pytest.raises(DataError, match="no CUB-200-2011 in"):
        load_cub200(root)
    with pytest.raises(DataError, match=r"cub200 is not in .*CUB_200_2011\.tgz \(md5 97eceeb196236b17"):
        unsee.load_data("cub200", data_dir=root.parent.parent)


@pytest.fixture
def folders(root, tmp_path):
    """The same images, moved to `<part>/<class>/`."""
    data = load_cub200(root)
    for part in ("train", "test"):
        images = getattr(data, part)
        for row in range(len(images)):
            old = Path(images.name(row))
            new = tmp_path / "copy" / "cub200" / part / old.parent.name / old.name
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(old, new)
    return tmp_path / "copy" / "cub200"


def test_class_folders_hold_the_same_images_in_the_same_order(root, folders):
    assert find_cub200(folders) == "folders"
    archive, copied = load_cub200(root), unsee.load_data("cub200", data_dir=folders.parent)
    assert copied.class_names == archive.class_names
    for part in ("train", "test"):
        one, other = getattr(archive, part), getattr(copied, part)
        assert [Path(one.name(i)).name for i in range(len(one))] == [
            Path(other.name(i)).name for i in range(len(other))
        ]
        assert one.labels.tolist() == other.labels.tolist()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("train/002.Laysan_Albatross", "train/004.Laysan_Albatross", r"wanted class 2, .* not '003\.Chuck_will_Widow'"),
        ("train/002.Laysan_Albatross", "train/Laysan_Albatross", r"wanted class 2, .* not '003\.Chuck_will_Widow'"),
        ("train/002.Laysan_Albatross", "train/002.", r"wanted class 2, .* not '002\.'"),
        (
            "test/003.Chuck_will_Widow",
            "test/003.Chuck",
            r"class folder '003\.Chuck' is in one of train/ and test/ alone",
        ),
    ],
)
def test_class_folders_that_are_not_the_official_ones_are_named(folders, old, new, message):
    (folders / old).rename(folders / new)
    with pytest.raises(DataError, match=message) as caught:
        load_cub200(folders)
    assert "\n" not in str(caught.value)
