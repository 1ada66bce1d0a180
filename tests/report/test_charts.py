from __future__ import annotations

import io
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from unsee.report.charts import MANY_CLASSES, Series, as_png, as_svg, bars, confusion, panels

LINES = [Series("lcs", [1, 2, 3], [0.1, 0.5, 0.6], [0.1, 0.1, 0]), Series("bbt", [1, 2, 3], [0.3, 0.4, 0.4])]


def counts(classes):
    """True class by answer, and a last column for no label."""
    return np.random.default_rng(0).integers(0, 5, (classes, classes + 1)) + 50 * np.eye(
        classes, classes + 1, dtype=np.int64
    )


def maps(classes):
    return {"plain prompt": counts(classes), "prompt alone": counts(classes), "as served": counts(classes)}


def every_chart():
    names, gone = ["cat", "dog", "frog"], [False, True, False]
    yield panels([("H of mini", LINES)], "contexts", "H")
    yield panels([("H", LINES), ("Err_for", LINES)], "contexts", "%")
    yield bars(names, [0.9, 0.8, float("nan")], {"prompt alone": [0.9, 0.1, float("nan")]}, gone)
    yield confusion(maps(3), names, gone)


def words(figure):
    root = ElementTree.fromstring(as_svg(figure))
    return [" ".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_png_is_fine_enough_for_print():
    with Image.open(io.BytesIO(as_png(panels([("H", LINES), ("Err_for", LINES)])))) as picture:
        assert picture.size[0] >= 1200


def test_the_same_chart_is_the_same_bytes():
    assert [as_png(figure) for figure in every_chart()] == [as_png(figure) for figure in every_chart()]


@pytest.mark.slow
def test_charts_are_the_same_bytes_in_another_process_and_whatever_the_users_settings(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.hashsalt: other\nlines.color: red\n")
    code = "import sys; from tests.report.test_charts import *; sys.stdout.write(''.join(map(as_svg, every_chart())))"
    ours = "".join(map(as_svg, every_chart()))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"MATPLOTLIBRC": str(tmp_path / "matplotlibrc"), "PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ours
    assert "<dc:date>" not in ours


def test_drawing_leaves_no_trace_in_matplotlibs_settings():
    before = dict(matplotlib.rcParams)
    for figure in every_chart():
        as_svg(figure)
    assert dict(matplotlib.rcParams) == before


def test_lines_differ_in_dashes_and_markers_not_in_colour_alone():
    many = [Series(f"line {i}", [0, 1], [i, i + 1]) for i in range(20)]
    lines = panels([("H", many)]).axes[0].get_lines()
    assert len({(str(line.get_linestyle()), str(line.get_marker())) for line in lines[:6]}) == 6
    looks = {(line.get_color(), str(line._unscaled_dash_pattern), str(line.get_marker())) for line in lines}
    assert len(looks) == 20


def test_x_may_be_labels_and_keeps_their_order():
    labels = ["20 : 5", "400 : 100", "40 : 10"]
    figure = panels([("H", [Series("lcs", labels, [1, 2, 3], [0.1, 0.1, 0.1])])], "d_s : d_u")
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == labels


def test_labels_that_would_run_into_each_other_are_slanted():
    def slant(labels):
        figure = panels([("H", [Series("lcs", labels, [1] * len(labels))])])
        return {label.get_rotation() for label in figure.axes[0].get_xticklabels()}

    assert slant(["10 %", "20 %", "30 %"]) == {0}
    assert slant(["0 : 125", "80 : 120", "400 : 100", "800 : 75", "1200 : 50", "1600 : 25", "1840 : 10"]) == {30}


def test_panels_share_one_legend():
    figure = panels([("H", LINES), ("Err_for", LINES[1:]), ("Acc_mem", LINES[:1])])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["lcs", "bbt"]
    assert figure.axes[0].get_lines()[-1].get_color() == figure.axes[1].get_lines()[0].get_color()


def test_classes_to_forget_come_first():
    found = words(bars(["cat", "dog", "frog"], [1, 1, 1], {"as served": [1, 0, 1]}, [False, True, False]))
    assert [word for word in found if word in ("cat", "dog", "frog")] == ["dog", "cat", "frog"]
    found = words(confusion(maps(3), ["cat", "dog", "frog"], [False, True, False]))
    assert [word for word in found if word in ("cat", "dog", "frog")][:3] == ["dog", "cat", "frog"]


def test_a_class_without_images_says_so():
    found = words(bars(["cat", "dog"], [0.5, float("nan")], {"as served": [0.5, float("nan")]}, [True, False]))
    assert found.count("no images") == 1


def test_any_class_name_is_drawn_as_it_is():
    names = ["$x$", r"$\frac$", "<script>x</script>", "-->", "猫", "a_b^c"]
    forget = [True] * 3 + [False] * 3
    assert set(names) <= set(words(bars(names, [1] * 6, {"as served": [0] * 6}, forget)))
    as_png(confusion(maps(6), names, forget))


@pytest.mark.parametrize("classes", [1, 16, pytest.param(MANY_CLASSES, marks=pytest.mark.slow), 1000])
def test_any_number_of_classes_gives_a_small_legible_chart(classes):
    names, gone = [f"class {i}" for i in range(classes)], np.arange(classes) % 3 == 0
    share = np.linspace(0, 1, classes)
    for figure in (
        bars(names, share, {"prompt alone": share, "as served": share}, gone),
        confusion(maps(classes), names, gone),
    ):
        assert len(as_svg(figure)) < 400_000
        assert 3 < max(figure.get_size_inches()) < 20


def test_many_classes_are_counted_together_without_losing_an_answer():
    n = 100
    matrix, gone = counts(n), np.arange(n) < 40
    image = confusion({"as served": matrix}, [str(i) for i in range(n)], gone).axes[0].get_images()[0].get_array()
    right = np.diag(matrix)[:40].sum() / matrix[:40].sum()
    assert image.shape == (2, 4)
    assert np.allclose(image.sum(axis=1), 100)
    assert image[0, 0] == pytest.approx(100 * right)
