"""A list of images: CSV or JSONL with path, label and, if wanted, split; and a file of class names."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import unsee
from unsee import DataError, InputError
from unsee.cli import main

ROWS = [(f"img/{kind}-{i}.png", kind) for kind in ("tabby_cat", "dog") for i in range(6)]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "img").mkdir()
    for i, (path, _) in enumerate(ROWS):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / path)
    return tmp_path


def write(place, text, name="list.csv", encoding="utf-8"):
    (place / name).write_text(text, encoding=encoding)
    return place / name


def lines(header="path,label", split=None):
    rows = [(*row, split(i)) if split else row for i, row in enumerate(ROWS)]
    return "\n".join([header, *(",".join(row) for row in rows)]) + "\n"


def refusal(path, **given) -> str:
    with pytest.raises(DataError) as caught:
        unsee.load_data(path, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_csv_of_paths_and_labels_is_halved_by_seed(place):
    path = write(place, lines())
    data = unsee.load_data(path, seed=1)
    assert data.class_names == ("dog", "tabby cat")
    assert np.bincount(data.train.labels).tolist() == np.bincount(data.test.labels).tolist() == [3, 3]
    assert data.split_seed == 1
    assert data.name == str(path)
    assert all(
        data.train.class_names[label].split()[-1] in data.train.name(i) for i, label in enumerate(data.train.labels)
    )


@pytest.mark.parametrize(
    ("text", "name", "encoding"),
    [
        (lines().replace(",", ";"), "list.csv", "utf-8"),
        (lines().replace(",", "\t"), "list.tsv", "utf-8"),
        (lines("Filename,Class"), "list.csv", "utf-8-sig"),
        (lines("image_path, category"), "LIST.CSV", "utf-8"),
        (lines().partition("\n")[2], "list.csv", "utf-8"),  # without a header
        (lines().replace("img/", "img\\"), "list.csv", "utf-8"),  # written on Windows
        ("\n".join(json.dumps({"path": p, "label": k}) for p, k in ROWS) + "\n\n", "list.jsonl", "utf-8"),
        ("\n".join(json.dumps({"file_name": p, "class": k, "size": 3}) for p, k in ROWS), "list.ndjson", "utf-8"),
    ],
)
def test_the_forms_that_lists_have_are_read_alike(place, text, name, encoding):
    data = unsee.load_data(write(place, text, name, encoding))
    assert data.class_names == ("dog", "tabby cat")
    assert data.train.read(0).size == (8, 8)


def test_a_split_column_is_followed(place):
    split = ["train", "Training", "val", "validation", "test", "test"]
    data = unsee.load_data(write(place, lines("path,label,split", lambda i: split[i % 6])))
    assert (len(data.train), len(data.test), data.split_seed) == (8, 4, None)
    two = ["train", "train", "train", "train", "val", "val"]
    assert len(unsee.load_data(write(place, lines("path,label,split", lambda i: two[i % 6]))).test) == 4


def test_a_list_that_cannot_be_used_says_which_line_and_why(place):
    text = lines()
    assert "has no column with the images' labels" in refusal(write(place, lines("path,colour")))
    assert "line 3: no such image: img/gone.png" in refusal(write(place, text.replace("img/tabby_cat-1", "img/gone")))
    gone = text.replace("img/", "pictures/")
    assert "12 of 12 images are missing" in refusal(write(place, gone))
    assert "line 14: img/dog-0.png came before, on line 8" in refusal(write(place, text + "img/dog-0.png,dog\n"))
    assert "line 14: has no label" in refusal(write(place, text + "img/dog-0.png,\n"))
    assert "line 2: split is 'foo'" in refusal(write(place, lines("path,label,split", lambda i: "foo")))
    assert "no image has the split test" in refusal(write(place, lines("path,label,split", lambda i: "train")))
    assert "line 2: not a JSON object" in refusal(write(place, '{"path": "a", "label": "b"}\n[1]\n', "list.jsonl"))
    assert "empty" in refusal(write(place, "", "list.csv"))
    assert "line 2: no such image: img: is a folder" in refusal(write(place, "path,label\nimg,cat\n"))


def test_a_run_folder_may_stand_beside_a_list(place):
    from unsee.data.class_folders import refuse_inside

    refuse_inside(unsee.load_data(write(place, lines())), place / "runs" / "one")


NAMES = {"dog": "golden retriever", "tabby_cat": "tabby"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("names.json", json.dumps(NAMES | {"n99": "not there"})),
        ("names.csv", "folder,name\ndog,golden retriever\ntabby_cat,tabby\n"),
        ("names.csv", "dog,golden_retriever\ntabby_cat,tabby\n"),
        ("names.tsv", "dog\tgolden retriever\ntabby_cat\ttabby\n"),
        ("names.txt", "dog golden retriever\ntabby_cat tabby\n"),
        ("index.json", json.dumps({"0": ["dog", "golden_retriever"], "1": ["tabby_cat", "tabby"]})),
    ],
)
def test_a_file_of_names_says_what_labels_are_called(place, name, text):
    data = unsee.load_data(write(place, lines()), names=write(place, text, name))
    assert data.class_names == ("golden retriever", "tabby")


def test_names_may_be_some_and_may_be_a_mapping(place):
    data = unsee.load_data(write(place, lines()), names={"tabby cat": "kitten"})
    assert data.class_names == ("dog", "kitten")


def test_imagenets_folders_get_their_names(tmp_path):
    for folder in ("n01440764", "n02012849", "n03126707"):
        for i in range(4):
            (tmp_path / "photos" / folder).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / "photos" / folder / f"{i}.png")
    text = "n01440764 tench, Tinca tinca\nn02012849 crane\nn03126707 crane\n"
    data = unsee.load_data(tmp_path / "photos", names=write(tmp_path, text, "LOC_synset_mapping.txt"))
    assert data.class_names == ("tench", "crane (n02012849)", "crane (n03126707)")


def test_names_that_cannot_be_used_say_why(place):
    path = write(place, lines())
    assert "none of the classes dog and tabby cat" in refusal(path, names=write(place, '{"x": "y"}', "n.json"))
    assert "line 2: wanted a folder and its name" in refusal(path, names=write(place, "a,b\nc\n", "n.csv"))
    assert "'pet' stands for two classes" in refusal(path, names=write(place, "dog,pet\ntabby_cat,pet\n", "n.csv"))
    assert "No such file" in refusal(path, names=place / "gone.csv")
    assert "must be like" in refusal(path, names=write(place, "[1]", "n.json"))
    with pytest.raises(InputError, match="names are for images of your own"):
        unsee.load_data("demo", names={"cat": "kitten"})


def test_a_run_on_a_list_with_names_is_tuned_evaluated_and_resumed(place, model_folder, monkeypatch, capsys):
    monkeypatch.chdir(place)
    write(place, lines())
    names = write(place, json.dumps(NAMES), "names.json")
    run = ["--model", str(model_folder), "--out", "runs/one", "--iterations", "2", "--no-cache"]
    assert main(["forget", "list.csv", "--names", "names.json", "--forget", "tabby", *run]) == 0
    names.unlink()  # the run knows them
    assert json.loads((place / "runs/one/result.json").read_text())["forget"] == ["tabby"]
    assert main(["evaluate", "runs/one", "--no-cache"]) == 0
    assert main(["resume", "runs/one", "--iterations", "3", "--no-cache"]) == 0
    assert "golden retriever" in capsys.readouterr().out
