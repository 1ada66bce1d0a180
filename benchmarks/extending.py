r"""What an extended run reaches with a tenth of the image queries, beside a new run with all of them.

    python -m benchmarks.extending DATA_DIR CACHE_DIR [--data NAME] [--seeds 30,31] [--list D]

For each seed: a run for a list of classes; then the list with one class more, and with one class less, each as a new
run and as an extension of the first. H is on test photos.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import unsee
from benchmarks.queries import forget_list
from unsee.runs.extending import EXTENDED_SHARE, inherit
from unsee.runs.folder import read_config
from unsee.runs.tuning import start_run


def main() -> None:
    """Prints a line for every seed and list, then means of paired differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("--data", default="cifar10-batch5")
    parser.add_argument("--seeds", default="30,31,32,33,34")
    parser.add_argument("--list", default="D")
    given = parser.parse_args()
    data = unsee.load_data(given.data, data_dir=given.folder)
    model = unsee.load_model("mini", cache=unsee.FeatureCache(given.cache), threads=1)
    first = forget_list(data, given.list)
    more = sorted([*first, next(name for name in data.class_names if name not in first)])
    apart = dict[str, list[float]]()
    for seed in map(int, given.seeds.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            parent = Path(folder) / "parent"
            unsee.PromptTuner(first, "guided", seed=seed).fit(model, data, out=parent)
            config = read_config(parent)
            limit = (config.settings.image_queries or 0) // EXTENDED_SHARE
            for what, gone in (("one class more", more), ("one class less", first[1:])):
                new = unsee.PromptTuner(gone, "guided", seed=seed).fit(model, data)
                before = unsee.PromptTuner.from_config(config).task(model, data)
                after = unsee.PromptTuner.from_config(config).set_params(forget=gone, image_queries=limit)
                run = start_run(inherit(parent, before, after.task(model, data)), None)
                old, extended = 100 * new.score(data.test).h, 100 * run.score(data.test).h
                apart.setdefault(what, []).append(extended - old)
                asked = f"{new.ledger_.image_queries:,} and {run.recorder.ledger.image_queries:,} image queries"
                print(f"seed {seed}, {what}: new {old:.2f}, extended {extended:.2f} ({asked})", flush=True)
    for what, found in apart.items():
        half = 1.96 * np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
        print(f"{what}: extended - new {np.mean(found):+.2f} ± {half:.2f} (95 %, {len(found)} seeds)")


if __name__ == "__main__":
    main()
