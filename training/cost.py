"""What the model on CLIP's image tower costs on this machine: processor seconds of a photo, a training step and a candidate.

Weights and features are random, as time does not depend on their values. Run it on an idle machine to plan by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from training import photos
from training.bank import Bank, Labelled
from training.batches import Batches
from training.colours import COLOURS
from training.fit import Model, step_losses
from training.judge import Judged
from training.package_photos import MORE, PACKAGE, package_data
from training.stages import Stages
from unsee.data.class_names import in_prompt
from unsee.methods.presets import PAPER, POPULATION

TIMES = 5
DRAWN = 2_000  # photos of the random bank, each with the name of a class


def costs(stages: Stages) -> Iterator[str]:
    """One line for each thing measured; the median of a few times."""
    encoder, sources = stages.encoder, stages.sources
    encode = encoder.open(sources, stages.cache, stages.threads)
    sample = photos.imagenet_samples(sources)
    rows = iter(range(0, len(sample.keys), len(sample.keys) // (3 * TIMES + 1)))
    yield f"photo: {_seconds(lambda: encode(encoder.prepare(sample.picture(next(rows)))[None]), 3 * TIMES):.3f} s"
    bank = _random_bank(stages)
    batches = Batches(bank, stages.vocabulary, stages.tokenizer, encoder.recipe, 0)
    model = Model.new(encoder.recipe, encoder.numbers, stages.tokenizer.get_vocab_size())
    optimizer = torch.optim.AdamW(model.parameters())
    numbers = iter(range(TIMES + 1))

    def step() -> None:
        losses = step_losses(model, bank, batches.draw(next(numbers)), encoder.recipe.context_weight)
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    each = _seconds(step)
    yield f"training step: {each:.2f} s; {encoder.recipe.steps} steps: {each * encoder.recipe.steps / 60:.0f} minutes"
    judged = Judged(model, stages.tokenizer)
    for name in (*PACKAGE, *MORE, "imagenet30-six"):
        data = package_data(name, sources)
        if data is None:
            continue
        names = [[*judged.ids(f"{in_prompt(one)}."), judged.eot] for one in data.class_names]
        bound, size = judged.tower.bind(names, judged.sos), POPULATION if len(names) < 1000 else 2
        contexts = torch.randn(size, PAPER[name]["contexts"], encoder.recipe.width)
        with torch.inference_mode():
            each = _seconds(lambda bound=bound, contexts=contexts: bound.embeddings(contexts), 3) / size  # type: ignore[misc]
        candidates = PAPER[name]["iterations"] * POPULATION
        yield f"{name}: a candidate {each:.4f} s; lcs, {candidates} candidates: {each * candidates / 60:.1f} minutes"


def _random_bank(stages: Stages) -> Bank:
    rng = np.random.default_rng(0)
    names = stages.vocabulary.imagenet
    labelled = {
        name: Labelled(np.arange(DRAWN), rng.choice(names, DRAWN))
        for name in ("imagenet", "cub200", "cifar100", "cifar10")
    }
    captions = list(photos.coco_captions(stages.sources).values())[:DRAWN]
    features = torch.nn.functional.normalize(torch.randn(DRAWN, stages.encoder.numbers), dim=-1)
    colours = rng.random((DRAWN, COLOURS)).astype(np.float32)
    empty = np.zeros(0, dtype=np.int64)
    return Bank(features, colours, labelled, {}, np.arange(len(captions)), captions, {}, empty, [], None, None)


def _seconds(work: Callable[[], object], times: int = TIMES) -> float:
    """Processor seconds, the median; the first time is not counted."""
    work()
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return float(np.median(found))
