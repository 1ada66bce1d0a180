"""Peak memory of one step of CBBT with 1,000 classes and 16 contexts, on random weights of ViT-B/16's size.

    python -m benchmarks.cbbt_memory [CANDIDATES]

One shot per class to tune on and one to validate on, as the paper has on ImageNet. CBBT's own step has 257 candidates.
They are asked in parts of 33, so that 40 candidates have the same peak in a sixth of the time. Only two of the text
tower's twelve layers are run: nothing is kept from layer to layer. The image tower (0.35 GB)
is not in memory when the step runs.
"""

from __future__ import annotations

import resource
import sys
from dataclasses import replace

import numpy as np

from unsee import PromptTuner
from unsee.bench.candidate import RandomClip
from unsee.data.data_set import Data
from unsee.data.images import ArraySource, labelled
from unsee.data.paper_names import CIFAR100
from unsee.models.local import LocalModel

CLASSES = 1000


def peak_bytes(candidates: int) -> int:
    """The most memory that this process has had, after one step."""
    names = [f"{CIFAR100[i % 100]} {i // 100}" for i in range(CLASSES)]
    pixels = np.arange(2 * CLASSES, dtype=np.uint32).view(np.uint8).reshape(-1, 1, 1, 4)[..., :3]
    images = labelled(ArraySource(np.ascontiguousarray(pixels)), np.repeat(np.arange(CLASSES), 2), names)
    whole = RandomClip().model
    tower = replace(whole.tower, layers=whole.tower.layers[:2])
    model = LocalModel("two layers", tower, whole.tokenizer, whole.encoder, whole.logit_scale)
    tuner = PromptTuner(names[:400], "cbbt", shots=1, contexts=16, population=candidates, iterations=1)
    ledger = tuner.fit(model, Data("random", images, images)).ledger_
    assert ledger.image_queries == (candidates + 1) * 2 * CLASSES  # and once under the plain prompt
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 257
    print(f"{count} candidates: {peak_bytes(count) / 2**30:.2f} GiB")
