"""What each table and figure of the paper costs with CLIP ViT-B/16: multiply-adds, and hours on a CPU and a GPU.

Rates are measured now, on random weights of ViT-B/16's size, in CPU time on one thread: the text tower on a generation
of candidates, the image tower on a batch, and each kind of search on a few generations. Everything else is arithmetic:
the runs of each table at the paper's settings and seeds, the candidates of each run, the multiply-adds of a candidate.
GPU hours are an estimate from an assumed rate, not a measurement; searches stay on the CPU there too.

    python -m benchmarks.paper_cost
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from unsee.bench.candidate import TIMED_POPULATION, RandomClip
from unsee.data.class_names import FORGET_SHARE
from unsee.data.images import as_images
from unsee.data.paper_names import CIFAR10, CIFAR100, IMAGENET30
from unsee.methods.build import make_parametrization
from unsee.methods.cma import BlockSearch
from unsee.methods.presets import resolve
from unsee.methods.registry import METHODS
from unsee.models.local import LocalBound
from unsee.report.paper.experiments import Experiment, TableRow, XPoint, experiment_names, load_experiment
from unsee.settings import CMA_KINDS, Settings

SEEDS = 3
GPU_MACS = 5e12  # a second: what is assumed of one GPU in float16, less than a tenth of the peak of a V100
STEP = 3  # a step down a gradient costs about three forward passes
IMAGE_MACS = {"vit": 17.6e9, "resnet18": 1.8e9}  # of one image of 224 x 224
# Names that stand for all of a set's, as their lengths decide what a candidate costs.
BIRDS = ("Black footed Albatross", "Laysan Albatross", "Groove billed Ani", "Crested Auklet", "Rusty Blackbird")
BIRDS += ("Bobolink", "Indigo Bunting", "Cardinal", "Spotted Catbird", "Yellow breasted Chat")
THINGS = ("tench", "great white shark", "house finch", "European green lizard", "trombone", "dishwasher")
THINGS += ("parking meter", "shower curtain", "lemon", "toilet paper")


@dataclass(frozen=True)
class PaperSet:
    """A data set of the paper: its class names, and how many images it is tested on."""

    names: tuple[str, ...]
    test: int


SETS = {
    "cifar10": PaperSet(CIFAR10, 10_000),
    "cifar100": PaperSet(CIFAR100, 10_000),
    "cub200": PaperSet(BIRDS * 20, 5_794),
    "imagenet30": PaperSet(IMAGENET30, 3_000),
    "imagenet": PaperSet(THINGS * 100, 50_000),
}


@dataclass(frozen=True)
class Run:
    """One run of a table, without its seed."""

    data: str
    settings: Settings
    share: float  # of the classes that it forgets
    forget: tuple[int, ...]


@dataclass
class Work:
    """What runs ask for: multiply-adds of both towers, and seconds of search."""

    text: dict[tuple[int, int], float] = field(default_factory=dict)  # (classes, contexts) -> multiply-adds
    image: float = 0.0
    search: float = 0.0

    def hours(self, rates: Rates) -> tuple[float, float]:
        """On this CPU, and on the assumed GPU."""
        text = sum(macs / rates.text(size[0]) for size, macs in self.text.items())
        cpu = text + self.image / rates.image + self.search
        gpu = (sum(self.text.values()) + self.image) / GPU_MACS + self.search
        return cpu / 3600, gpu / 3600


class Rates:
    """Multiply-adds a second of this machine on one thread, and seconds a generation of each kind of search."""

    def __init__(self) -> None:
        self._subject = RandomClip()
        pixels = torch.zeros(8, 3, 224, 224)
        with torch.inference_mode():
            self.image = (
                8 * IMAGE_MACS["vit"] / best(lambda: self._subject.clip.get_image_features(pixel_values=pixels))
            )

    @cache  # noqa: B019
    def macs(self, data: str, contexts: int) -> float:
        """Multiply-adds of one candidate."""
        return float(self._subject.model.bind_names(SETS[data].names).macs(contexts))

    def text(self, classes: int) -> float:
        """Measured at two sizes: few classes, or many."""
        return self._text(classes <= 20)

    @cache  # noqa: B019
    def _text(self, few: bool) -> float:
        names, m = (CIFAR10, 4) if few else (CIFAR100, 16)
        bound = LocalBound(self._subject.model, as_images(np.zeros((40, 1, 1, 3), dtype=np.uint8)), names)
        z = np.random.default_rng(0).normal(0, 0.02, (TIMED_POPULATION, m, 512)).astype(np.float32)
        bound.log_confidences(z[:1])
        return bound.text.macs(m) * TIMED_POPULATION / best(lambda: bound.log_confidences(z))

    def generation(self, settings: Settings) -> float:
        """Seconds that a generation of this search takes, the model aside."""
        blocks = make_parametrization(settings, self._subject.model).blocks
        return self._generation(blocks, settings.search, settings.rank, settings.step_size)

    @cache  # noqa: B019
    def _generation(self, blocks: tuple[int, ...], kind: str, rank: int, step_size: str, count: int = 6) -> float:
        streams = [np.random.default_rng(i) for i in range(len(blocks))]
        search, losses = (
            BlockSearch(blocks, streams, kind=kind, rank=rank, step_size=step_size),
            np.random.default_rng(0),
        )
        started = time.process_time()
        for _ in range(count):
            search.tell(search.ask(), losses.random(TIMED_POPULATION))
        return (time.process_time() - started) / count


def runs_of(experiment: Experiment) -> Iterator[Run]:
    """Every line of a table on every data set of the paper, both pretrained starts included."""
    for data in experiment.data:
        for row, point, given in experiment.entries(data, {"scratch-resnet18": "given", "scratch-vit": "given"}):
            yield _run(row, point, given, data)


def _run(row: TableRow, point: XPoint, given: dict[str, Any], data: str) -> Run:
    classes = len(SETS[data].names)
    facts = {"preset": "paper", "seed": 0, "data": data, "width": 512, "classes": classes, "shots": 16}
    share = FORGET_SHARE if point.share is None else point.share
    forgotten = len(row.forget) or round(share * classes)
    settings = resolve(given, method=row.method, forgotten=forgotten, **facts)  # type: ignore[arg-type]
    return Run(data, settings, share, row.forget)


def add(work: Work, run: Run, rates: Rates) -> None:
    """Adds what one run asks for, over all seeds."""
    s, method, of = run.settings, METHODS[run.settings.method], SETS[run.data]
    classes = len(of.names)
    if method.untuned:
        return
    train = classes * s.shots
    size, candidate = (classes, s.contexts), rates.macs(run.data, s.contexts)
    if method.sees in ("weights", "nothing"):
        kept = train if s.forget_weight and method.sees == "weights" else train * (1 - run.share)
        kept = min(s.batch, kept) if s.batch else kept
        network = "resnet18" if s.method == "scratch-resnet18" else "vit"
        passes = s.iterations * (STEP * kept + train) + train + of.test
        work.image += SEEDS * passes * IMAGE_MACS[network]
        if method.sees == "weights":
            work.text[size] = work.text.get(size, 0) + SEEDS * s.iterations * (STEP + 1) * candidate
        return
    each = STEP + 1 if s.search == "gradient" else 1  # with a pass to validate
    work.text[size] = work.text.get(size, 0) + SEEDS * s.limit * each * candidate
    if s.views:  # each encoded once
        work.image += SEEDS * s.views * train * IMAGE_MACS["vit"]
    if s.search in CMA_KINDS:
        work.search += SEEDS * s.iterations * rates.generation(s)


def features(data: str, shots: int) -> float:
    """Multiply-adds of encoding a set's shots and test images; features are kept, so this is done once."""
    return (SEEDS * 2 * shots * len(SETS[data].names) + SETS[data].test) * IMAGE_MACS["vit"]


def total(runs: dict[Run, None], rates: Rates) -> Work:
    """The work of runs, each of them once."""
    work = Work()
    for run in runs:
        add(work, run, rates)
    for data, shots in {(run.data, run.settings.shots) for run in runs}:
        work.image += features(data, shots)
    return work


def best(work: Callable[[], Any]) -> float:
    """The shortest CPU time of three."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    """Prints the tables of docs/paper.md."""
    torch.set_num_threads(1)
    rates = Rates()
    print("| data | classes | contexts | GMACs per candidate | seconds per candidate |")
    print("|---|---|---|---|---|")
    for data, of in SETS.items():
        m = 4 if data == "cifar10" else 16
        macs = rates.macs(data, m)
        seconds = macs / rates.text(len(of.names))
        print(f"| `{data}` | {len(of.names)} | {m} | {macs / 1e9:.1f} | {seconds:.2f} |")
    text = ", ".join(f"{rates.text(classes) / 1e9:.0f} ({classes} classes)" for classes in (10, 100))
    print(f"\nGMAC/s, one thread: text tower {text}, image tower {rates.image / 1e9:.0f}")
    print(f"assumed of a GPU: {GPU_MACS / 1e9:.0f} GMAC/s\n")
    print("| name | runs | CPU hours | GPU hours |")
    print("|---|---|---|---|")
    every: dict[Run, None] = {}
    for name in experiment_names():
        runs = dict.fromkeys(runs_of(load_experiment(name)))
        every |= runs
        print(_line(f"`{name}`", runs, rates), flush=True)
    print(_line("all, each run once", every, rates))
    others = {run: None for run in every if run.settings.method != "cbbt-own"}
    print(_line("the same without `cbbt-own`", others, rates))


def _line(name: str, runs: dict[Run, None], rates: Rates) -> str:
    cpu, gpu = total(runs, rates).hours(rates)
    return f"| {name} | {SEEDS * len(runs)} | {cpu:.1f} | {gpu:.2f} |"


if __name__ == "__main__":
    main()
