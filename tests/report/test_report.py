from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
from html.parser import HTMLParser

import pytest

import unsee
from tests import tiny
from unsee.cli import main
from unsee.report.html import draw, write_report
from unsee.report.score_tables import scores_table
from unsee.report.summary import curves, group_by_seed
from unsee.runs.stored import read_run
from unsee.runs.sweep import RunRequest, Workspace

EVIL = "<script>alert(1)<&'\"$x$"
FORGET = (EVIL, "cat")
NAMES = (EVIL, "bird", "cat", "dog", "{{ 7 * 7 }}")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, model):
    """Finished runs by method and seed, on classes of which one is called as nobody should call a class."""
    root = tmp_path_factory.mktemp("report")
    workspace = Workspace(
        model, unsee.load_data(tiny.write_images(root / "images", NAMES, train=4, test=3)), root / "runs"
    )
    found = {}
    for method, seed, settings in (
        ("lcs", 0, {"iterations": 3}),
        ("lcs", 1, {"iterations": 3}),
        ("zero-shot", 0, {}),
        ("label-mask", 0, {}),
    ):
        wanted = RunRequest(method, seed, FORGET, settings={"shots": 2, **settings})
        workspace.run(wanted)
        found[method, seed] = workspace.find(wanted)
    return found


class Page(HTMLParser):
    """What a browser would see: tags in order, and text."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.text, self.skip = [], [], 0
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def words(self):
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(list(runs.values()), out)
    return Page(out)


@pytest.fixture(scope="module")
def files_of_one(runs, tmp_path_factory):
    return write_report([runs["lcs", 0]], tmp_path_factory.mktemp("page") / "report.html", ["svg"])


@pytest.fixture(scope="module")
def single(files_of_one):
    return Page(files_of_one[0])


def test_a_class_called_script_is_harmless(page, single):
    for found in (page, single):
        assert not found.all("script")
        assert "<script" not in found.source
        assert EVIL in found.words
        assert "{{ 7 * 7 }}" in found.words
        assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)


def test_the_page_needs_nothing_but_itself(page):
    links = [attrs.get(key) for _, attrs in page.tags for key in ("src", "href", "srcset", "data") if attrs.get(key)]
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "url(" not in page.source
    assert "@import" not in page.source
    assert "default-src 'none'" in page.source


def test_the_page_can_be_read_by_everyone(page):
    assert page.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert all(image["alt"].strip() for image in page.all("img"))
    assert all(head.get("scope") in ("row", "col") for head in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_the_numbers_on_the_page_are_those_of_the_run(single, runs):
    result = json.loads((runs["lcs", 0] / "result.json").read_text())
    for part in ("zero_shot", "label_mask", "test"):
        for score in result[part].values():
            assert f"{100 * score:.2f}" in single.words
    for when in ("before", "after", "served"):
        assert f"{result['entropy_forgotten'][when]:.3f}" in single.words
    assert str(result["ledger"]["image_queries"]) in single.words
    assert "label-mask" in single.words


def test_the_model_is_named_once_in_the_headings(page, single, model):
    name = model.card.name.rsplit("/", 1)[-1]
    for found in (page, single):
        assert f"(model {name})</title>" in found.source
        assert found.source.split("<body>")[1].count(f"model {name}") == 1
        assert f"Model: {name}" not in found.words


def test_pictures_come_before_tables(page, single):
    for found in (page, single):
        tags = [tag for tag, _ in found.tags]
        ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
        assert ids.index("pictures") < ids.index("scores")
        assert tags.index("img") < tags.index("table")
        assert found.source.index('class="photos"') < found.source.index('id="scores"')


def test_the_page_has_a_dark_mode_and_a_cue_to_scroll_on_a_phone(single):
    style = single.source.split("<style>")[1].split("</style>")[0]
    assert "prefers-color-scheme: dark" in style
    assert "background: var(--paper)" in style
    charts = [image for image in single.all("img") if "chart" in image.get("class", "")]
    assert len(charts) == len(single.all("img")) - 1  # all but the photos, which must not be inverted
    narrow = style.split("max-width: 40rem")[1]
    assert ".cue { display: block; }" in narrow.split("}\n}")[0]
    assert "scroll it sideways" in single.words
    assert "scroll the picture sideways" in single.words


@pytest.fixture(scope="module")
def fifteen(runs, tmp_path_factory):
    """Copies of a run that differ in several settings, two of which vary together."""
    root, found = tmp_path_factory.mktemp("fifteen"), []
    for i in range(15):
        found.append(shutil.copytree(runs["lcs", 0], root / f"run-{i}"))
        config = json.loads((found[-1] / "config.json").read_text())
        both = {"shared": 10 + i % 5, "own": 20 + i % 5}
        config["settings"] |= {"sigma0": 0.1 + 0.2 * (i // 5), "goal": ["entropy", "push"][i % 2], **both}
        (found[-1] / "config.json").write_text(json.dumps(config))
    return found


def test_fifteen_runs_are_told_apart_by_what_differs_alone(fifteen):
    groups = group_by_seed([read_run(folder) for folder in fifteen])
    labels = [g.label for g in groups]
    assert len(set(labels)) == 15
    assert max(map(len, labels)) < 44
    assert not any("lcs" in label or "own" in label for label in labels)
    assert any("sigma0=0.3," in label for label in labels)  # not 0.30000000000000004


@pytest.mark.slow
def test_fifteen_runs_are_drawn_without_a_warning_and_folded(fifteen, tmp_path):
    (out,) = write_report(fifteen, tmp_path / "report.html")  # warnings are errors
    found = Page(out)
    assert found.source.count("<summary>Pictures, audit, cost and settings</summary>") == 15
    groups = group_by_seed([read_run(folder) for folder in fifteen])
    figure = draw(groups)["curves"]
    figure.draw_without_rendering()
    below = figure.legends[0].get_window_extent().y1
    assert all(axes.get_window_extent().y0 > below for axes in figure.axes)  # the legend covers no line
    assert all(axes.get_window_extent().height > 100 for axes in figure.axes)
    edges = figure.legends[0].get_window_extent()
    assert 0 <= edges.x0 < edges.x1 <= figure.bbox.width


def test_classes_that_fell_are_named(runs, tmp_path):
    many = shutil.copytree(runs["lcs", 0], tmp_path / "many")
    (many / "answers.safetensors").unlink()
    names = [f"class {i}" for i in range(102)]
    config = json.loads((many / "config.json").read_text()) | {"class_names": names, "forget": names[:2]}
    result = json.loads((many / "result.json").read_text()) | {"forget": names[:2]}
    result["per_class"] = {name: {"before": 0.9, "after": 0.9, "served": 0.9} for name in names}
    result["per_class"]["class 0"] |= {"after": 0.2, "served": 0.0}
    result["per_class"]["class 77"] |= {"after": 0.4, "served": 0.3}
    (many / "config.json").write_text(json.dumps(config))
    (many / "result.json").write_text(json.dumps(result))
    words = Page(write_report([many], tmp_path / "report.html")[0]).words
    ways = "prompt alone → as served (mask-top-digit)"
    assert (
        f"still recognised (accuracy in percent, plain prompt → {ways}): class 1 90 → 90 → 90, class 0 90 → 20 → 0."
        in words
    )
    assert f"recognised less often (plain prompt → {ways}): class 77 90 → 40 → 30." in words


def test_the_settings_are_there_without_the_lists_of_the_split(single, runs):
    assert '"train": "10 images"' in single.words
    assert str(json.loads((runs["lcs", 0] / "config.json").read_text())["model"]["fingerprint"]) in single.words


def test_seeds_are_put_together_and_other_settings_are_not(runs, tmp_path):
    both = [read_run(runs["lcs", seed]) for seed in (0, 1)]
    (one,) = group_by_seed(both)
    assert one.name == "lcs"
    assert one.summary.seeds == 2
    other = shutil.copytree(runs["lcs", 0], tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["settings"]["sigma0"] = 0.5
    (other / "config.json").write_text(json.dumps(config))
    groups = group_by_seed([*both, read_run(other)])
    assert [g.name for g in groups] == ["lcs, sigma0=1.0", "lcs, sigma0=0.5"]
    config["forget"] = ["cat"]
    result = json.loads((other / "result.json").read_text()) | {"forget": ["cat"]}
    (other / "config.json").write_text(json.dumps(config))
    (other / "result.json").write_text(json.dumps(result))
    groups = group_by_seed([*both, read_run(other)])
    assert groups[1].name == "lcs, without cat"
    assert len(scores_table(groups).rows) == 6  # zero-shot, label-mask and lcs for each list


def test_a_copy_of_a_run_is_named_and_counted_once(runs, tmp_path, capsys):
    copy = shutil.copytree(runs["lcs", 0], tmp_path / "copy")
    given = ["report", runs["lcs", 0], runs["lcs", 1], copy, "-o", tmp_path / "r.html", "--also", "csv"]
    assert main(list(map(str, given))) == 0
    err = capsys.readouterr().err
    assert err == f"left out: {copy} holds the same run as {runs['lcs', 0]}\n"
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert {row["name"]: row["seeds"] for row in rows}["lcs"] == "2"
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "r-runs.csv").read_text())))) == 2


def test_runs_of_another_epoch_are_kept_apart(runs, tmp_path):
    other = shutil.copytree(runs["lcs", 1], tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"epoch": config["epoch"] - 1}))
    groups = group_by_seed([read_run(folder) for folder in (runs["lcs", 0], runs["lcs", 1], other)])
    now, then = config["epoch"], config["epoch"] - 1
    assert [(g.name, len(g.runs)) for g in groups] == [(f"lcs, epoch {now}", 2), (f"lcs, epoch {then}", 1)]
    assert [g.name for g in group_by_seed([read_run(runs["lcs", 0])])] == ["lcs"]


def test_many_runs_are_drawn_as_means_with_their_spread(runs):
    two = [read_run(runs["lcs", seed]) for seed in (0, 1)]
    lines = dict(curves(group_by_seed(two)))["validation H so far, %"]
    assert [line.name for line in lines] == ["lcs, seed 0", "lcs, seed 1"]
    (line,) = dict(curves(group_by_seed(two * 5)))["best loss of a generation"]
    assert line.name == "lcs"
    assert len(line.spread) == len(line.x) == 3
    assert curves(group_by_seed([read_run(runs["zero-shot", 0])])) == []


@pytest.mark.parametrize("method", ["zero-shot", "label-mask"])
def test_methods_without_a_prompt_are_reported(runs, tmp_path, method):
    (out,) = write_report([runs[method, 0]], tmp_path / "report.html")
    words = Page(out).words
    assert f"With {method}," in words
    assert "separate classifier" not in words


@pytest.mark.slow
def test_a_classifier_from_scratch_is_said_to_be_none_of_the_models(model, data, tmp_path):
    workspace, wanted = (
        Workspace(model, data, tmp_path),
        RunRequest("scratch-resnet18", 0, ("cat",), settings={"iterations": 1}),
    )
    workspace.run(wanted)
    (out,) = write_report([workspace.find(wanted)], tmp_path / "report.html")
    assert "separate classifier" in Page(out).words


def test_the_same_runs_give_the_same_bytes(runs, files_of_one, tmp_path):
    again = write_report([runs["lcs", 0]], tmp_path / "again.html", ["svg"])
    assert len(again) > 1
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in files_of_one]


def test_charts_and_tables_are_written_beside_the_page_on_request(runs, tmp_path, capsys):
    arguments = ["report", runs["lcs", 0], runs["lcs", 1], "-o", tmp_path / "new" / "page.html", "--also"]
    assert main([str(a) for a in (*arguments, "png, svg,csv,tex", "--json")]) == 0
    found = json.loads(capsys.readouterr().out)
    names = {path.name for path in (tmp_path / "new").iterdir()}
    charts = {f"page-{name}.{kind}" for name in ("curves", "front", "classes", "confusion") for kind in ("png", "svg")}
    assert names == charts | {"page.html", "page.csv", "page-runs.csv", "page-classes.csv", "page.tex"}
    assert found["report"] == str(tmp_path / "new" / "page.html")
    assert {*found["also"], found["report"]} == {str(tmp_path / "new" / name) for name in names}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "new" / "page.csv").read_text())))
    assert [row["name"] for row in rows] == ["zero-shot", "label-mask", "lcs"]
    assert len(list(csv.reader(io.StringIO((tmp_path / "new" / "page-runs.csv").read_text())))) == 3
    assert r"\textless{}script\textgreater{}" in (tmp_path / "new" / "page.tex").read_text()


def test_the_path_is_printed_and_the_default_is_report_html(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(runs["zero-shot", 0]), str(runs["zero-shot", 0] / ".")]) == 0
    assert capsys.readouterr().out == "report: report.html\n"
    assert len(Page(tmp_path / "report.html").all("section")) == 4  # given twice, reported once


def test_a_run_without_answers_or_picture_is_reported_without_them(runs, tmp_path):
    old = shutil.copytree(runs["lcs", 0], tmp_path / "old")
    (old / "answers.safetensors").unlink()
    (old / "picture.png").write_bytes(b"damaged")
    with (old / "journal.jsonl").open("a") as out:
        out.write('{"generation": 4, "cand')
    words = Page(write_report([old], tmp_path / "report.html")[0]).words
    assert "kept no answers" in words
    assert "has no picture" in words
    assert "The course of the search" in words


def refused(capsys, tmp_path, *arguments):
    assert main(["report", *map(str, arguments)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))
    return err


def test_what_cannot_be_reported_is_one_clear_line(runs, tmp_path, capsys):
    damaged = shutil.copytree(runs["lcs", 0], tmp_path / "damaged")
    (damaged / "result.json").unlink()
    page = tmp_path / "report.html"
    assert f"continue it with: unsee resume {damaged}" in refused(capsys, tmp_path, damaged, "-o", page)
    assert "holds no run" in refused(capsys, tmp_path, tmp_path / "nothing", "-o", page)
    (damaged / "result.json").write_text('{"method": "lcs"}')
    assert "preset is missing" in refused(capsys, tmp_path, damaged, "-o", page)
    good = runs["lcs", 0]
    assert "is a folder" in refused(capsys, tmp_path, good, "-o", tmp_path)
    assert "must end in .html" in refused(capsys, tmp_path, good, "-o", damaged / "config.json")
    assert "--also takes png, svg, csv, tex, not 'pdf'" in refused(capsys, tmp_path, good, "-o", page, "--also", "pdf")
    (tmp_path / "file").write_text("")
    assert "cannot write" in refused(capsys, tmp_path, good, "-o", tmp_path / "file" / "report.html")
    shutil.copy(good / "result.json", damaged)
    shutil.copy(runs["zero-shot", 0] / "config.json", damaged)
    (damaged / "answers.safetensors").write_bytes(b"damaged")
    assert "damaged" in refused(capsys, tmp_path, damaged, "-o", page)
