r"""How well the guided search predicts, where it looks: images that it does not ask about, and candidates.

    python -m benchmarks.prediction_errors DATA_DIR CACHE_DIR [--data NAME] [--model MODEL] [--list A] [--seed 0] \
        [--image-queries N] [--parts 8]

One run, in so many parts. Each line has means over one of them:
images: the images that a candidate is asked about; their error is that of the inferred answers to the others, as a
share of the variance of answers, measured when such a candidate is asked about all images.
candidates: error of the answers predicted before a candidate is asked, as a share of what they differ by from those of
the best candidate so far: 1 is no better than to expect no change.
loss: the least true one so far; what the search takes it for (inferred); what it plans to reach with its next step, and
what that step finds (inferred). H is of training photos that are neither tuned nor validated on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

import unsee
from benchmarks.ablation import changed, judged
from benchmarks.queries import curve, forget_list
from unsee.methods.guided import GuidedSearch, as_kept
from unsee.types import Doubles, Floats

COLUMNS = (
    "images",
    "error of others",
    "error of candidates",
    "planned",
    "found",
    "true of checked",
    "inferred of it",
)
PREDICTED = "| image queries | H | least true loss | " + " | ".join(COLUMNS) + " |"


class Watch:
    """Takes notes of what the search predicts, beside what it is then told."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, dict[str, float]]] = []  # image queries so far, and what was seen
        self.asked = 0
        self._tell = GuidedSearch.tell

    def tell(self, search: GuidedSearch, z: Doubles, losses: Doubles, answers: Floats | None = None) -> None:
        """In place of the search's own, which it calls."""
        if answers is None or not search._checked:
            self._tell(search, z, losses, answers)
            return
        centred = as_kept(answers)
        centred -= centred.mean(axis=2, keepdims=True)
        note, model = dict[str, float](), search._model
        basis = model.map.basis.astype(np.float32)
        kept, tables = model.tables()
        if search.rows is None and search._chosen is not None:  # a check
            rows = [int(np.flatnonzero((kept == one).all(axis=1))[0]) for one in z]
            inferred = basis @ tables[rows]
            others = np.setdiff1d(np.arange(len(basis)), search._chosen)
            wrong = ((inferred - centred)[:, others] ** 2).mean()
            variance = (centred[:, others] ** 2).mean()
            first = int(losses.argmin())
            note |= {"error of others": float(wrong / variance), "true of checked": float(losses[first])}
            note["inferred of it"] = float(search._losses(inferred)[first])
        elif search.rows is not None:
            here = int(np.flatnonzero((kept == search._best).all(axis=1))[-1])
            mine = basis[search.rows]
            predicted, best = mine @ model.predict(z), mine @ tables[here]
            wrong = ((predicted - centred) ** 2).sum(axis=(1, 2)) / ((centred - best) ** 2).sum(axis=(1, 2))
            note |= {"images": float(len(search.rows)), "error of candidates": float(np.median(wrong))}
            note["planned"] = search._predicted
        self._tell(search, z, losses, answers)
        if "planned" in note:
            note["found"] = float(search.losses.min())
        self.asked += centred.shape[0] * centred.shape[1]
        self.notes.append((self.asked, note))

    def means(self, first: int, last: int) -> list[str]:
        """One cell for each column, over notes after `first` and up to `last` image queries."""
        notes = [note for at, note in self.notes if first < at <= last]
        found = []
        for name in COLUMNS:
            seen = [note[name] for note in notes if name in note]
            found.append("" if not seen else f"{np.mean(seen):.0f}" if name == "images" else f"{np.mean(seen):.3f}")
        return found


def lines(watch: Watch, tuner: unsee.PromptTuner, points: Sequence[tuple[int, float]], images: int) -> list[str]:
    """A line of the table for each point: image queries, and H there."""
    found, before = [PREDICTED, "|---" * (3 + len(COLUMNS)) + "|"], 0
    for at, h in points:
        history = [g for g in tuner.run_.recorder.history if g.ledger["image_queries"] <= at]
        least = min(g.losses.min() for g in history if g.answers is not None and g.answers.shape[1] == images)
        cells = [f"{at:,}", f"{100 * h:.2f}", f"{least:.3f}", *watch.means(before, at)]
        found.append("| " + " | ".join(cells) + " |")
        before = at
    return found


def main() -> None:
    """Prints the table of one run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("--data", default="cifar10-batch5")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--list", default="A")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--image-queries", type=int, default=64_000)
    parser.add_argument("--parts", type=int, default=8)
    given = parser.parse_args()
    data = unsee.load_data(given.data, data_dir=given.folder)
    model = unsee.load_model(given.model, cache=unsee.FeatureCache(given.cache), threads=1)
    names, limit = forget_list(data, given.list), given.image_queries
    tuner = unsee.PromptTuner(names, "guided", seed=given.seed, image_queries=limit)
    watch, began = Watch(), time.perf_counter()
    with changed([(GuidedSearch, "tell", lambda *told: watch.tell(*told))]):
        tuner.fit(model, data)
    seconds, images = time.perf_counter() - began, sum(map(len, tuner.run_.task.split_rows))
    limits = [limit * part // given.parts for part in range(1, given.parts + 1)]
    points = [(at, scores.h) for at, scores in curve(tuner, judged(tuner, model, data), limits)]
    print("\n".join(lines(watch, tuner, points, images)))
    print(f"{tuner.ledger_.candidates:,} candidates, {seconds:.0f} s")


if __name__ == "__main__":
    main()
