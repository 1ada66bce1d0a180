"""Chooses steps and rate of CoOp and of CoOp without forgetting, for preset `tuned`: on validation images alone.

    python -m benchmarks.choose_steps DATA_DIR CACHE_DIR

CIFAR-10's data_batch_5, which the embedded model was not trained on, gives shots to tune on and, for each seed, 200
other images per class to score. No test image is scored, and the seeds are not those of the published tables.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence

import numpy as np

import unsee
from unsee.data.data_set import Data
from unsee.types import Scores

FORGET = ["airplane", "automobile", "bird", "cat"]
SEEDS = range(10, 16)
IMAGES = 200  # of each class to score
TRIALS = {
    "coop": [(200, 0.3), (800, 0.1), (800, 0.3), (800, 1.0), (1600, 0.3)],
    "coop-memorize": [(100, 0.03), (200, 0.1), (800, 0.1), (800, 0.3)],
}


def held_out(data: Data, used: set[int]) -> list[int]:
    """The first images of each class that a run has not used."""
    rows: list[int] = []
    for label in range(len(data.class_names)):
        free = [int(row) for row in np.flatnonzero(data.train.labels == label) if int(row) not in used]
        rows += free[:IMAGES]
    return rows


def columns(found: Sequence[Scores]) -> str:
    """Mean and standard deviation of each score in points; no deviation of a single run."""
    texts = []
    for name in ("h", "err_for", "acc_mem"):
        values = [100 * getattr(scores, name) for scores in found]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        texts.append(f"{name} {statistics.fmean(values):.2f}{spread}")
    return ", ".join(texts)


def main(folder: str, cache: str) -> None:
    """Prints a line for every trial."""
    model = unsee.load_model("mini", cache=unsee.FeatureCache(cache), threads=1)
    data = unsee.load_data("cifar10-batch5", data_dir=folder)
    for method, trials in TRIALS.items():
        for steps, rate in trials:
            found: list[Scores] = []
            for seed in SEEDS:
                tuner = unsee.PromptTuner(FORGET, method, seed=seed, iterations=steps, rate=rate).fit(model, data)
                split = tuner.config_.split
                found.append(tuner.score(data.train.subset(held_out(data, {*split.train, *split.valid}))))
            print(f"{method}, {steps} steps at {rate}: {columns(found)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
