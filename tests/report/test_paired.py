"""Methods side by side over the same seeds: paired differences, every seed's scores, and what settings reach."""

from __future__ import annotations

import csv
import json
import math

import pytest
from scipy import stats

from tests import tiny
from unsee.cli import main
from unsee.report.paired import difference_over_seeds
from unsee.report.paper.experiments import ResultLine, with_differences
from unsee.report.score_tables import scores_table
from unsee.report.summary import group_by_seed
from unsee.runs.stored import read_run


def test_a_difference_has_students_interval_over_seeds():
    ours, others = [90.0, 70.0, 84.0, 93.5, 60.0], [88.0, 69.0, 80.0, 92.0, 59.5]
    found = difference_over_seeds("lcs", ours, others)
    low, high = stats.ttest_rel(ours, others).confidence_interval(0.95)
    assert (found.mean, found.low, found.high) == pytest.approx((1.8, low, high))
    assert found.clear, "seeds differ by thirty points, methods always by a little in the same direction"
    assert not difference_over_seeds("lcs", ours, [91.0, 70.0, 85.0, 92.0, 60.0]).clear
    assert str(difference_over_seeds("lcs", [1.0], [2.0])) == "-1.00"


def line(row, method, seeds, h, point=""):
    mean = sum(h) / len(h) if h else math.nan
    ours = {"h": (mean, 0.0)} if h else {}
    return ResultLine(row, point, method, len(h), ours, {}, by_seed={"h": tuple(h)}, seed_numbers=tuple(seeds))


def test_lines_are_compared_with_lcs_at_the_same_point_over_the_seeds_both_have():
    lines = [
        line("BBT", "bbt", [0, 1, 2], [80.0, 81.0, 85.0], "4"),
        line("Ours", "lcs", [0, 1, 2, 3], [79.0, 79.0, 82.0, 1.0], "4"),
        line("BBT", "bbt", [0], [50.0], "8"),
        line("left out", "cbbt", [], [], "4"),
    ]
    bbt, ours, elsewhere, nothing = with_differences(lines, "h")
    assert (bbt.difference.to, bbt.difference.mean, bbt.difference.seeds) == ("Ours", 2.0, 3)
    assert ours.difference is elsewhere.difference is nothing.difference is None


@pytest.fixture(scope="module")
def compared(model_folder, tmp_path_factory):
    """A comparison of methods that can and cannot take a population."""
    folder = tmp_path_factory.mktemp("compare")
    images = tiny.write_images(folder / "images", tiny.NAMES[:4], train=4, test=2)
    given = ["compare", images, "--model", model_folder, "--methods", "lcs,cbbt,coop,label-mask", "--seeds", "0,1"]
    given += ["--set", "shots=2", "--set", "population=6", "--set", "iterations=2", "--save", folder / "made" / "s.csv"]
    return [*map(str, given), "--out", str(folder / "runs"), "--no-cache"], folder


def test_a_population_reaches_methods_that_allow_it_and_the_others_are_named(compared, capsys):
    given, folder = compared
    assert main([*given, "--json"]) == 0
    text, said = capsys.readouterr()
    found = json.loads(text)
    rows = {row["method"]: row for row in found["rows"]}
    settings = {
        json.loads(path.read_text())["settings"]["method"]: json.loads(path.read_text())["settings"]
        for path in (folder / "runs").glob("*/config.json")
    }
    assert [settings[name]["population"] for name in ("lcs", "cbbt", "coop")] == [6, 6, 1]
    assert "population=6 does not reach coop, label-mask: one candidate per step" in said
    assert rows["cbbt"]["image_queries"] <= rows["lcs"]["image_queries"]
    assert rows["cbbt"]["steps"] * 6 == rows["cbbt"]["candidates"]


def test_a_comparison_has_differences_and_writes_every_seed(compared, capsys):
    given, folder = compared
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["method"]: row for row in found["rows"]}
    assert rows["lcs"]["difference"] is None
    apart = [100 * (a - b) for a, b in zip(rows["cbbt"]["h_by_seed"], rows["lcs"]["h_by_seed"], strict=True)]
    assert rows["cbbt"]["difference"]["mean"] == pytest.approx(sum(apart) / 2)
    with (folder / "made" / "s.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [(row["method"], row["seed"]) for row in written[:3]] == [("lcs", "0"), ("lcs", "1"), ("cbbt", "0")]
    assert float(written[1]["h"]) == pytest.approx(100 * rows["lcs"]["h_by_seed"][1], abs=1e-3)
    assert main(given) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "mean ± standard deviation (n − 1) over 2 seeds" in shown
    assert "Student's 95 % interval" in shown


def test_a_report_of_these_runs_names_differences_over_the_seeds_they_share(compared, capsys):
    given, folder = compared
    assert main([*given, "--json"]) == 0
    rows = {row["method"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    runs = [read_run(path) for path in sorted((folder / "runs").iterdir()) if "-coop-" not in path.name]
    notes = scores_table(group_by_seed(runs)).notes
    assert notes[0] == "± is the standard deviation over seeds (n − 1)"
    (cbbt,) = [note for note in notes if note.startswith("cbbt")]
    assert f"{rows['cbbt']['difference']['mean']:+.2f}" in cbbt
    assert cbbt.endswith("to lcs, paired over 2 seeds, 95 %")
    assert not any(note.startswith("lcs") for note in notes)
