r"""Chooses sizes, rates and steps of every method for the embedded model, at equal image queries: on held-out photos.

    python -m benchmarks.choose_sizes DATA_DIR CACHE_DIR [--data NAME ...] [--trials METHOD:SETTING=VALUE,... ...] \
        [--preset PRESET] [--seeds N ...] [--log FILE]

Shots and the images to score come from photos that the embedded model was not trained on. For named data sets they are
training photos: no test image is scored. Folders are those of `benchmarks.photo_sets`, which no published table uses;
their test photos are scored. The seeds are not those of the published tables either. Every black-box trial has as many
image queries as LCS in its preset, whatever it asks in a step. Trials that are in the log already are not made again.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import unsee
from benchmarks.trials import ELSEWHERE, TRIALS
from unsee.data.class_names import first_share
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.methods.cost import planned_cost, settings_for_queries
from unsee.methods.registry import REFERENCE
from unsee.methods.task import make_task
from unsee.models.black_box import BlackBox
from unsee.settings import Value, parse_settings

SEEDS = {"cifar10-batch5": (10, 11, 12)}
FEW_SEEDS = (10, 11)  # elsewhere
IMAGES = 200  # of each class to score, at most
SCORES = ("h", "err_for", "acc_mem")
COLUMNS = ("data", "preset", "trial", "seed", "steps", "candidates", "image_queries", *SCORES)
Row = Mapping[str, str]


def held_out(data: Data, used: set[int]) -> list[int]:
    """The first images of each class that a run has not used."""
    rows: list[int] = []
    for label in range(len(data.class_names)):
        free = [int(row) for row in np.flatnonzero(data.train.labels == label) if int(row) not in used]
        rows += free[:IMAGES]
    return rows


def to_forget(data: Data, seed: int) -> list[str]:
    """The paper's first 40 % of a named set; as many names drawn by the seed of a folder."""
    names = np.random.default_rng(seed).permutation(data.class_names) if Path(data.name).is_dir() else data.class_names
    return [str(name) for name in first_share(names)]


def images_to_score(data: Data, used: set[int]) -> Images:
    """Training photos that a run has not used; of a folder its test photos."""
    return data.test if Path(data.name).is_dir() else data.train.subset(held_out(data, used))


def read_trial(text: str) -> tuple[str, dict[str, Value]]:
    """Method and settings of METHOD:SETTING=VALUE,..."""
    method, _, pairs = text.partition(":")
    return method, parse_settings(dict(pair.split("=", 1) for pair in pairs.split(",") if pair))


def run_trial(model: BlackBox, data: Data, preset: str, text: str, seed: int) -> Row:
    """One run, its scores and what it asked."""
    (method, given), gone = read_trial(text), to_forget(data, seed)
    shots = {name: value for name, value in given.items() if name == "shots"}
    queries = planned_cost(make_task(model, data, gone, REFERENCE, preset, seed, shots)).image_queries
    equal = settings_for_queries(make_task(model, data, gone, method, preset, seed, given), queries)
    tuner = unsee.PromptTuner(gone, method, preset=preset, seed=seed, **given, **equal).fit(model, data)
    split = tuner.config_.split
    found = tuner.score(images_to_score(data, {*split.train, *split.valid}))
    ledger = tuner.ledger_
    asked = [ledger.generations, ledger.candidates, ledger.image_queries]
    points = [f"{100 * getattr(found, name):.2f}" for name in SCORES]
    facts = [Path(data.name).name, preset, text, seed, *asked, *points]
    return dict(zip(COLUMNS, map(str, facts), strict=True))


def read_log(log: Path) -> list[Row]:
    """What was tried before."""
    if not log.exists():
        return []
    with log.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def append(log: Path, row: Row) -> None:
    """Adds a run to the log, which has a header."""
    new = not log.exists()
    with log.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def summary(rows: Sequence[Row]) -> str:
    """A trial over its seeds: mean ± standard deviation, in points; its steps and image queries."""
    texts = []
    for name in SCORES:
        values = [float(row[name]) for row in rows]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        texts.append(f"{name} {statistics.fmean(values):.2f}{spread}")
    first = rows[0]
    asked = f"{int(first['steps']):,} steps, {int(first['image_queries']):,} image queries, {len(rows)} seeds"
    return f"{first['data']}, {first['preset']}, {first['trial']}: {', '.join(texts)}; {asked}"


def main() -> None:
    """Prints a line for every trial."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("--data", nargs="*", default=["cifar10-batch5"], help="a data set, or a folder's path")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--preset", default="tuned")
    parser.add_argument("--trials", nargs="*", metavar="METHOD:SETTING=VALUE,...")
    parser.add_argument("--seeds", nargs="*", type=int)
    parser.add_argument("--log", type=Path, default=Path("results/choose-sizes.csv"))
    given = parser.parse_args()
    model = unsee.load_model(given.model, cache=unsee.FeatureCache(given.cache), threads=1)
    for name in given.data:
        data = unsee.load_data(name, data_dir=given.folder)
        for trial in given.trials or TRIALS.get((name, given.preset), ELSEWHERE):
            for seed in given.seeds or SEEDS.get(name, FEW_SEEDS):
                key = (Path(name).name, given.preset, trial, str(seed))
                if not any(tuple(row[column] for column in COLUMNS[:4]) == key for row in read_log(given.log)):
                    append(given.log, run_trial(model, data, given.preset, trial, seed))
            made = [row for row in read_log(given.log) if tuple(row[column] for column in COLUMNS[:3]) == key[:3]]
            print(summary(made), flush=True)


if __name__ == "__main__":
    main()
