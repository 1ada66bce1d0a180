"""The measurements in benchmarks/: what they write is in the true form, and what they add up is right."""

from __future__ import annotations

from pathlib import Path

import pytest

import unsee
from benchmarks import choose_sizes, paper_cost, trials, true_forms
from unsee.methods.presets import resolve
from unsee.models.fast.tokenizers import find_tokenizer
from unsee.report.paper.experiments import experiment_names, load_experiment


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return true_forms.write_all(tmp_path_factory.mktemp("sets"), birds=4, things=5)


@pytest.mark.parametrize(
    ("name", "classes"), [("cifar10", 10), ("cifar100", 100), ("cub200", 4), ("imagenet30", 30), ("imagenet", 5)]
)
def test_every_set_is_read_as_what_it_is(written, name, classes):
    data = unsee.load_data(name, data_dir=written)
    assert data.name == name
    assert (len(data.class_names), len(data.train), len(data.test)) == (classes, 2 * classes, classes)
    assert 1 < len({data.train.digest(i) for i in range(len(data.train))}) <= true_forms.PICTURES
    assert data.test.read(0).size[0] >= 32


def test_the_tokenizer_has_clips_places_and_a_start_of_four_tokens(tmp_path):
    true_forms.write_tokenizer(tmp_path)
    found = find_tokenizer(tmp_path, 49408)
    assert (found.sos, found.eot) == (49406, 49407)
    assert len(found.ids("a photo of a")) == 4
    assert found.eot not in found.ids("a photo of a sea tern aaab.")


class Counting:
    """Rates of a machine where everything takes a second."""

    image = 1.0

    def macs(self, data, contexts):
        return 2.0

    def text(self, classes):
        return 1.0

    def generation(self, settings):
        return 0.5


def test_costs_are_those_of_the_runs_at_the_papers_sizes():
    lcs = next(run for run in paper_cost.runs_of(load_experiment("table-time")) if run.data == "cifar10")
    work = paper_cost.Work()
    paper_cost.add(work, lcs, Counting())
    assert work.text == {(10, 4): 3 * 8000 * 2.0}
    assert (work.image, work.search) == (0, 3 * 400 * 0.5)
    assert work.hours(Counting())[0] == pytest.approx((3 * 8000 * 2 + 600) / 3600)
    every = [run for name in experiment_names() for run in paper_cost.runs_of(load_experiment(name))]
    assert {run.data for run in every} == set(paper_cost.SETS)
    assert len(set(every)) < len(every), "tables share runs"
    zero = next(run for run in every if run.settings.method == "zero-shot")
    paper_cost.add(work, zero, Counting())
    assert work.text == {(10, 4): 48000.0}, "nothing is tuned"
    whole = paper_cost.total(dict.fromkeys([lcs]), Counting())
    assert whole.image == (3 * 320 + 10_000) * paper_cost.IMAGE_MACS["vit"]


def test_every_trial_of_the_choice_is_a_method_with_settings_it_takes():
    for (data, preset), texts in [*trials.TRIALS.items(), (("folder", "tuned"), trials.ELSEWHERE)]:
        for text in texts:
            method, given = choose_sizes.read_trial(text)
            resolve(given, method=method, preset=preset, seed=0, data=data, width=128, classes=10, shots=4)


def test_the_log_of_the_choice_has_trials_at_equal_image_queries():
    log = choose_sizes.read_log(Path(__file__).parents[1] / "results" / "choose-sizes.csv")
    assert {row["trial"] for row in log} <= {trial for texts in trials.TRIALS.values() for trial in texts}
    most = {row["preset"]: 8000 * 320 + 320 for row in log}  # LCS's, the plain prompt included
    assert all(0.99 * most[row["preset"]] < int(row["image_queries"]) <= most[row["preset"]] for row in log)
    cbbt = {
        row["trial"]: int(row["steps"]) for row in log if row["trial"].startswith("cbbt") and row["preset"] == "tuned"
    }
    assert (
        cbbt["cbbt:population=257,rate=0.5,validate=every"] == 31 < cbbt["cbbt:population=10,rate=0.5,validate=first"]
    )


def test_a_log_is_read_as_it_was_written(tmp_path):
    row = {"data": "d", "preset": "tuned", "trial": "lcs:own=1,dim=2", "steps": "3", "candidates": "60"}
    row |= {"image_queries": "1920", "h": "90.00", "err_for": "89.00", "acc_mem": "91.00"}
    for seed in ("10", "11"):
        choose_sizes.append(tmp_path / "log.csv", row | {"seed": seed})
    read = choose_sizes.read_log(tmp_path / "log.csv")
    assert [one["seed"] for one in read] == ["10", "11"]
    wanted = "h 90.00 ± 0.00, err_for 89.00 ± 0.00, acc_mem 91.00 ± 0.00; 3 steps, 1,920 image queries, 2 seeds"
    assert choose_sizes.summary(read) == f"d, tuned, lcs:own=1,dim=2: {wanted}"
