"""ImageNet by six photos of each class, in the form of two public repositories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import unsee
from unsee import DataError
from unsee.data.imagenet_six import CALLED, CLASS_INDEX, PHOTOS, SAMPLES, load_imagenet_six
from unsee.data.paper_names import IMAGENET30

OTHERS = ("Great_Dane", "Crane", "crane")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Classes in an order that is not that of their synsets, as 33 folders of five photos."""
    root = tmp_path_factory.mktemp("data") / "imagenet-six"
    names = [*(CALLED.get(name, name).replace(" ", "_") for name in IMAGENET30), *OTHERS]
    index = {str(i): [f"n{99 - i:08}", name] for i, name in enumerate(names)}
    (root / SAMPLES).mkdir(parents=True)
    for i, (synset, name) in index.items():
        (root / PHOTOS / i).mkdir(parents=True)
        for k in range(5):
            Image.new("RGB", (4, 4), (int(i), k, 0)).save(root / PHOTOS / i / f"ILSVRC2012_val_{k:08}.JPEG")
        Image.new("RGB", (4, 4), (int(i), 9, 0)).save(root / SAMPLES / f"{synset}_{name}.JPEG")
    (root / SAMPLES / "gallery.JPEG").write_bytes(b"")
    (root / CLASS_INDEX).write_text(json.dumps(index))
    return root


def test_shots_are_the_last_two_photos_and_the_sample_is_to_test_on(folder):
    data = unsee.load_data("imagenet-six", data_dir=folder.parent)
    assert (len(data.class_names), len(data.train), len(data.test)) == (33, 66, 33)
    assert {Path(data.train.name(i)).stem[-1] for i in range(66)} == {"3", "4"}
    assert data.class_names[:3] == ("crane", "Crane", "Great Dane")
    assert data.class_names[-1] == "acorn"
    for part in (data.train, data.test):
        for i in range(len(part)):
            number = 32 - part.labels[i]  # the synsets count down
            assert abs(part.read(i).convert("RGB").getpixel((0, 0))[0] - number) <= 3


def test_thirty_classes_are_those_of_imagenet30_under_its_names(folder):
    data = unsee.load_data("imagenet30-six", data_dir=folder.parent)
    assert data.class_names == IMAGENET30
    assert (len(data.train), len(data.test)) == (60, 30)
    telephone = IMAGENET30.index("rotary dial telephone")
    assert "dial_telephone" in data.test.name(telephone)
    assert {Path(data.train.name(i)).parent.name for i in (0, 1)} == {"0"}


def test_names_beside_the_repositories_win(folder):
    index = json.loads((folder / CLASS_INDEX).read_text())
    path = folder / "classnames.txt"
    path.write_text("".join(f"{synset} the {name}\n" for synset, name in index.values()))
    try:
        assert unsee.load_data("imagenet-six", data_dir=folder.parent).class_names[-1] == "the acorn"
        assert unsee.load_data("imagenet30-six", data_dir=folder.parent).class_names == IMAGENET30
        path.write_text("n12345678 unicorn\n")
        with pytest.raises(DataError, match=r"n12345678 \(unicorn\) is none of the classes"):
            unsee.load_data("imagenet-six", data_dir=folder.parent)
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda root: (root / SAMPLES / "n00000099_acorn.JPEG").unlink(), r"has no photo of n00000099 \(acorn\)"),
        (
            lambda root: [(root / PHOTOS / "0" / f"ILSVRC2012_val_{k:08}.JPEG").unlink() for k in (3, 4)],
            "behind the first 3",
        ),
        (lambda root: (root / CLASS_INDEX).write_text("[]"), "damaged|must be like"),
        (lambda root: (root / CLASS_INDEX).unlink(), "no imagenet30-six in"),
        (
            lambda root: (root / CLASS_INDEX).write_text((root / CLASS_INDEX).read_text().replace("acorn", "nut")),
            "no class 'acorn'",
        ),
    ],
)
def test_what_is_missing_is_named(folder, tmp_path, damage, said):
    import shutil

    root = shutil.copytree(folder, tmp_path / "imagenet-six")
    damage(root)
    with pytest.raises(DataError, match=said):
        load_imagenet_six(root, "imagenet30-six")
