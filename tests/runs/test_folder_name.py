"""Default run folders tell runs apart."""

from __future__ import annotations

import pytest

from unsee.runs.folder_name import LONGEST, folder_name


def test_the_name_has_data_method_classes_and_seed():
    assert folder_name("demo", "lcs", ["dog", "cat"], 3) == "demo-lcs-cat+dog-seed3"
    assert folder_name("/home/me/photos", "bbt", ["polar_bear"], 0) == "photos-bbt-polar-bear-seed0"


def test_the_order_of_the_list_does_not_matter():
    assert folder_name("demo", "lcs", ["b", "a", "b"], 0) == folder_name("demo", "lcs", ["a", "b"], 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["cat"], ["dog"]),
        ([f"class {i}" for i in range(40)], [f"class {i}" for i in range(41)]),
        (["x" * 300], ["x" * 301]),
        (["c++"], ["c"]),
        (["a/b"], ["a b"]),
        (["..", "a"], ["a"]),
        (["[red]"], ["red"]),
    ],
)
def test_other_classes_have_another_folder_that_can_be_made(one, other, tmp_path):
    names = [folder_name("/", "lcs", each, 0) for each in (one, other)]
    assert names[0] != names[1]
    for name in names:
        assert len(name) <= len("data-lcs--seed0") + LONGEST
        (tmp_path / name).mkdir()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_long_list_keeps_whole_names():
    name = folder_name("demo", "lcs", ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog"], 0)
    assert name.startswith("demo-lcs-airplane+automobile+bird+cat-")
