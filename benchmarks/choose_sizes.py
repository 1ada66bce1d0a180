r"""Chooses the sizes of LCS for preset `tuned` and the embedded model: on validation images alone.

    python -m benchmarks.choose_sizes DATA_DIR CACHE_DIR [--data NAME ...] [--model MODEL] [--sizes M+SHARED+OWN ...] \
        [--shots K]

Shots and the images to score come from photos that the embedded model was not trained on. For CIFAR they are training
photos: no test image is scored. Folders are those of `benchmarks.photo_sets`, which no published table uses; their test
photos are scored. The seeds are not those of the published tables either.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import unsee
from benchmarks.choose_steps import FORGET, columns, held_out
from unsee.data.class_names import first_share
from unsee.data.data_set import Data
from unsee.data.images import Images
from unsee.types import Scores

SEEDS = {"cifar10-batch5": range(10, 16), "cifar100-tenth": (10, 11)}
SIZES = {
    "cifar10-batch5": (
        "4+20+5",
        "4+80+20",
        "4+160+40",
        "8+80+20",
        "8+160+40",
        "8+80+80",
        "8+80+120",
        "8+20+120",
        "8+0+120",
    ),
    "cifar100-tenth": ("16+80+20", "16+80+120", "16+160+40", "16+400+100"),
}
ELSEWHERE = ("4+20+5", "8+20+120", "16+80+120")  # on folders
FOLDER_SEEDS = (10, 11)


def to_forget(data: Data, seed: int) -> list[str]:
    """The paper's first 40 % of CIFAR; as many names drawn by the seed of a folder."""
    if data.name.startswith("cifar"):
        return FORGET if len(data.class_names) == len(FORGET) * 5 // 2 else list(data.class_names[:40])
    drawn = np.random.default_rng(seed).permutation(data.class_names)
    return [str(name) for name in first_share(drawn)]


def images_to_score(data: Data, used: set[int]) -> Images:
    """Training photos that a run has not used; of a folder its test photos."""
    return data.train.subset(held_out(data, used)) if data.name.startswith("cifar") else data.test


def main() -> None:
    """Prints a line for every trial."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("--data", nargs="*", default=["cifar10-batch5"], help="a data set, or a folder's path")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--sizes", nargs="*", metavar="M+SHARED+OWN")
    parser.add_argument("--seeds", nargs="*", type=int)
    parser.add_argument("--shots", type=int)
    given = parser.parse_args()
    model = unsee.load_model(given.model, cache=unsee.FeatureCache(given.cache), threads=1)
    for name in given.data:
        data = unsee.load_data(name, data_dir=given.folder)
        for sizes in given.sizes or SIZES.get(name, ELSEWHERE):
            contexts, shared, own = (int(size) for size in sizes.split("+"))
            began, found = time.perf_counter(), list[Scores]()
            for seed in given.seeds or SEEDS.get(name, FOLDER_SEEDS):
                gone = to_forget(data, seed)
                chosen = {"contexts": contexts, "shared": shared, "own": own, "shots": given.shots}
                tuner = unsee.PromptTuner(gone, "lcs", seed=seed, **chosen)
                split = tuner.fit(model, data).config_.split
                found.append(tuner.score(images_to_score(data, {*split.train, *split.valid})))
            each = (time.perf_counter() - began) / len(found)
            print(f"{Path(name).name}, {sizes}: {columns(found)}; {each:.0f} s a run", flush=True)


if __name__ == "__main__":
    main()
