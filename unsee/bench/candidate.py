"""How much a candidate costs, as ratios measured side by side in one run on one set of random weights.

Three ways to answer the same question, the confidences of a candidate prompt on a split's images:

(a) ours: the exact evaluator of `models/text_tower.py`, image features encoded once;
(b) the strongest common practice: image features encoded once, every class at 77 positions through
    `transformers`, in batches;
(c) the published way: for each candidate the model is built again, every training and validation image is
    encoded again, and every class is encoded at 77 positions.

The weights are random and of ViT-B/16's size: time does not depend on their values.
"""

from __future__ import annotations

import platform
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unsee.data.class_names import first_share
from unsee.data.data_set import Data
from unsee.data.images import Anything, ArraySource, as_images, labelled
from unsee.data.paper_names import CIFAR10, CIFAR100
from unsee.models.fast.checkpoints import TowerSizes
from unsee.models.fast.clip import text_tower
from unsee.models.fast.text_tower import BoundText
from unsee.models.fast.tokenizers import ClipTokenizer
from unsee.models.local import LocalBound, LocalModel
from unsee.tuner import PromptTuner
from unsee.types import Floats, Ints

TIMED_POPULATION = 20
BATCHED_TEXTS = 200  # classes that (b) encodes in one batch
PUBLISHED_IMAGES = 800  # at most so many are encoded for (c); a larger setting is scaled from half as many
IMAGE_BATCH = 32


@dataclass(frozen=True)
class BenchSize:
    """One of the paper's sizes: classes, contexts, and images of its few-shot train and validation sets."""

    classes: int
    contexts: int
    images: int


PAPER_SIZES = (BenchSize(10, 4, 320), BenchSize(100, 16, 800), BenchSize(200, 16, 400), BenchSize(1000, 16, 2000))


@dataclass(frozen=True)
class Timing:
    """What was measured in one setting; seconds are of one candidate."""

    classes: int
    contexts: int
    population: int
    images: int
    seconds_per_candidate: float
    seconds_77: float | None
    seconds_published: float | None
    ratio_vs_77: float | None
    ratio_vs_published: float | None
    published_images_timed: int
    gemm_share: float
    peak_rss_bytes: int
    largest_difference: float | None  # of class embeddings, (a) against (b)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def machine() -> dict[str, object]:
    """What this was measured on."""
    return {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()} | {
        "torch": torch.__version__,
        "gemm_gmacs": round(gemm_peak() / 1e9, 1),
    }


def measure(
    settings: Sequence[BenchSize] = PAPER_SIZES, *, against: bool = True, say: Callable[[str], None] = lambda text: None
) -> dict[str, object]:
    """All timings; `against` also times (b) and (c), which takes most of the time."""
    subject = RandomClip()
    rows = []
    for setting in settings:
        say(f"C {setting.classes}, m {setting.contexts}: ours" + (", 77 positions, published" if against else ""))
        row = subject.time(setting, against)
        say("  " + ", ".join(f"{name} {value:.4g}" for name, value in row.as_dict().items() if value is not None))
        rows.append(row.as_dict())
    return {"machine": machine(), "model": "random weights of ViT-B/16's size", "settings": rows}


def gemm_peak() -> float:
    """Multiply-adds a second of this machine's best float32 matrix product, measured now."""
    best = float("inf")
    for size in (1024, 2048):
        a, b = torch.ones(size, size), torch.ones(size, size)
        for _ in range(6):
            best = min(best, _seconds(lambda: a @ b) / size**3)  # noqa: B023
    return 1 / best


class RandomClip:
    """One set of random weights, behind each of the three ways."""

    def __init__(self) -> None:
        from transformers import CLIPConfig, CLIPModel

        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.config = CLIPConfig(vision_config={"patch_size": 16})
            self.clip = CLIPModel(self.config).eval()
        text = self.config.text_config
        sizes = TowerSizes(text.hidden_size, text.num_hidden_layers, text.num_attention_heads, 2048, text.hidden_act)
        tower = text_tower(dict(self.clip.state_dict()), sizes)
        self.model = LocalModel("random ViT-B/16", tower, ClipTokenizer(), RandomFeatures(), 100.0)

    def time(self, setting: BenchSize, against: bool) -> Timing:
        names = [(CIFAR10 if setting.classes <= 10 else CIFAR100)[i % 100] for i in range(setting.classes)]
        generator = np.random.default_rng(0)
        contexts = generator.normal(0, 0.02, (TIMED_POPULATION, setting.contexts, 512)).astype(np.float32)
        images = np.zeros((setting.images, 1, 1, 3), dtype=np.uint8)
        bound = LocalBound(self.model, as_images(images), names)
        _reset_peak()
        bound.text.embeddings(torch.from_numpy(contexts[:1]))  # what is computed once a binding is not timed
        ours = _best(lambda: bound.log_confidences(contexts)) / TIMED_POPULATION
        memory = _peak_bytes()
        assert isinstance(bound.text, BoundText)
        share = bound.text.macs(setting.contexts) / ours / gemm_peak()
        common = published = difference = None
        timed = 0
        if against:
            rows = min(TIMED_POPULATION, max(1, BATCHED_TEXTS // setting.classes))
            seconds, found = self._at_77(names, contexts[:rows], bound)
            common = seconds / rows
            with torch.inference_mode():
                mine = bound.text.embeddings(torch.from_numpy(contexts[:rows]))
            difference = float((found - mine).abs().max())
            published, timed = self._published(names, contexts[0], setting.images)
            ours = min(ours, _best(lambda: bound.log_confidences(contexts)) / TIMED_POPULATION)
        return Timing(
            setting.classes,
            setting.contexts,
            TIMED_POPULATION,
            setting.images,
            ours,
            common,
            published,
            None if common is None else common / ours,
            None if published is None else published / ours,
            timed,
            share,
            memory,
            difference,
        )

    def _at_77(self, names: Sequence[str], contexts: Floats, bound: LocalBound) -> tuple[float, torch.Tensor]:
        """(b): seconds for these candidates, and the class embeddings found."""
        ids = self._write_contexts(names, contexts)
        found: list[torch.Tensor] = []

        def run() -> None:
            found.clear()
            with torch.inference_mode():
                for batch in torch.split(ids, BATCHED_TEXTS):
                    found.append(_normal(self.clip.get_text_features(input_ids=batch)))
                embeddings = torch.cat(found).view(len(contexts), len(names), -1)
                bound.log_softmax(embeddings)

        seconds = min(_seconds(run) for _ in range(2 if len(names) <= 100 else 1))
        return seconds, torch.cat(found).view(len(contexts), len(names), -1)

    def _published(self, names: Sequence[str], contexts: Floats, images: int) -> tuple[float, int]:
        """(c): seconds for one candidate, and how many images were really encoded."""
        from transformers import CLIPModel

        weights = self.clip.state_dict()
        count = images if images <= PUBLISHED_IMAGES else PUBLISHED_IMAGES // 2
        pixels = torch.zeros(IMAGE_BATCH, 3, 224, 224)

        def text_and_model() -> None:
            model = CLIPModel(self.config).eval()
            model.load_state_dict(weights)
            with torch.inference_mode():
                for batch in torch.split(self._write_contexts(names, contexts[None]), BATCHED_TEXTS):
                    model.get_text_features(input_ids=batch)

        def encode() -> None:
            with torch.inference_mode():
                for start in range(0, count, IMAGE_BATCH):
                    self.clip.get_image_features(pixel_values=pixels[: min(IMAGE_BATCH, count - start)])

        with torch.random.fork_rng():
            fixed = _seconds(text_and_model)
        return fixed + _seconds(encode) * images / count, count

    def _write_contexts(self, names: Sequence[str], contexts: Floats) -> torch.Tensor:
        """Prompts at 77 positions; contexts stand in rows of the token table that names do not use."""
        b, m, width = contexts.shape
        tokenizer = self.model.tokenizer
        with torch.no_grad():
            table = self.clip.text_model.embeddings.token_embedding.weight
            table[1000 : 1000 + b * m] = torch.from_numpy(contexts).view(b * m, width)
        prompts = []
        for i in range(b):
            own = list(range(1000 + i * m, 1000 + (i + 1) * m))
            for name in names:
                ids = [tokenizer.sos, *own, *tokenizer.ids(f"{name}."), tokenizer.eot]
                prompts.append(ids + [0] * (77 - len(ids)))
        return torch.tensor(prompts)


# What the share outside the model is measured on: data, shots, method and generations. A guided search takes longer
# the more answers it has.
OVERHEADS = (("cifar10", 16, "guided", 60), ("cifar10", 16, "lcs", 4), ("cifar100", 4, "lcs", 4))


def overhead(
    wanted: Sequence[tuple[str, int, str, int]] = OVERHEADS, say: Callable[[str], None] = lambda text: None
) -> list[dict[str, object]]:
    """The share of a run's time that is not the model: search, losses, journal and checkpoint."""
    subject = RandomClip()
    rows = []
    for name, shots, method, generations in wanted:
        say(f"{name}, {method}: {generations} generations")
        names = CIFAR10 if name == "cifar10" else CIFAR100
        classes = len(names)
        pixels = np.arange(classes * 2 * shots, dtype=np.uint32).view(np.uint8).reshape(-1, 1, 1, 4)[..., :3]
        images = labelled(ArraySource(np.ascontiguousarray(pixels)), np.repeat(np.arange(classes), 2 * shots), names)
        watched = Watched(subject.model)
        with tempfile.TemporaryDirectory() as folder:
            tuner = PromptTuner(first_share(names), method, iterations=generations)
            tuner.fit(watched, Data(name, images, images), out=Path(folder) / "run")
        total = tuner.history_[-1].seconds
        settings = tuner.settings_
        rows.append(
            {"setting": name, "method": method, "candidates": tuner.ledger_.candidates}
            | {"contexts": settings.contexts, "shared": settings.shared, "own": settings.own}
            | {"seconds": total, "model_seconds": watched.seconds, "overhead_share": 1 - watched.seconds / total}
        )
    return rows


class Watched:
    """A model that knows how long its answers took."""

    def __init__(self, model: LocalModel) -> None:
        self.card = model.card
        self.seconds = 0.0
        self._model = model

    def bind(self, images: Anything, class_names: Sequence[str]) -> WatchedBound:
        return WatchedBound(self, self._model.bind(images, class_names))


class WatchedBound:
    """A bound model whose answers are timed."""

    def __init__(self, owner: Watched, bound: LocalBound) -> None:
        self._owner = owner
        self._bound = bound
        self.zero_shot = bound.zero_shot
        self.confidences = bound.confidences

    def log_confidences(self, contexts: Floats) -> Floats:
        start = time.perf_counter()
        found = self._bound.log_confidences(contexts)
        self._owner.seconds += time.perf_counter() - start
        return found

    def select(self, rows: Ints) -> WatchedBound:
        return WatchedBound(self._owner, self._bound.select(rows))


class RandomFeatures:
    """Stands for an image tower: the benchmark's features are random, as its weights are."""

    fingerprint = "random features"
    batch = 1024

    def prepare(self, image: Any) -> Any:
        return image

    def encode(self, prepared: Sequence[Any]) -> Floats:
        found = np.random.default_rng(0).normal(size=(len(prepared), 512)).astype(np.float32)
        features: Floats = found / np.linalg.norm(found, axis=1, keepdims=True)
        return features


def _normal(output: Any) -> torch.Tensor:
    """transformers gives the features themselves, or, since 5.0, with what else was computed."""
    features: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
    return torch.nn.functional.normalize(features, dim=-1)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _best(work: Callable[[], Any]) -> float:
    """The shortest of up to five times, within about ten seconds."""
    times = [_seconds(work)]
    while len(times) < 5 and sum(times) < 10:
        times.append(_seconds(work))
    return min(times)


def _reset_peak() -> None:
    with suppress(OSError):  # Linux only; elsewhere the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
