"""What answers leak of forgotten classes: the default of preset `tuned` beside a label mask, and a prompt alone.

    python -m benchmarks.leakage DATA_DIR CACHE_DIR
    python -m benchmarks.leakage DATA_DIR CACHE_DIR --images held-out --lists first --seeds 10 11 12 --rules …
    python -m benchmarks.leakage DATA_DIR CACHE_DIR --images held-out --lists first --seeds 10 --data cifar100-tenth …

The other two are how the default rule was chosen: with other seeds, and on training photos that were neither tuned on
nor seen by the embedded model. Of the rules whose H is at most one point below that of `mask` on both data sets, it is
the one on whose answers a 16-shot probe is right least often, `mask-top-label` aside, which makes flat answers certain.
That criterion was set after rules had been tried on CIFAR-10's held-out photos and before CIFAR-100's were looked at.
Rows are means over lists and seeds; the last lines compare run by run.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

import unsee
from benchmarks.choose_sizes import held_out
from unsee.answers.metrics import entropy, scores, top_classes
from unsee.answers.rules import serve
from unsee.audit.information import mutual_information
from unsee.audit.probes import SHOTS, k_shot_probe
from unsee.data.class_names import first_share
from unsee.methods.presets import SERVE
from unsee.models.black_box import bind
from unsee.seeds import stream
from unsee.settings import GOALS, SERVED_AS
from unsee.types import Floats, Ints, Mask

LISTS = ("deer,dog,frog,horse", "airplane,ship,horse,truck", "cat,dog", "bird,deer,frog,ship,truck")
PLAIN = "label mask"


@dataclass(frozen=True)
class Told:
    """What served answers score, and what they tell of forgotten classes."""

    h: float
    acc_mem: float
    entropy: float
    bits: float  # of the top label
    probes: tuple[float, ...]  # by shots


def tell(p: Floats, labels: Ints, forget: Mask, rule: str, seed: int) -> Told:
    """Measures of answers (n, C) under a serving rule."""
    seen, gone = serve(p, forget, rule), forget[labels]
    found, true = scores(top_classes(seen), labels, forget), labels[gone]
    bits = mutual_information(true, top_classes(seen[gone]), stream(seed, "audit")).value
    probes = [k_shot_probe(seen[gone], true, k, stream(seed, "probe", k)) for k in SHOTS]
    return Told(
        found.h,
        found.acc_mem,
        float(entropy(seen[gone]).mean()),
        bits,
        tuple(probe.accuracy for probe in probes if probe is not None),
    )


def main() -> None:
    """Prints a row for every goal and rule."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder")
    parser.add_argument("cache")
    parser.add_argument("--data", default="cifar10-batch5")
    parser.add_argument("--model", default="mini")
    parser.add_argument("--lists", nargs="*", default=LISTS, metavar="NAME,NAME", help='"first": the first 40 %%')
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1, 2, 3, 4))
    parser.add_argument("--images", choices=("test", "held-out"), default="test")
    parser.add_argument("--goals", nargs="*", choices=GOALS, default=("entropy",))
    parser.add_argument("--rules", nargs="*", choices=SERVED_AS, default=("as-is", SERVE))
    given = parser.parse_args()
    model = unsee.load_model(given.model, cache=unsee.FeatureCache(given.cache), threads=1)
    data = unsee.load_data(given.data, data_dir=given.folder)
    names = data.class_names
    found: dict[tuple[str, str], list[Told]] = defaultdict(list)
    for listed in given.lists:
        gone = list(first_share(names)) if listed == "first" else listed.split(",")
        forget = np.isin(names, gone)
        for seed in given.seeds:
            for goal in given.goals:
                tuner = unsee.PromptTuner(gone, seed=seed, goal=goal).fit(model, data)
                split = tuner.config_.split
                held = data.train.subset(held_out(data, {*split.train, *split.valid}))
                bound = bind(model, held if given.images == "held-out" else data.test)
                p, labels = tuner.prompt.unserved(bound), bound.labels
                for rule in given.rules:
                    found[goal, rule].append(tell(p, labels, forget, rule, seed))
            plain = bound.zero_shot("a photo of a {}.")
            if plain is None:
                raise SystemExit("the model answers no plain-text prompt")
            for rule in {rule if rule.startswith("mask") else "mask": None for rule in given.rules}:
                found[PLAIN, rule].append(tell(plain, labels, forget, rule, seed))
        print(f"done: {', '.join(gone)}", flush=True)
    shots = ", ".join(map(str, SHOTS))
    print(f"{'answers':12} {'served as':16} {'H':>14} {'entropy':>8} {'bits':>6}  probe with {shots} shots, %")
    for (what, rule), told in found.items():
        print(_row(what, rule, told))
    if ("entropy", SERVE) in found:
        _compare(found["entropy", SERVE], found[PLAIN, SERVE])


def _compare(ours: list[Told], mask: list[Told]) -> None:
    """The default beside the label mask under the same rule, run by run."""
    pairs = list(zip(ours, mask, strict=True))
    bits = sum(a.bits < b.bits for a, b in pairs)
    print(f"bits of the top label: fewer than the label mask's in {bits} of {len(pairs)} runs")
    for i, k in enumerate(SHOTS):
        less = sum(a.probes[i] < b.probes[i] for a, b in pairs)
        print(f"{k}-shot probe: less often right than on the label mask's answers in {less} of {len(pairs)} runs")
    short = [100 * (b.h - a.h) for a, b in pairs]
    print(f"H: {statistics.fmean(short):.2f} points below the label mask's on average, {max(short):.2f} at most")


def _row(what: str, rule: str, told: list[Told]) -> str:
    def over(values: list[float], scale: float = 100, digits: int = 2) -> str:
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{scale * statistics.fmean(values):.{digits}f} ± {scale * spread:.{digits}f}"

    probes = [statistics.fmean(column) for column in zip(*(t.probes for t in told), strict=True)]
    shown = ", ".join(f"{100 * p:.1f}" for p in probes)
    flat, bits = (statistics.fmean(getattr(t, name) for t in told) for name in ("entropy", "bits"))
    return f"{what:12} {rule:16} {over([t.h for t in told]):>14} {flat:8.2f} {bits:6.2f}  {shown}"


if __name__ == "__main__":
    main()
