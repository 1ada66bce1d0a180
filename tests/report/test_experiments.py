"""The paper's tables and figures as grids, and what becomes of them."""

from __future__ import annotations

import csv
import dataclasses
import json
from dataclasses import replace

import pytest

import unsee
from tests import tiny
from unsee import InputError
from unsee.answers.metrics import harmonic_mean
from unsee.cli import main
from unsee.data.class_names import first_share
from unsee.data.named import NAMED
from unsee.data.paper_names import CIFAR10
from unsee.methods.registry import METHODS
from unsee.methods.task import resolve_settings
from unsee.report.paper.experiments import (
    PHOTOS_OF,
    STANDS_FOR,
    RunValues,
    experiment_names,
    forgotten,
    load_experiment,
    parse_experiment,
    requests_of,
    result_line,
)
from unsee.report.paper.known_runs import read_known
from unsee.report.paper.rendering import save_all, tabulate
from unsee.report.paper.reproduce import Reproduced, reproduce
from unsee.runs.sweep import RunRequest, Workspace, run_all

TABLES = {"main", "imagenet", "acc", "memorize", "cma", "c-emb", "combine", "scratch", "finetune", "params"}
TABLES |= {"projection", "classes", "time"}
FIGURES = {"contexts", "dims", "ratio"}


def test_every_table_and_figure_of_the_paper_is_there():
    assert set(experiment_names()) == {f"table-{name}" for name in TABLES} | {f"fig-{name}" for name in FIGURES}


@pytest.mark.parametrize("name", experiment_names())
def test_an_experiment_has_a_method_and_settings_for_every_line_on_each_of_its_data_sets(name, model, data):
    experiment = load_experiment(name)
    for where in experiment.data:
        lines = requests_of(experiment, where, CIFAR10, [0, 1], {"scratch-vit": "here", "scratch-resnet18": "here"})
        assert lines
        for row, point, requests in lines:
            assert row.method in METHODS
            assert [wanted.seed for wanted in requests] == [0, 1]
            for wanted in requests:
                resolve_settings(
                    model, data, wanted.method, wanted.preset, wanted.seed, wanted.settings
                )  # refuses what it does not know
            if point.settings or row.settings:
                assert requests[0].settings


def published():
    for name in experiment_names():
        experiment = load_experiment(name)
        for where in experiment.data:
            for row, point, _ in experiment.entries(where, {"scratch-vit": "", "scratch-resnet18": ""}):
                found = experiment.published(row, point, where)
                if found:
                    yield name, row.name, where, found


def test_the_papers_values_are_percentages_whose_h_is_a_harmonic_mean():
    count = 0
    for name, row, where, found in published():
        count += 1
        if "h" not in found:
            continue
        (h, *spread), (err_for, *_), (acc_mem, *_) = found["h"], found["err_for"], found["acc_mem"]
        # Some of the paper's H are means of H over seeds, which lie below the H of the means where seeds differ.
        slack = 0.7 + 0.3 * (spread[0] if spread else 0)
        assert abs(h - harmonic_mean(err_for, acc_mem)) < slack, (name, row, where)
    assert count >= 130


def test_classes_to_forget_are_named_by_number_or_are_a_share_of_the_first():
    ratio = load_experiment("fig-ratio")
    assert [len(forgotten(ratio.rows[0], point, CIFAR10)) for point in ratio.points] == list(range(1, 10))
    classes = load_experiment("table-classes")
    assert len(classes.rows) == 18
    assert forgotten(classes.rows[2], classes.points[0], CIFAR10) == ("airplane", "ship")
    main_table = load_experiment("table-main")
    assert forgotten(main_table.rows[0], main_table.points[0], CIFAR10) == CIFAR10[:4]
    with pytest.raises(InputError, match="forgets class number 1, but there are 1"):
        requests_of(classes, "cifar10", ("cat",), [0])


def test_compare_and_the_papers_tables_forget_the_same_first_classes():
    main_table = load_experiment("table-main")
    for count in range(2, 60):
        names = tuple(map(str, range(count)))
        assert first_share(names) == forgotten(main_table.rows[0], main_table.points[0], names)
    assert [len(first_share(range(count))) for count in (2, 3, 4, 6, 7, 9, 10, 30, 1000)] == [
        1,
        1,
        2,
        2,
        3,
        4,
        4,
        12,
        400,
    ]


def test_compare_forgets_the_first_40_percent(model_folder, tmp_path, capsys):
    images = tiny.write_images(tmp_path / "images", tiny.NAMES[:4], train=4, test=2)
    given = ["compare", images, "--model", model_folder, "--methods", "label-mask", "--seeds", "0", "--set", "shots=2"]
    assert main([*map(str, given), "--out", str(tmp_path / "runs"), "--no-cache", "--json"]) == 0
    assert "forgetting airplane and automobile" in json.loads(capsys.readouterr().out)["title"]


def test_a_pretrained_start_needs_weights_and_is_left_out_without():
    scratch = load_experiment("table-scratch")
    plain = requests_of(scratch, "cifar10", CIFAR10, [0])
    given = requests_of(scratch, "cifar10", CIFAR10, [0], {"scratch-vit": "weights/vit"})
    assert [len(requests) for _, _, requests in plain] == [1, 1, 0, 0, 1]
    assert [len(requests) for _, _, requests in given] == [1, 1, 0, 1, 1]
    assert given[3][2][0].settings == {"weights": "weights/vit"}


def test_rows_of_methods_that_are_not_wanted_are_left_out_and_named():
    table = dataclasses.replace(load_experiment("table-main"), without=("cbbt-own",))
    lines = {row.method: (row, point, len(made)) for row, point, made in requests_of(table, "cifar10", CIFAR10, [0, 1])}
    row, point, made = lines["cbbt-own"]
    assert made == 0
    assert {count for method, (_, _, count) in lines.items() if method != "cbbt-own"} == {2}
    line = result_line(table, row, point, "cifar10", [])
    assert (line.left_out, line.paper["h"]) == ("left out: --without cbbt-own", [93.48, 2])


PRETRAINED = """
title = "Small"
paper = "nowhere"
kind = "table"
data = ["cifar10"]
note = "About all."
[[rows]]
name = "Given"
method = "scratch-resnet18"
pretrained = true
paper.cifar10 = { h = [95.07, 1] }
[[rows]]
name = "Plain"
method = "zero-shot"
settings = { shots = 2 }
note = "about it"
"""


def test_a_row_that_was_left_out_is_named_in_the_table_with_the_papers_values(model, data, tmp_path):
    named = dataclasses.replace(data, name="cifar10")  # so that the paper has values for it
    workspace = Workspace(model, named, tmp_path / "runs")
    (found,) = reproduce([(parse_experiment("small", PRETRAINED), workspace)], [0, 1])
    given, plain = found.lines
    assert (given.seeds, given.ours, plain.seeds, plain.left_out) == (0, {}, 2, "")
    table = tabulate(found)
    assert "2 seeds" in table.title
    assert table.rows[0][:3] == [
        "Given (left out: needs weights, --pretrained scratch-resnet18=FOLDER)",
        "–",
        "95.07 ± 1",
    ]
    saved = [path.read_text(encoding="utf-8") for path in save_all([found], tmp_path / "saved")]
    comma, seeds, markdown, latex = saved
    assert [row["seed"] for row in csv.DictReader(seeds.splitlines())] == ["0", "1"]
    assert all("left out: needs weights" in text for text in (markdown, latex))
    assert "|\n\nAbout all.\n\nPlain: about it\n\n± is the standard deviation over seeds" in markdown
    assert "About all." in latex
    first = next(csv.DictReader(comma.splitlines()))
    assert (first["row"], first["seeds"], first["h_mean"], first["h_paper_mean"]) == ("Given", "0", "", "95.07")


def test_the_papers_fine_tuning_stands_beside_both_readings_of_it():
    table, memorize = load_experiment("table-finetune"), load_experiment("table-memorize")
    (weights, contexts), coop = table.rows[:2], memorize.rows[-1]
    assert (weights.method, contexts.method, coop.method) == ("finetune", "coop-memorize", "coop-memorize")
    assert weights.paper == contexts.paper
    assert weights.paper["cub200"] == coop.paper["cub200"]
    assert "to the digit" in table.note


def test_a_damaged_experiment_says_what_is_wrong():
    with pytest.raises(InputError, match="experiment x"):
        parse_experiment("x", "title = ")
    with pytest.raises(InputError, match="experiment x"):
        parse_experiment("x", "title = 'a'\n[[rows]]\nnom = 'b'")
    with pytest.raises(InputError, match="did you mean 'table-main'"):
        load_experiment("table-mian")


SMALL = """
title = "Small"
paper = "nowhere"
kind = "figure"
data = ["cifar10"]
x = "contexts"
[[points]]
label = "1"
settings = { contexts = 1, iterations = 2, shots = 2 }
[[points]]
label = "2"
settings = { contexts = 2, iterations = 2, shots = 2 }
[[rows]]
name = "Ours"
method = "lcs"
paper.cifar10."2" = { h = [95.07, 1] }
[[rows]]
name = "Plain"
method = "zero-shot"
settings = { shots = 2 }
level = true
"""


def test_a_grid_runs_what_is_missing_once_and_gives_ours_beside_the_papers(model, data, tmp_path):
    small, workspace, watched = parse_experiment("small", SMALL), Workspace(model, data, tmp_path), []

    def watch(done, total, where, wanted, result, seconds):
        watched.append((done, total, wanted.method))

    (found,) = reproduce([(small, workspace)], [0, 1], watch=watch)
    assert [(line.row, line.point, line.seeds) for line in found.lines] == [
        ("Ours", "1", 2),
        ("Ours", "2", 2),
        ("Plain", "level", 2),
    ]
    assert watched == [(i + 1, 6, "lcs" if i < 4 else "zero-shot") for i in range(6)]
    assert found.model == model.card.name
    assert all(0 <= mean <= 100 for line in found.lines for mean, _ in line.ours.values())
    assert all(not line.paper for line in found.lines), "these are not the paper's images"
    (again, twin) = reproduce([(small, workspace), (small, workspace)], [0, 1], watch=watch)
    assert again == twin == found
    assert len(watched) == 6, "nothing was run again"


def test_changed_settings_reach_every_line_that_has_no_own_and_are_told(model, data, tmp_path):
    changed = replace(parse_experiment("small", SMALL), changed={"contexts": 3, "population": 4, "origin": "mean"})
    lines = changed.entries("cifar10", {})
    assert [settings["contexts"] for _, _, settings in lines] == [1, 2, 3]
    assert [settings.get("population") for _, _, settings in lines] == [4, 4, None], "a rule has one candidate"
    (found,) = reproduce([(changed, Workspace(model, data, tmp_path))], [0])
    assert "not at the paper's settings (contexts=3, population=4, origin=mean)" in tabulate(found).title
    plain = replace(found, experiment=replace(changed, changed={}))
    assert "settings" not in tabulate(plain).title


def test_tables_and_figures_are_saved_for_people_and_programs_and_the_same_every_time(model, data, tmp_path):
    (found,) = reproduce([(parse_experiment("small", SMALL), Workspace(model, data, tmp_path / "runs"))], [0, 1])
    files = save_all([found], tmp_path / "a")
    assert [path.suffix for path in files] == [".csv", ".csv", ".md", ".tex", ".png", ".svg"]
    with files[0].open(encoding="utf-8") as content:
        rows = list(csv.DictReader(content))
    assert [(row["row"], row["point"]) for row in rows] == [("Ours", "1"), ("Ours", "2"), ("Plain", "level")]
    assert {row["seeds"] for row in rows} == {"2"}
    assert float(rows[0]["h_mean"]) == pytest.approx(found.lines[0].ours["h"][0], abs=1e-4)
    assert rows[0]["h_paper_mean"] == ""
    assert f"ours on {model.card.name}" in files[2].read_text(encoding="utf-8").replace("\\", "")
    assert files[4].read_bytes().startswith(b"\x89PNG")
    assert "Plain" in files[5].read_text(encoding="utf-8")
    for path, again in zip(files, save_all([found], tmp_path / "b"), strict=True):
        assert path.read_bytes() == again.read_bytes()


def test_runs_that_a_saved_table_has_are_not_made_again_elsewhere(model, data, tmp_path):
    small, watched = parse_experiment("small", SMALL), []

    def watch(done, total, workspace, request, result, seconds):
        watched.append((request.method, request.seed))

    (first,) = reproduce([(small, Workspace(model, data, tmp_path / "here"))], [0, 1])
    save_all([first], tmp_path / "tables")
    elsewhere = Workspace(model, data, tmp_path / "there")
    known = read_known(tmp_path / "tables")
    (found,) = reproduce([(small, elsewhere)], [0, 1, 2], known=known, watch=watch)
    assert watched == [("lcs", 2), ("lcs", 2), ("zero-shot", 2)], "the third seed alone"
    assert all(line.seeds == 3 for line in found.lines)
    for line, before in zip(found.lines, first.lines, strict=True):
        assert line.by_seed["h"][:2] == pytest.approx(before.by_seed["h"], abs=1e-4)
    (again,) = reproduce([(small, elsewhere)], [2], known=known, watch=watch)
    assert len(watched) == 3
    assert all(line.seeds == 1 for line in again.lines)
    wider = replace(small, changed={"population": 6})
    reproduce([(wider, elsewhere)], [0], known=known, watch=watch)
    assert ("lcs", 0) in watched, "another run of the same method, seed and classes"


def test_runs_with_other_limits_on_image_queries_are_other_runs(model, data, tmp_path):
    workspace = Workspace(model, data, tmp_path)
    found = {
        workspace.find(RunRequest("guided", 0, ("cat",), settings={"shots": 2, "image_queries": limit}))
        for limit in (4000, 5000)
    }
    assert len(found) == 2


def test_minutes_are_never_taken_from_a_saved_table_and_a_broken_one_is_refused(tmp_path):
    header = "row,point,method,data,model,seed,minutes,h,run\n"
    (tmp_path / "a-seeds.csv").write_text(header + "LCS,,lcs,demo,mini,0,1.5,90.0,demo-lcs-seed0-12\n")
    (tmp_path / "old-seeds.csv").write_text("row,point,method,data,model,seed,h\nLCS,,lcs,demo,mini,0,90.0\n")
    known = read_known(tmp_path)
    assert known.has("demo-lcs-seed0-12", ["h"])
    assert not known.has("demo-lcs-seed0-12", ["h", "minutes"])
    assert len(known.values) == 1
    (tmp_path / "b-seeds.csv").write_text(header + "LCS,,lcs,demo,mini,0,1.5,high,demo-lcs-seed0-12\n")
    with pytest.raises(InputError, match=r"b-seeds\.csv is not a table that --save wrote"):
        read_known(tmp_path)


def test_the_papers_spread_is_shown_to_the_point_as_it_is_known():
    experiment = load_experiment("table-projection")
    row, point = experiment.rows[0], experiment.points[0]
    runs = [RunValues("a", 0, {"h": 90.0, "err_for": 80.0, "acc_mem": 100.0})] * 2
    lines = (result_line(experiment, row, point, "cifar10", runs),)
    table = tabulate(Reproduced(experiment, "cifar10", "mini", 10, lines))
    assert table.rows[0][:3] == ["N(0, 1)", "90.00 ± 0.00", "84.58 ± 5"]


@pytest.mark.parametrize("name", PHOTOS_OF)
def test_a_table_says_which_photos_stand_for_the_papers(name):
    assert name in NAMED
    shown = STANDS_FOR[name]
    experiment = load_experiment("table-imagenet" if shown == "imagenet" else "table-main")
    row, point = experiment.rows[0], experiment.points[0]
    runs = [RunValues("a", 0, {"h": 40.0, "err_for": 30.0, "acc_mem": 60.0})]
    lines = (result_line(experiment, row, point, name, runs),)
    table = tabulate(Reproduced(experiment, name, "study", 30, lines))
    assert f"{name} ({PHOTOS_OF[name]}), 30 test images" in table.title
    assert table.rows[0][2] == f"{row.paper[shown]['h'][0]:.2f}"


def test_an_interrupted_run_of_a_sweep_is_resumed(model, data, tmp_path):
    wanted = RunRequest("lcs", 0, ("cat",), "paper", {"iterations": 4, "shots": 2})
    (_, whole, _), *_ = run_all(Workspace(model, data, tmp_path / "a"), [wanted])
    workspace = Workspace(model, data, tmp_path / "b")

    def stop(generation, settings):
        if generation.number == 2:
            raise KeyboardInterrupt

    tuner = unsee.PromptTuner(wanted.forget, wanted.method, preset=wanted.preset, seed=0, **wanted.settings)
    with pytest.raises(KeyboardInterrupt):
        tuner.fit(model, data, out=workspace.find(wanted), watch=stop)
    assert not workspace.has(wanted)
    result = workspace.run(wanted)
    assert result.test == whole.test
    assert result.ledger.candidates == 80


def test_a_runs_fingerprint_follows_every_setting_and_nothing_else(model, data, tmp_path):
    workspace = Workspace(model, data, tmp_path)
    first = workspace.find(RunRequest("lcs", 0, ("cat", "dog"), "paper", {"shots": 2}))
    assert workspace.find(RunRequest("lcs", 0, ("dog", "cat"), "paper", {"shots": 2, "contexts": 4})) == first, (
        "the default"
    )
    others = [
        RunRequest("lcs", 1, ("cat", "dog"), "paper", {"shots": 2}),
        RunRequest("bbt", 0, ("cat", "dog"), "paper", {"shots": 2}),
        RunRequest("lcs", 0, ("cat",), "paper", {"shots": 2}),
        RunRequest("lcs", 0, ("cat", "dog"), "paper", {"shots": 3}),
    ]
    assert len({workspace.find(wanted) for wanted in others} | {first}) == 5


def test_the_command_lists_skips_and_prints_the_model_in_every_header(tmp_path, capsys):
    assert main(["reproduce"]) == 0
    assert "table-main" in capsys.readouterr().out
    assert main(["reproduce", "table-main", "--data-dir", str(tmp_path), "--json"]) == 0
    out, shown = capsys.readouterr()
    assert all(f"skipped: {name} is not in" in shown for name in ("cifar10", "cifar100", "cub200", "imagenet30"))
    assert "nothing was run; try --data demo" in shown
    assert json.loads(out) == {"experiments": [], "files": []}
    assert main(["reproduce", "table-main", "--data", "cifra10"]) == 1
    assert "did you mean 'cifar10'" in capsys.readouterr().err
    assert main(["reproduce", "table-nothing"]) == 1
    assert "unknown table or figure" in capsys.readouterr().err


def test_a_method_that_does_not_exist_cannot_be_left_out(capsys):
    assert main(["reproduce", "table-main", "--data", "demo", "--without", "cbt"]) == 1
    assert "unknown method 'cbt'" in capsys.readouterr().err
