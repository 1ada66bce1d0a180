"""ImageNet-1k and ImageNet30 in the layouts they are kept in, and how fast a million files are listed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import unsee
from unsee import DataError
from unsee.data.imagenet import find_imagenet, find_imagenet30, load_imagenet, load_imagenet30
from unsee.data.paper_names import IMAGENET30
from unsee.data.splits import few_shot_split
from unsee.data.synsets import distinct

SYNSETS = {
    "n01440764": "tench, Tinca tinca",
    "n01484850": "great white shark, white shark, man-eater",
    "n02012849": "crane",
    "n03126707": "crane",
    "n03710637": "maillot",
    "n03710721": "maillot, tank suit",
}
NAMES = ("tench", "great white shark", "crane (n02012849)", "crane (n03126707)", "maillot", "tank suit")
TRAIN, VAL = 4, 2


def write_mapping(folder, synsets=SYNSETS):
    (folder / "LOC_synset_mapping.txt").write_text("".join(f"{s} {names}\n" for s, names in synsets.items()))


def write_train(root, synsets=SYNSETS):
    for synset in synsets:
        (root / "train" / synset).mkdir(parents=True)
        for i in range(TRAIN):
            (root / "train" / synset / f"{synset}_{i}.JPEG").write_bytes(b"")


def flat_names(synsets=SYNSETS):
    """Validation images in their own order: (image, synset)."""
    return [(f"ILSVRC2012_val_{i + 1:08}", synset) for i, synset in enumerate([*synsets, *reversed(synsets)])]


@pytest.fixture
def folders(tmp_path):
    write_train(tmp_path)
    write_mapping(tmp_path)
    for image, synset in flat_names():
        (tmp_path / "val" / synset).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 7)).save(tmp_path / "val" / synset / f"{image}.JPEG")
    return tmp_path


@pytest.fixture
def flat(tmp_path):
    write_train(tmp_path)
    write_mapping(tmp_path)
    (tmp_path / "val").mkdir()
    for image, _ in flat_names():
        Image.new("RGB", (9, 7)).save(tmp_path / "val" / f"{image}.JPEG")
    rows = [f"{image},{synset} 1 2 300 400 {synset} 5 6 7 8 \n" for image, synset in flat_names()]
    (tmp_path / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "".join(rows))
    return tmp_path


def test_class_folders_are_ordered_by_synset_and_named(folders):
    assert find_imagenet(folders) == "folders"
    data = load_imagenet(folders)
    assert data.class_names == NAMES
    assert data.train.labels.tolist() == np.repeat(np.arange(6), TRAIN).tolist()
    assert data.test.labels.tolist() == np.repeat(np.arange(6), VAL).tolist()
    assert data.test.read(0).size == (9, 7)
    assert data.train.name(5).endswith("train/n01484850/n01484850_1.JPEG")


@pytest.mark.parametrize("place", ["images", "ILSVRC/Data/CLS-LOC"])
def test_the_folders_of_coop_and_kaggle_are_found(folders, place):
    before = load_imagenet(folders).listing
    (folders / place).mkdir(parents=True)
    for part in ("train", "val"):
        (folders / part).rename(folders / place / part)
    assert load_imagenet(folders).listing == before


@pytest.mark.parametrize("labels", ["kaggle", "synsets", "numbers"])
def test_flat_validation_images_get_their_labels_from_a_file(flat, labels):
    if labels != "kaggle":
        (flat / "LOC_val_solution.csv").unlink()
        number = {synset: i for i, synset in enumerate(SYNSETS)}
        rows = [f"{image}.JPEG {number[s] if labels == 'numbers' else s}\n" for image, s in flat_names()]
        (flat / "val.txt").write_text("".join(rows))
    assert find_imagenet(flat) == "flat val"
    data = load_imagenet(flat)
    assert data.class_names == NAMES
    assert data.test.labels.tolist() == np.repeat(np.arange(6), VAL).tolist()
    assert data.test.name(0).endswith("val/ILSVRC2012_val_00000001.JPEG")
    assert data.test.name(1).endswith("val/ILSVRC2012_val_00000012.JPEG")
    assert data.test.read(0).size == (9, 7)


def test_any_of_three_files_names_the_classes_and_coops_comes_first(folders):
    (folders / "LOC_synset_mapping.txt").unlink()
    with pytest.raises(
        DataError, match=r"looked for classnames\.txt, LOC_synset_mapping\.txt, imagenet_class"
    ) as caught:
        load_imagenet(folders)
    assert "Put classnames.txt there (CLIP's names, linked in DATASETS.md of https://" in str(caught.value)
    index = {str(i): [synset, f"great_name_{i}"] for i, synset in enumerate(SYNSETS)}
    (folders / "imagenet_class_index.json").write_text(json.dumps(index))
    assert load_imagenet(folders).class_names[1] == "great name 1"
    (folders / "classnames.txt").write_text("".join(f"{s} coop {i}\n" for i, s in enumerate(SYNSETS)))
    assert load_imagenet(folders).class_names == tuple(f"coop {i}" for i in range(6))


def test_shared_names_become_distinct_whatever_the_subset(folders):
    assert distinct({"n00000001": ("a", "b"), "n00000002": ("a", "b"), "n00000003": ("b",)}) == {
        "n00000001": "a (n00000001)",
        "n00000002": "a (n00000002)",
        "n00000003": "b",
    }
    assert distinct({"n00000001": ("a", "x"), "n00000002": ("a", "y")}) == {"n00000001": "x", "n00000002": "y"}
    for part in ("train", "val"):
        for synset in ("n02012849", "n01440764"):
            (folders / part / synset).rename(folders / f"{part}-{synset}")
    assert load_imagenet(folders).class_names == ("great white shark", "crane (n03126707)", "maillot", "tank suit")


def test_train_and_val_must_have_the_same_classes(folders):
    (folders / "val" / "n02012849").rename(folders / "away")
    with pytest.raises(DataError, match="the class n02012849 is in train/ but not in val/"):
        load_imagenet(folders)
    (folders / "away").rename(folders / "val" / "n02012849")
    (folders / "train" / "n02012849").rename(folders / "away")
    with pytest.raises(DataError, match="the class n02012849 is in val/ but not in train/"):
        load_imagenet(folders)
    (folders / "train" / "lost+found").mkdir()
    with pytest.raises(DataError, match=r"the folder 'lost\+found' is no synset of the names file"):
        load_imagenet(folders)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[: len(s) // 2], r"LOC_val_solution\.csv"),
        (
            lambda s: "".join(s.splitlines(keepends=True)[:-1]),
            "it has no label for val/ILSVRC2012_val_00000012",
        ),
        (lambda s: s.replace("n01484850", "n09999999", 1), r"csv, line 3: 'n09999999' is none of the 6 classes"),
        (lambda s: s.replace("00000003,", "00000099,"), r"csv, line 4: the image ILSVRC2012_val_00000099 is not in"),
        (lambda s: s.replace("00000003,", "00000002,"), r"csv, line 4: the image ILSVRC2012_val_00000002 came before"),
        (lambda s: s.replace("00000003,", "00000003"), r"csv, line 4: "),
    ],
)
def test_damaged_label_files_name_file_and_line(flat, change, message):
    path = flat / "LOC_val_solution.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=message) as caught:
        load_imagenet(flat)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="damaged, it is no text"):
        load_imagenet(flat)
    path.unlink()
    with pytest.raises(DataError, match=r"have no labels; looked for LOC_val_solution\.csv, val\.txt"):
        load_imagenet(flat)
    (flat / "val.txt").write_text("490\n361\n")  # the development kit's ground truth under that name
    with pytest.raises(DataError, match=r"val\.txt, line 1: wanted a file and its label, found '490'"):
        load_imagenet(flat)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("classnames.txt", b"", r"classnames\.txt: empty"),
        ("classnames.txt", b"\xff\xfe", r"classnames\.txt: damaged"),
        ("classnames.txt", b"n01440764 tench\nn014", r"classnames\.txt, line 2: wanted a synset and its name"),
        ("classnames.txt", b"n01440764 tench\nn01440764 x", r"classnames\.txt, line 2: n01440764 came before"),
        ("classnames.txt", b"n01440764 tench", r"the folder 'n01484850' is no synset of the names file"),
        ("imagenet_class_index.json", b'{"0": ["n0', r"imagenet_class_index\.json: damaged"),
        ("imagenet_class_index.json", b"[]", r"must be like"),
        ("imagenet_class_index.json", b'{"0": "tench"}', r"entry '0': must be like"),
    ],
)
def test_damaged_name_files_name_file_and_line(folders, name, content, message):
    (folders / "LOC_synset_mapping.txt").unlink()
    (folders / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_imagenet(folders)
    assert "\n" not in str(caught.value)


def test_an_imagenet_that_is_not_there_says_how_to_get_it(tmp_path):
    assert find_imagenet(tmp_path) is None
    with pytest.raises(DataError, match="has no train/ and val/"):
        load_imagenet(tmp_path)
    with pytest.raises(DataError, match=r"imagenet is not in .*ILSVRC2012_img_train\.tar .*image-net\.org"):
        unsee.load_data("imagenet", data_dir=tmp_path)


@pytest.fixture
def thirty(tmp_path):
    for name in IMAGENET30:
        folder = name.replace(" ", "_")
        for below, count in ((f"one_class_train/{folder}", 3), (f"one_class_test/{folder}/{folder}", 2)):
            (tmp_path / below).mkdir(parents=True)
            for i in range(count):
                (tmp_path / below / f"{i}.JPEG").write_bytes(b"")
    return tmp_path


def test_imagenet30_is_read_at_any_depth(thirty):
    assert find_imagenet30(thirty) == "folders"
    data = load_imagenet30(thirty)
    assert data.class_names == IMAGENET30
    assert data.class_names == tuple(sorted(IMAGENET30))
    assert (len(data.train), len(data.test)) == (90, 60)
    assert data.test.name(6).endswith("one_class_test/american_alligator/american_alligator/0.JPEG")
    with pytest.raises(unsee.ImageError, match="the file is empty"):
        data.train.read(0)


def test_an_imagenet30_that_is_not_whole_names_the_class(thirty):
    (thirty / "one_class_test" / "banjo" / "banjo").rename(thirty / "away")
    with pytest.raises(DataError, match=r"class 'banjo' has no images in .*one_class_test"):
        load_imagenet30(thirty)
    (thirty / "one_class_test" / "banjo").rename(thirty / "one_class_test" / "lute")
    with pytest.raises(DataError, match="the folder 'lute' is none of the 30 classes"):
        load_imagenet30(thirty)
    (thirty / "one_class_test" / "lute").rmdir()
    with pytest.raises(DataError, match="the class 'banjo' of 30 has no folder"):
        load_imagenet30(thirty)
    assert find_imagenet30(thirty / "one_class_train") is None
    with pytest.raises(DataError, match="no ImageNet30 in"):
        load_imagenet30(thirty / "one_class_train")


MEASURE = """
import json, sys, time
import unsee
from unsee.data.splits import few_shot_split

opened = []
sys.addaudithook(lambda event, given: event == "open" and str(given[0]).endswith(".JPEG") and opened.append(given[0]))
start = time.perf_counter()
data = unsee.load_data("imagenet", data_dir=sys.argv[1])
listed = time.perf_counter()
split = few_shot_split(data.train, 1, seed=0)
drawn = time.perf_counter()
data.listing
end = time.perf_counter()
with open("/proc/self/status") as status:  # not ru_maxrss, which a child inherits from its parent
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
try:
    data.train.read(int(split.train[0]))  # the hook does see an image that is opened
except unsee.ImageError:
    pass
found = {"train": len(data.train), "test": len(data.test), "shots": len(split.train), "opened": len(opened) - 1}
found |= {"listing_s": listed - start, "split_s": drawn - listed, "fingerprint_s": end - drawn, "peak_mb": peak}
print(json.dumps(found))
"""


def write_empty(root, classes, train, val):
    """Empty files under the names ImageNet has; made relative to their folder, which is quicker."""
    synsets = [f"n{1440764 + 7 * i:08}" for i in range(classes)]
    for number, synset in enumerate(synsets):
        for part, names in (
            ("train", [f"{synset}_{i}.JPEG" for i in range(train)]),
            ("val", [f"ILSVRC2012_val_{number * val + i:08}.JPEG" for i in range(val)]),
        ):
            (root / part / synset).mkdir(parents=True)
            folder = os.open(root / part / synset, os.O_RDONLY)
            for name in names:
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=folder))
            os.close(folder)
    (root / "classnames.txt").write_text("".join(f"{s} class {i}\n" for i, s in enumerate(synsets)))


def measured(data_dir):
    done = subprocess.run([sys.executable, "-c", MEASURE, data_dir], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_listing_and_splitting_open_no_image(tmp_path):
    write_empty(tmp_path / "imagenet", classes=40, train=75, val=5)
    found = measured(tmp_path)
    assert (found["train"], found["test"], found["shots"], found["opened"]) == (3000, 200, 40, 0)


@pytest.mark.slow
def test_a_whole_imagenet_is_listed_and_split_in_seconds_and_little_memory(tmp_path, capsys):
    try:
        write_empty(tmp_path / "imagenet", classes=1000, train=1281, val=50)
        found = measured(tmp_path)
    finally:
        shutil.rmtree(tmp_path / "imagenet")  # pytest would keep a million files
    with capsys.disabled():
        print("\n" + json.dumps(found))
    assert (found["train"], found["test"], found["shots"], found["opened"]) == (1_281_000, 50_000, 1000, 0)
    assert found["listing_s"] + found["split_s"] <= 20
    assert found["fingerprint_s"] <= 5
    assert found["peak_mb"] <= 1024


def test_a_split_draws_as_it_always_did(folders):
    train = load_imagenet(folders).train
    mixed = train.subset(np.random.default_rng(0).permutation(len(train)))
    split = few_shot_split(mixed, 2, seed=5)
    for label in range(6):
        rows = unsee.seeds.stream(5, "split", label).permutation(np.flatnonzero(mixed.labels == label))
        assert split.train[2 * label : 2 * label + 2].tolist() == sorted(rows[:2].tolist())
        assert split.valid[2 * label : 2 * label + 2].tolist() == sorted(rows[2:4].tolist())
