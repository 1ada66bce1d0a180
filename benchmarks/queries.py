r"""H against image queries: a guided search beside the paper's, on the same shots, from one run each.

    python -m benchmarks.queries DATA_DIR CACHE_DIR OUT.csv [--data NAME] [--model MODEL ...] [--methods guided,lcs] \
        [--lists D,E] [--seeds 20,21] [--shots K] [--contexts M] [--image-queries N]

A run keeps the contexts of every candidate that became the best, so one long run shows what shorter ones would have
ended with. Rows that the file has are not measured again. Lists A, B and C with seeds 0 and 1 were used to choose the
search's constants, on training photos; D to G are drawn at random and were not looked at before.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import unsee
from unsee.answers.metrics import scores, top_classes
from unsee.data.data_set import Data
from unsee.methods.presets import reference_candidates
from unsee.models.black_box import bind

SHARES = (100, 60, 40, 20, 10, 4, 2, 1)  # parts of what the paper's search asks
FIELDS = ("model", "data", "shots", "contexts", "list", "seed", "method", "image_queries", "h", "err_for", "acc_mem")
Row = dict[str, str]


def forget_list(data: Data, name: str) -> list[str]:
    """The first 40 %, the next, and the last for A, B and C; for the others as many names, drawn by the letter."""
    names, count = list(data.class_names), round(0.4 * len(data.class_names))
    if name in "ABC":
        first = {"A": 0, "B": count, "C": len(names) - count}[name]
        return names[first : first + count]
    drawn = np.random.default_rng(ord(name)).permutation(len(names))[:count]
    return [names[i] for i in sorted(drawn)]


def curve(tuner: unsee.PromptTuner, data: Data, limits: Sequence[int]) -> Iterator[tuple[int, unsee.Scores]]:
    """Test scores of the best candidate at each limit that the run reached."""
    run = tuner.run_
    test = bind(run.task.model, data.test)
    reached, best, known = 0, None, dict[int, unsee.Scores]()
    history = iter([*run.recorder.history, None])
    generation = next(history)
    for limit in limits:
        while generation is not None and generation.ledger["image_queries"] <= limit:
            best = generation.best if generation.best is not None else best
            reached = generation.number
            generation = next(history)
        if best is None:
            continue
        if id(best) not in known:
            answers = run.fitted.place(test).confidences(best[None])[0]
            known[id(best)] = scores(top_classes(answers), test.labels, run.task.forget)
        yield limit, known[id(best)]
    assert reached or best is None


def main() -> None:
    """Adds rows to a table, and says how long each run took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", default="cifar10-batch5")
    parser.add_argument("--model", nargs="*", default=["mini"])
    parser.add_argument("--methods", default="guided,lcs")
    parser.add_argument("--lists", default="D,E,F,G")
    parser.add_argument("--seeds", default="20,21,22,23,24")
    parser.add_argument("--shots", type=int)
    parser.add_argument("--contexts", type=int)
    parser.add_argument("--image-queries", type=int, help="for all methods; without it a twentieth of lcs's, and all")
    given = parser.parse_args()
    data = unsee.load_data(given.data, data_dir=given.folder)
    known = read(given.out)
    models = {name: unsee.load_model(name, cache=unsee.FeatureCache(given.cache), threads=1) for name in given.model}
    for seed in map(int, given.seeds.split(",")):
        for letter in given.lists.split(","):
            for name, model in models.items():
                for method in given.methods.split(","):
                    sizes = {k: v for k, v in {"shots": given.shots, "contexts": given.contexts}.items() if v}
                    tuner = unsee.PromptTuner(forget_list(data, letter), method, seed=seed, **sizes)
                    task = tuner.task(model, data)
                    images = sum(map(len, task.split_rows))
                    whole = reference_candidates(data.name, len(data.class_names)) * images
                    limit = given.image_queries or (whole // 20 if method == "guided" else whole)
                    key = (Path(name).name, given.data, str(task.settings.shots), str(task.settings.contexts))
                    mine = dict(zip(FIELDS, (*key, letter, str(seed), method), strict=False))
                    if any(mine.items() <= row.items() for row in known):
                        continue
                    began = time.perf_counter()
                    tuner = tuner.set_params(image_queries=limit + images).fit(model, data)  # the plain prompt's too
                    limits = sorted({whole // share for share in SHARES if whole // share <= limit})
                    rows = [
                        mine | {"image_queries": str(at), **{k: f"{100 * v:.2f}" for k, v in found.as_dict().items()}}
                        for at, found in curve(tuner, data, [at + images for at in limits])
                    ]
                    for row, at in zip(rows, limits[-len(rows) :], strict=True):
                        row["image_queries"] = str(at)
                    add(given.out, rows)
                    points = " ".join(f"{row['image_queries']}:{row['h']}" for row in rows)
                    print(*mine.values(), points, f"{time.perf_counter() - began:.0f} s", flush=True)


def read(path: Path) -> list[Row]:
    """The rows of the table so far."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add(path: Path, rows: Sequence[Row], fields: Sequence[str] = FIELDS) -> None:
    """Adds rows at the end."""
    new = not path.is_file()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
