r"""What each part of the guided search is worth: the search without it, on the same lists and shots.

    python -m benchmarks.ablation DATA_DIR CACHE_DIR OUT.csv [--model MODEL ...] [--without NAME,NAME] [--lists A,B,C] \
        [--seeds 0,1] [--image-queries N]

Scores are of training photos that are neither tuned nor validated on, so that no choice is made by test photos. Rows
that the file has are not measured again. The table at the end has paired differences from the whole search.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import unsee
from benchmarks.queries import add, forget_list, read
from unsee.data.data_set import Data
from unsee.methods import guided
from unsee.methods.answer_model import AnswerModel
from unsee.methods.image_map import ImageMap
from unsee.types import Ints

FIELDS = ("model", "data", "list", "seed", "without", "image_queries", "h", "loss", "candidates")
JUDGED = 3000  # photos
Change = tuple[Any, str, Any]  # an object, one of its names, and what is there instead
Row = dict[str, str]


def at_random(images: ImageMap, count: int) -> Ints:
    """As many images, whatever they say of the others."""
    drawn = np.random.default_rng(count).permutation(len(images.basis))[:count]
    return np.sort(drawn).astype(np.int64)


def no_scores(*given: object) -> SimpleNamespace:
    """Scores in which all candidates are equal: the loss decides then."""
    return SimpleNamespace(h=0.0)


WITHOUT: Mapping[str, Sequence[Change]] = {
    "": (),
    "few images": ((guided, "NEARLY_ALL", 0.0),),
    "inferring again": ((AnswerModel, "_infer_again", lambda *given: None),),
    "well-chosen images": ((ImageMap, "choose", at_random),),
    "more images where answers disappoint": ((guided, "MORE", 1.0),),
    "checking the highest inferred H": ((guided, "scores", no_scores),),
    "a region that changes": ((guided, "WIDER", 1.0), (guided, "NARROWER", 1.0)),
    "a wide region again": ((guided, "NARROWEST", 0.0),),
    "candidates on the way": ((guided, "ON_THE_WAY", 0.0),),
    "candidates around the optimum": ((guided, "ON_THE_WAY", 1.0),),
}
SETTINGS: Mapping[str, Mapping[str, str]] = {"choosing by all images": {"merit": "h"}}


@contextmanager
def changed(changes: Sequence[Change]) -> Iterator[None]:
    """These names have other values inside."""
    before = [getattr(where, name) for where, name, _ in changes]
    try:
        for where, name, value in changes:
            setattr(where, name, value)
        yield
    finally:
        for (where, name, _), value in zip(changes, before, strict=True):
            setattr(where, name, value)


def judged(tuner: unsee.PromptTuner, model: Any, data: Data) -> Data:
    """The data with unused training photos in place of the test photos."""
    used = np.concatenate(tuner.task(model, data).split_rows)
    free = np.setdiff1d(np.arange(len(data.train.labels)), used)
    some = np.random.default_rng(0).permutation(free)[:JUDGED]
    return replace(data, test=data.train.subset(np.sort(some)))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown: mean H and loss without each part, and their paired differences from the whole search."""
    yield "| model | without | pairs | H | difference in H | in the loss |"
    yield "|---|---|---|---|---|---|"
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        found = {(r["without"], r["list"], r["seed"]): (float(r["h"]), float(r["loss"])) for r in mine}
        for without in dict.fromkeys(row["without"] for row in mine):
            keys = [key for key in found if key[0] == without and ("", *key[1:]) in found]
            if not keys:
                continue
            apart = np.array([np.subtract(found[key], found["", *key[1:]]) for key in keys])  # (pairs, 2)
            h = np.mean([found[key][0] for key in keys])
            if not without:
                yield f"| {model} | (the whole search) | {len(keys)} | {h:.2f} | | |"
                continue
            half = 1.96 * apart.std(axis=0, ddof=1) / np.sqrt(len(keys)) if len(keys) > 1 else np.full(2, np.nan)
            cells = [f"{m:+.{n}f} ± {e:.{n}f}" for m, e, n in zip(apart.mean(axis=0), half, (2, 3), strict=True)]
            yield f"| {model} | {without} | {len(keys)} | {h:.2f} | {cells[0]} | {cells[1]} |"


def main() -> None:
    """Adds rows to a table, and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", default="cifar10-batch5")
    parser.add_argument("--model", nargs="*", default=["mini"])
    parser.add_argument("--without", default=",".join([*WITHOUT, *SETTINGS]))
    parser.add_argument("--lists", default="A,B,C")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--image-queries", type=int, default=64_000)
    given = parser.parse_args()
    data = unsee.load_data(given.data, data_dir=given.folder)
    known = read(given.out)
    for name in given.model:
        model = unsee.load_model(name, cache=unsee.FeatureCache(given.cache), threads=1)
        for seed in map(int, given.seeds.split(",")):
            for letter in given.lists.split(","):
                for without in given.without.split(","):
                    mine = dict(
                        zip(FIELDS, (Path(name).name, given.data, letter, str(seed), without), strict=False)
                    ) | {"image_queries": str(given.image_queries)}
                    if any(mine.items() <= row.items() for row in known):
                        continue
                    began = time.perf_counter()
                    more = {"image_queries": given.image_queries, **SETTINGS.get(without, {})}
                    tuner = unsee.PromptTuner(forget_list(data, letter), "guided", seed=seed, **more)
                    with changed(WITHOUT.get(without, ())):
                        tuner.fit(model, data)
                    h = tuner.score(judged(tuner, model, data).test).h
                    history = tuner.run_.recorder.history
                    images = sum(map(len, tuner.run_.task.split_rows))
                    whole = [g for g in history if g.answers is not None and g.answers.shape[1] == images]
                    loss = min(g.losses.min() for g in whole)  # others are inferred
                    row = mine | {"h": f"{100 * h:.2f}", "loss": f"{loss:.4f}"}
                    row["candidates"] = str(tuner.run_.recorder.ledger.candidates)
                    add(given.out, [row], FIELDS)
                    print(*row.values(), f"{time.perf_counter() - began:.0f} s", flush=True)
    print("\n".join(table(read(given.out))))


if __name__ == "__main__":
    main()
