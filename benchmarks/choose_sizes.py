"""Chooses the sizes of LCS for preset `tuned` and the embedded model: on validation images alone.

    python -m benchmarks.choose_sizes DATA_DIR CACHE_DIR [--data NAME] [--model MODEL] [--sizes M+SHARED+OWN ...]

Shots and the images to score come from training photos that the embedded model was not trained on. No test image is
scored, and the seeds are not those of the published tables.
"""

from __future__ import annotations

import argparse
import time

import unsee
from benchmarks.choose_steps import FORGET, columns, held_out
from unsee.types import Data, Scores

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


def to_forget(data: Data) -> list[str]:
    """The paper's first 40 %."""
    return FORGET if len(data.class_names) == len(FORGET) * 5 // 2 else list(data.class_names[:40])


def main() -> None:
    """Prints a line for every trial."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("--data", choices=sorted(SIZES), default="cifar10-batch5")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--sizes", nargs="*", metavar="M+SHARED+OWN")
    parser.add_argument("--seeds", nargs="*", type=int)
    given = parser.parse_args()
    model = unsee.load_model(given.model, cache=unsee.FeatureCache(given.cache), threads=1)
    data = unsee.load_data(given.data, data_dir=given.folder)
    for sizes in given.sizes or SIZES[given.data]:
        contexts, shared, own = (int(size) for size in sizes.split("+"))
        began, found = time.perf_counter(), list[Scores]()
        for seed in given.seeds or SEEDS[given.data]:
            tuner = unsee.PromptTuner(to_forget(data), "lcs", seed=seed, contexts=contexts, shared=shared, own=own)
            split = tuner.fit(model, data).config_.split
            found.append(tuner.score(data.train.subset(held_out(data, {*split.train, *split.valid}))))
        each = (time.perf_counter() - began) / len(found)
        print(f"{given.data}, {sizes}: {columns(found)}; {each:.0f} s a run", flush=True)


if __name__ == "__main__":
    main()
