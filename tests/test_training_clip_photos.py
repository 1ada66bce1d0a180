"""The photos of the model on CLIP's image tower: which, in which order, and what the package finds of them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("onnx", reason="install the extra: pip install -e '.[training]'")

import training.clip_image as clip_image
import unsee
from benchmarks.true_forms import write_folders
from tests.test_training_clip import SIDE, WIDTH, clip_encoder, photo_set, tower  # noqa: F401
from training.clip_bank import TRAINED, _by_folder, _split, chosen, in_turns, joined_sets
from training.clip_image import FILE
from training.data_folder import lay_out
from training.encoders import ENCODERS
from training.features import extract_all, load
from training.package_photos import images_in_turns, package_data, photos_to_test, shot_photos
from training.photos import PhotoSet
from training.record import Log
from unsee.data.paper_names import CIFAR100
from unsee.methods.task import make_task
from unsee.models.fast.embedded import OnnxEncoder
from unsee.models.features import FeatureCache


def test_a_stopped_encoding_resumes_and_gives_the_same_features(tower, tmp_path):
    a, b = photo_set("a"), photo_set("b", 6)
    encoder = clip_encoder([(a, 1), (b, 1), (a, 10), (b, 6)])
    log = Log(tmp_path / "log.jsonl")
    extract_all(encoder, tower, tmp_path / "whole", 1, log)
    calls = iter(range(7))

    def stops(image):
        if next(calls, None) is None:
            raise KeyboardInterrupt  # at the eighth photo
        return clip_image.prepare(image)

    with pytest.raises(KeyboardInterrupt):
        extract_all(replace(encoder, prepare=stops), tower, tmp_path / "part", 1, log)
    assert len(load("a", tmp_path / "part").keys) == 5
    extract_all(encoder, tower, tmp_path / "part", 1, log)
    for name, count in (("a", 10), ("b", 6)):
        whole, part = (load(name, tmp_path / where) for where in ("whole", "part"))
        assert whole.features.shape == (count, WIDTH)
        assert np.array_equal(whole.features, part.features)
        assert np.array_equal(whole.colours, part.colours)
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert (last["photos"], last["of_all"], last["time_left"]) == (16, 16, "0 h 0 min")
    assert last["rate"] > 0


def test_a_limit_encodes_as_many_of_each_set_and_more_later(tower, tmp_path):
    encoder = clip_encoder([(photo_set("a"), 10), (photo_set("b", 2), 2)])
    for limit, counts in ((3, (3, 2)), (5, (5, 2)), (None, (10, 2))):
        extract_all(encoder, tower, tmp_path / "cache", 1, Log(tmp_path / "log.jsonl"), limit)
        assert tuple(len(load(name, tmp_path / "cache").keys) for name in ("a", "b")) == counts


def test_photos_that_the_package_reads_are_in_its_cache_to_the_last_digit(tower, tmp_path):
    photos = photo_set("a", 6)
    known = replace(photos, name="a-test", digest=lambda i: bytes([i]), to_test=True)
    encoder, log, shared = clip_encoder([(photos, 6), (known, 6)]), Log(tmp_path / "log.jsonl"), FeatureCache(tmp_path)
    fingerprint = clip_image.fingerprint(tower)
    assert encoder.fingerprint(tower) == fingerprint
    extract_all(encoder, tower, tmp_path / "cache", 1, log, shared=shared, tests=False)
    assert not (tmp_path / "cache" / "a-test.json").exists()
    keys = [bytes([i]) for i in range(6)]
    extract_all(encoder, tower, tmp_path / "cache", 1, log, limit=5, shared=shared)
    found = shared.get(fingerprint, keys)
    assert list(found) == [0, 1, 2, 3, 4]
    opened = OnnxEncoder(tower / FILE, SIDE, 1, clip_image.HOW, at_once=1)
    for i, feature in found.items():
        assert np.array_equal(feature, opened.encode([opened.prepare(photos.picture(i))])[0])
    empty = FeatureCache(tmp_path / "new")
    extract_all(encoder, tower, tmp_path / "cache", 1, log, limit=5, shared=empty)
    again = empty.get(fingerprint, keys)
    assert list(again) == list(found)
    assert all(np.array_equal(again[i], found[i]) for i in found)


def plan_of_two(sources: Path) -> list[tuple[PhotoSet, int]]:
    return [(photo_set("a"), 3), (photo_set("b", 6), 6), (photo_set("a"), 10)]


def open_plainly(sources: Path, cache: Path, threads: int):
    return lambda pixels: np.stack([one[:WIDTH, 0, 0] / np.float32(7) for one in pixels])


def test_several_processes_give_what_one_gives(tmp_path):
    encoder = replace(ENCODERS["clip-b16"], numbers=WIDTH, chunk=2, plan=plan_of_two, open=open_plainly)
    for workers in (1, 2):
        log = Log(tmp_path / f"{workers}.jsonl")
        extract_all(encoder, tmp_path, tmp_path / f"{workers}", 1, log, limit=5, workers=workers)
        extract_all(encoder, tmp_path, tmp_path / f"{workers}", 1, log, workers=workers)
    for name, count in (("a", 10), ("b", 6)):
        one, two = (load(name, tmp_path / workers) for workers in "12")
        assert one.keys == two.keys
        assert one.features.shape == (count, WIDTH)
        assert np.array_equal(one.features, two.features)
        assert np.array_equal(one.colours, two.colours)
        assert np.ptp(one.features)


def test_features_of_other_photos_are_not_mixed_in(tower, tmp_path):
    log = Log(tmp_path / "log.jsonl")
    extract_all(clip_encoder([(photo_set("a"), 3)]), tower, tmp_path, 1, log)
    with pytest.raises(ValueError, match="lists other photos"):
        extract_all(clip_encoder([(photo_set("a", 11), 3)]), tower, tmp_path, 1, log)


def test_no_photo_is_both_trained_on_and_held_out():
    keys = tuple(f"{k:03d}.Some_Bird/{i}.jpg" for k in (1, 2) for i in range(5))
    whole = PhotoSet("cub200", keys, lambda i: Image.new("L", (1, 1), i))
    places = _by_folder(whole)
    train, held = _split("cub200", whole, lambda i, key: places[i] % 2 == 1)
    assert [key.split("/")[1] for key in held.keys] == ["1.jpg", "3.jpg"] * 2
    assert sorted((*train.keys, *held.keys)) == sorted(keys)
    assert train.picture(3).getpixel((0, 0)) == keys.index(train.keys[3])


def test_a_set_is_mixed_the_same_way_every_time_and_every_class_has_its_turn():
    whole = PhotoSet("x", tuple(f"{i // 10}/{i}" for i in range(50)), lambda i: Image.new("L", (1, 1), i))
    first, again = in_turns(whole), in_turns(whole)
    assert first.keys == again.keys != whole.keys
    assert all(first.picture(i).getpixel((0, 0)) == int(key[2:]) for i, key in enumerate(first.keys))
    classes = [key[0] for key in first.keys]
    assert all(sorted(classes[i : i + 5]) == list("01234") for i in range(0, 50, 5))
    assert len({tuple(classes[i : i + 5]) for i in range(0, 50, 5)}) > 1
    two = joined_sets("two", [whole, chosen("part", whole, [7, 3])])
    assert two.keys[50:] == ("0/7", "0/3")
    assert two.picture(51).getpixel((0, 0)) == 3


def test_the_plan_says_how_many_photos_there_are_in_all():
    assert sum(TRAINED.values()) == 24_470


def test_held_out_photos_are_the_shots_of_the_package_and_tests_come_in_turns(tmp_path):
    write_folders(tmp_path / "data" / "cifar100", "train", "test", CIFAR100, 40, (32, 32), "png")
    data = package_data("cifar100-tenth", tmp_path)
    assert data is not None
    assert package_data("cub200-half", tmp_path) is None
    shots, tests = shot_photos("cifar100-tenth", tmp_path), photos_to_test("cifar100-tenth", tmp_path)
    assert (shots.name, tests.name, shots.to_test, tests.to_test) == ("cifar100-held", "cifar100-test", False, True)
    task = make_task(unsee.load_model("mini"), data, ("apple",), "lcs", "paper", 1, {})
    used = {data.train.digest(int(i)) for part in (task.split.train, task.split.valid) for i in part}
    assert used <= {shots.digest(i) for i in range(len(shots.keys))}
    assert all({key.split("/")[0] for key in shots.keys[i : i + 100]} == set(CIFAR100) for i in range(0, 800, 100))
    assert [key.split("/")[0] for key in tests.keys] != sorted(key.split("/")[0] for key in tests.keys)
    assert len(images_in_turns(data, 7)) == 7
    assert {tests.digest(i) for i in range(100)} == {data.test.digest(i) for i in range(100)}


def test_photos_are_laid_out_from_a_repository_once(tmp_path):
    whole = tmp_path / "cub200"
    write_folders(whole, "train", "test", ["001.Sea_Tern", "002.Rook"], 2, (8, 8), "jpg")
    (whole / "README.md").write_text("not a photo")
    git = ["git", "-C", str(whole), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "photos"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "cifar10").mkdir()
    half = tmp_path / "data" / "cub200.part"  # of a layout that was stopped
    half.mkdir(parents=True)
    (half / "left").write_text("over")
    assert lay_out(tmp_path) == ["cifar10", "cub200"]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["cifar10", "cub200"]
    assert sorted(path.name for path in (tmp_path / "data" / "cub200").iterdir()) == ["test", "train"]
    data = package_data("cub200-half", tmp_path)
    assert (data.class_names, len(data.train), len(data.test)) == (("Sea Tern", "Rook"), 4, 2)
    assert lay_out(tmp_path) == []
