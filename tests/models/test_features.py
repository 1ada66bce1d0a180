"""The feature cache: no image is encoded twice, and damaged entries are never used."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unsee.data.images import ArraySource, as_images, unlabelled
from unsee.errors import ImageError
from unsee.models import FeatureCache, load_model
from unsee.models.features import encode_images


class Colours:
    """An image encoder without a network: an image's mean colours, projected."""

    batch = 8

    def __init__(self, seed: int = 0) -> None:
        self.fingerprint = f"colours-{seed}"
        self.map = np.random.default_rng(seed).standard_normal((12, 16)).astype(np.float32)

    def prepare(self, image):
        return np.asarray(image.convert("RGB").resize((2, 2)), dtype=np.float32).ravel()

    def encode(self, prepared):
        rows = np.stack(prepared) @ self.map
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def pixels(n: int, seed: int = 0, size: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, size, size, 3), dtype=np.uint8)


def write_files(folder: Path, arrays: np.ndarray) -> list[Path]:
    paths = []
    for i, array in enumerate(arrays):
        paths.append(folder / f"{i:04}.png")
        Image.fromarray(array).save(paths[-1])
    return paths


def rows_in(cache: FeatureCache) -> int:
    return ask(cache, "SELECT count(*) FROM features")[0][0]


def ask(cache: FeatureCache, query: str, *values) -> list[tuple]:
    db = sqlite3.connect(cache.path)
    try:
        with db:
            return db.execute(query, values).fetchall()
    finally:
        db.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tests.tiny import write_model

    return write_model(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def encoder(folder):
    return load_model(folder).encoder


def test_a_second_time_nothing_is_computed_and_every_byte_is_the_same(tmp_path, encoder):
    images, cache = as_images(pixels(70)), FeatureCache(tmp_path)
    first = encode_images(images, encoder, cache)
    again = encode_images(images, encoder, FeatureCache(tmp_path))
    assert (first.computed, first.cached) == (70, 0)
    assert (again.computed, again.cached) == (0, 70)
    assert first.features.tobytes() == again.features.tobytes()
    assert again.features.dtype == np.float32


def test_a_cache_changes_no_feature(tmp_path, encoder):
    images = as_images(pixels(40))
    without, kept = encode_images(images, encoder), encode_images(images, encoder, FeatureCache(tmp_path))
    assert without.features.tobytes() == kept.features.tobytes()
    assert (without.computed, without.cached) == (40, 0)


def test_only_new_images_are_computed(tmp_path, encoder):
    everything, cache = pixels(60), FeatureCache(tmp_path)
    encode_images(as_images(everything[10:30]), encoder, cache)
    found = encode_images(as_images(everything), encoder, cache)
    assert (found.computed, found.cached) == (40, 20)
    assert np.abs(found.features - encode_images(as_images(everything), encoder).features).max() <= 1e-6


def test_the_same_image_several_times_is_computed_once(tmp_path):
    few = pixels(3)
    found = encode_images(as_images(few[[0, 1, 0, 2, 1, 0]]), Colours(), FeatureCache(tmp_path))
    assert (found.computed, found.cached) == (3, 3)
    assert np.array_equal(found.features, encode_images(as_images(few), Colours()).features[[0, 1, 0, 2, 1, 0]])


def test_files_are_known_by_content_not_by_name(tmp_path):
    cache, encoder = FeatureCache(tmp_path / "cache"), Colours()
    (first := tmp_path / "a").mkdir()
    (second := tmp_path / "b").mkdir()
    before = encode_images(as_images(write_files(first, pixels(5))), encoder, cache)
    moved = encode_images(as_images(write_files(second, pixels(5))), encoder, cache)
    assert (moved.computed, moved.cached) == (0, 5)
    assert np.array_equal(before.features, moved.features)
    changed = encode_images(as_images(write_files(second, pixels(5, seed=1))), encoder, cache)
    assert (changed.computed, changed.cached) == (5, 0)


def test_images_of_the_same_content_share_an_entry(tmp_path):
    cache, encoder = FeatureCache(tmp_path), Colours()
    twice = np.concatenate([pixels(12)] * 2)
    first = encode_images(as_images(twice), encoder, cache)
    again = encode_images(as_images(twice), encoder, cache)
    assert rows_in(cache) == 12
    assert (again.computed, again.cached) == (0, 24)
    assert np.array_equal(first.features, again.features)
    assert np.array_equal(again.features[:12], again.features[12:])


def test_more_images_than_one_query_takes_come_back_in_order(tmp_path):
    cache, encoder = FeatureCache(tmp_path), Colours()
    many = pixels(1203, size=4)
    first = encode_images(as_images(many), encoder, cache)
    order = np.random.default_rng(0).permutation(1203)
    again = encode_images(as_images(many[order]), encoder, cache)
    assert (again.computed, again.cached) == (0, 1203)
    assert np.array_equal(again.features, first.features[order])


def test_features_come_in_the_order_of_the_images_though_decoding_is_uneven(tmp_path):
    """Large files between small ones: threads finish out of order."""
    arrays = [pixels(1, seed=i, size=400 if i % 3 == 0 else 4)[0] for i in range(30)]
    paths = write_files(tmp_path, arrays)
    encoder = Colours()
    found = encode_images(as_images(paths), encoder).features
    wanted = [encoder.encode([encoder.prepare(Image.fromarray(array))])[0] for array in arrays]
    assert np.abs(found - np.stack(wanted)).max() <= 1e-6


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE features SET data = x'00000000' WHERE rowid = 3",
        "UPDATE features SET data = x'' WHERE rowid = 3",
        "UPDATE features SET data = zeroblob(length(data)) WHERE rowid = 3",
        "UPDATE features SET data = substr(data, 1, 5) WHERE rowid = 3",
        "UPDATE features SET crc = crc + 1 WHERE rowid = 3",
        "UPDATE features SET data = NULL WHERE rowid = 3",
        "UPDATE features SET data = 'text' WHERE rowid = 3",
        "UPDATE features SET data = 7 WHERE rowid = 3",
        "DELETE FROM features WHERE rowid = 3",
    ],
)
def test_a_damaged_entry_is_made_again(tmp_path, spoil):
    images, encoder, cache = as_images(pixels(10)), Colours(), FeatureCache(tmp_path)
    first = encode_images(images, encoder, cache)
    ask(cache, spoil)
    mended = encode_images(images, encoder, cache)
    assert (mended.computed, mended.cached) == (1, 9)
    assert np.abs(mended.features - first.features).max() <= 1e-6
    assert encode_images(images, encoder, cache).computed == 0


@pytest.mark.parametrize("content", [b"not a database at all " * 500, b"x", b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_no_database_is_made_again(tmp_path, content):
    images, encoder, cache = as_images(pixels(10)), Colours(), FeatureCache(tmp_path)
    cache.path.write_bytes(content)
    assert encode_images(images, encoder, cache).computed == 10
    assert encode_images(images, encoder, cache).cached == 10


def test_a_database_damaged_in_the_middle_never_gives_a_wrong_feature(tmp_path):
    images, encoder, cache = as_images(pixels(400, size=4)), Colours(), FeatureCache(tmp_path)
    wanted = encode_images(images, encoder, cache).features
    whole = cache.path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(8):
        spoiled = bytearray(whole)
        start = int(rng.integers(100, len(whole) - 3000))
        spoiled[start : start + 3000] = rng.bytes(3000)
        for beside in tmp_path.glob("features.sqlite-*"):
            beside.unlink()
        cache.path.write_bytes(spoiled)
        assert np.abs(encode_images(images, encoder, cache).features - wanted).max() <= 1e-6
        assert np.abs(encode_images(images, encoder, cache).features - wanted).max() <= 1e-6


def test_a_database_cut_short_never_gives_a_wrong_feature(tmp_path):
    images, encoder, cache = as_images(pixels(400, size=4)), Colours(), FeatureCache(tmp_path)
    wanted = encode_images(images, encoder, cache).features
    whole = cache.path.read_bytes()
    for size in (50, 1000, 4096, len(whole) // 2, len(whole) - 1):
        for beside in tmp_path.glob("features.sqlite-*"):
            beside.unlink()
        cache.path.write_bytes(whole[:size])
        assert np.abs(encode_images(images, encoder, cache).features - wanted).max() <= 1e-6


def test_too_large_a_cache_drops_what_was_longest_unused(tmp_path):
    encoder = Colours()
    cache = FeatureCache(tmp_path, limit=30 * 16 * 4)
    old, kept, new = as_images(pixels(10, 1)), as_images(pixels(10, 2)), as_images(pixels(20, 3))
    encode_images(old, encoder, cache)
    encode_images(kept, encoder, cache)
    assert rows_in(cache) == 20
    encode_images(old, encoder, cache)  # used again, so `kept` is now the longest unused
    ask(cache, "UPDATE features SET used = used - 1000 * (rowid BETWEEN 11 AND 20)")
    encode_images(new, encoder, cache)
    assert rows_in(cache) == 24  # four fifths of thirty
    assert encode_images(new, encoder, cache).cached == 20
    left = {key for (key,) in ask(cache, "SELECT key FROM features")}
    assert not {kept.digest(i) for i in range(10)} & left
    assert len({old.digest(i) for i in range(10)} & left) == 4


def test_using_an_entry_makes_it_young(tmp_path):
    images, encoder, cache = as_images(pixels(4)), Colours(), FeatureCache(tmp_path)
    encode_images(images, encoder, cache)
    ask(cache, "UPDATE features SET used = 0")
    encode_images(images, encoder, cache)
    assert min(used for (used,) in ask(cache, "SELECT used FROM features")) > time.time() - 60


@pytest.mark.parametrize("place", ["below a file", "a folder of that name", "not to be written"])
def test_without_a_usable_folder_nothing_is_cached(tmp_path, place):
    if place == "below a file":
        (tmp_path / "file").write_text("in the way")
        cache = FeatureCache(tmp_path / "file" / "cache")
    elif place == "a folder of that name":
        (tmp_path / "features.sqlite").mkdir()
        cache = FeatureCache(tmp_path)
    else:
        (tmp_path / "locked").mkdir(mode=0o500)
        cache = FeatureCache("/proc/unsee" if os.geteuid() == 0 else tmp_path / "locked")
    images, encoder = as_images(pixels(10)), Colours()
    for _ in range(2):
        found = encode_images(images, encoder, cache)
        assert (found.computed, found.cached) == (10, 0)
        assert np.array_equal(found.features, encode_images(images, encoder).features)


def test_another_model_does_not_get_this_ones_features(tmp_path):
    images, cache = as_images(pixels(10)), FeatureCache(tmp_path)
    first = encode_images(images, Colours(0), cache)
    other = encode_images(images, Colours(1), cache)
    assert (other.computed, other.cached) == (10, 0)
    assert not np.array_equal(first.features, other.features)
    assert np.array_equal(encode_images(images, Colours(0), cache).features, first.features)


def test_the_same_weights_with_another_activation_do_not_share_features(tmp_path, folder):
    from unsee.models.fast.checkpoints import read_checkpoint
    from unsee.models.fast.vision import VisionTransformer

    checkpoint = read_checkpoint(str(folder))
    other = VisionTransformer(replace(checkpoint, vision=replace(checkpoint.vision, activation="gelu")))
    images, cache = as_images(pixels(4)), FeatureCache(tmp_path)
    encode_images(images, VisionTransformer(checkpoint), cache)
    found = encode_images(images, other, cache)
    assert found.computed == 4
    assert np.array_equal(found.features, encode_images(images, other).features)


def test_the_same_graph_at_another_side_does_not_share_features():
    from unsee.models.fast.embedded import EMBEDDED, OnnxEncoder

    small, large = OnnxEncoder(EMBEDDED / "image.onnx", 96), OnnxEncoder(EMBEDDED / "image.onnx", 160)
    assert small.fingerprint != large.fingerprint
    assert OnnxEncoder(EMBEDDED / "image.onnx", 160).fingerprint == large.fingerprint


@pytest.mark.parametrize(
    ("name", "value"), [("FEATURE_EPOCH", 2), ("BACKGROUND", "black"), ("RESIZED_BY", Image.Resampling.BILINEAR)]
)
def test_a_change_of_preprocessing_or_epoch_does_not_share_features_of_the_embedded_model(monkeypatch, name, value):
    from unsee.models.fast import embedded

    before = embedded.OnnxEncoder(embedded.EMBEDDED / "image.onnx", 160).fingerprint
    monkeypatch.setattr(embedded, name, value)
    assert embedded.OnnxEncoder(embedded.EMBEDDED / "image.onnx", 160).fingerprint != before


@pytest.mark.parametrize(("name", "value"), [("FEATURE_EPOCH", 2), ("BACKGROUND", "black")])
def test_a_change_of_preprocessing_or_epoch_does_not_share_features_of_a_clip(monkeypatch, folder, name, value):
    from unsee.models.fast import vision
    from unsee.models.fast.checkpoints import read_checkpoint

    checkpoint = read_checkpoint(str(folder))
    before = vision.VisionTransformer(checkpoint).fingerprint
    monkeypatch.setattr(vision, name, value)
    assert vision.VisionTransformer(checkpoint).fingerprint != before


@pytest.mark.parametrize(("content", "said"), [(b"", "empty"), (b"no image", "not an image"), (None, "No such file")])
def test_an_unreadable_image_is_named(tmp_path, content, said):
    paths = write_files(tmp_path, pixels(20))
    if content is None:
        paths[13].unlink()
    else:
        paths[13].write_bytes(content)
    for cache in (None, FeatureCache(tmp_path / "cache")):
        with pytest.raises(ImageError, match=said) as caught:
            encode_images(as_images(paths), Colours(), cache)
        assert caught.value.name == str(paths[13])


def test_a_truncated_image_is_named_and_leaves_no_thread_behind(tmp_path):
    paths = write_files(tmp_path, pixels(20, size=64))
    paths[5].write_bytes(paths[5].read_bytes()[:3000])
    before = threading.active_count()
    with pytest.raises(ImageError) as caught:
        encode_images(as_images(paths), Colours())
    assert caught.value.name == str(paths[5])
    assert threading.active_count() == before


def test_what_was_encoded_before_an_error_is_kept(tmp_path):
    paths, cache = write_files(tmp_path, pixels(60)), FeatureCache(tmp_path / "cache")
    paths[50].write_bytes(b"no image")
    with pytest.raises(ImageError):
        encode_images(as_images(paths), Colours(), cache)
    assert rows_in(cache) == 48


def test_progress_counts_only_what_is_computed(tmp_path):
    said: list[tuple[int, int]] = []
    cache = FeatureCache(tmp_path, progress=lambda done, of: said.append((done, of)))
    encode_images(as_images(pixels(20)), Colours(), cache)
    assert said == [(8, 20), (16, 20), (20, 20)]
    encode_images(as_images(pixels(20)), Colours(), cache)
    assert len(said) == 3


def work(folder: Path, seed: int, start, answers) -> None:
    """What each of several processes does: encode overlapping images, many times."""
    cache = FeatureCache(folder)
    start.wait(60)
    digest = hashlib.sha256()
    for turn in range(6):
        part = pixels(120, size=4)[10 * (turn + seed) :][:60]
        digest.update(encode_images(as_images(part), Colours(), cache).features.round(4).tobytes())
    answers.put((seed, digest.hexdigest()))


def test_two_processes_at_once_end_with_the_right_features(tmp_path, processes):
    start, answers = processes.Barrier(2), processes.Queue()
    both = [processes.Process(target=work, args=(tmp_path, seed, start, answers)) for seed in (0, 1)]
    for process in both:
        process.start()
    found = dict(answers.get(timeout=120) for _ in both)
    for process in both:
        process.join(60)
        assert process.exitcode == 0
    for seed in (0, 1):
        digest = hashlib.sha256()
        for turn in range(6):
            part = pixels(120, size=4)[10 * (turn + seed) :][:60]
            digest.update(encode_images(as_images(part), Colours()).features.round(4).tobytes())
        assert found[seed] == digest.hexdigest()
    last = encode_images(as_images(pixels(120, size=4)), Colours(), FeatureCache(tmp_path))
    assert (last.computed, last.cached) == (0, 120)


@pytest.mark.slow
def test_ten_thousand_images_are_encoded_once(tmp_path, folder):
    many = unlabelled(ArraySource(pixels(10_000, size=32)))
    cache = FeatureCache(tmp_path)
    first = load_model(folder, cache=cache).bind(many, ["cat", "dog"])
    assert (first.images_encoded, first.images_from_cache) == (10_000, 0)
    again = load_model(folder, cache=cache).bind(many, ["cat", "dog"])
    assert (again.images_encoded, again.images_from_cache) == (0, 10_000)
    assert first.features.numpy().tobytes() == again.features.numpy().tobytes()
