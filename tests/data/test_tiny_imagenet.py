"""Tiny-ImageNet in the form of its archive, whole and as thirty of its classes."""

from __future__ import annotations

import shutil

import pytest

import unsee
from benchmarks.true_forms import write_tiny_imagenet
from unsee import DataError
from unsee.data.paper_names import IMAGENET30
from unsee.data.tiny_imagenet import ROOT, thirty


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_tiny_imagenet(folder / "tiny-imagenet" / ROOT, classes=60)
    return folder


def test_shots_come_from_photos_that_mini_was_not_trained_on(archive):
    data = unsee.load_data("tiny200", data_dir=archive)
    assert (len(data.class_names), len(data.train), len(data.test)) == (60, 120, 60)
    assert {file.rpartition("_")[2] for file in data.train.source.files} == {"150.JPEG", "499.JPEG"}
    assert data.train.labels.tolist() == sorted(data.train.labels.tolist())
    assert data.test.read(0).size == (64, 64)


def test_thirty_classes_are_those_of_imagenet30_and_others_evenly_spaced(archive):
    every, data = (unsee.load_data(name, data_dir=archive) for name in ("tiny200", "tiny30"))
    shared = [name for name in data.class_names if name.lower() in IMAGENET30]
    assert (len(data.class_names), len(shared)) == (30, 9)
    assert list(data.class_names) == sorted(data.class_names, key=str.lower)
    others = [name for name in every.class_names if name.lower() not in IMAGENET30]
    assert set(data.class_names) - set(shared) == {others[i * 51 // 21] for i in range(21)}
    synsets = {f"n{i:08}": name for i, name in enumerate(every.class_names)}
    assert [synsets[synset] for synset in thirty(synsets)] == list(data.class_names)


def test_an_archive_that_is_not_whole_names_what_is_missing(archive, tmp_path):
    root = tmp_path / "tiny-imagenet" / ROOT
    shutil.copytree(archive / "tiny-imagenet" / ROOT, root)
    with (root / "val" / "val_annotations.txt").open("a") as file:
        file.write("val_60.JPEG\tn99999999\t0\t0\t1\t1\n")
    with pytest.raises(DataError, match=r"val_annotations.txt, line 61: wanted .* one of the synsets"):
        unsee.load_data("tiny200", data_dir=tmp_path)
    (root / "wnids.txt").write_text((root / "wnids.txt").read_text() + "n99999999\n")
    with pytest.raises(DataError, match=r"words\.txt: has no name for n99999999"):
        unsee.load_data("tiny200", data_dir=tmp_path)
    (root / "words.txt").unlink()
    with pytest.raises(DataError, match="tiny200 is not in"):
        unsee.load_data("tiny200", data_dir=tmp_path)
