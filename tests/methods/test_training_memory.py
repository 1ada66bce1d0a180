"""Methods that train weights, at true sizes: how much memory they need at most."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Each in a process of its own, whose peak is then known. Every batch of a larger set costs what these cost.
SCRIPT = """
import json, resource, sys
import numpy as np
import torch
import unsee
from tests.tiny import write_model
from unsee.data.images import ArraySource, labelled
from unsee.data.data_set import Data

torch.set_num_threads(1)
method, folder, classes, kept, contexts = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
rng = np.random.default_rng(0)
names = [f"class {i}" for i in range(classes)]
pixels, labels = rng.integers(0, 256, (2 * classes, 256, 240, 3), dtype=np.uint8), np.arange(2 * classes) % classes
images = labelled(ArraySource(pixels), labels, names)
if method == "finetune":  # the sizes of CLIP ViT-B/16 are the defaults, but for the patches
    from transformers import CLIPConfig, CLIPModel

    sizes = {"text_config": {}, "vision_config": {"patch_size": 16}, "projection_dim": 512}
    CLIPModel(CLIPConfig(**sizes)).save_pretrained(folder + "/model")
else:
    from pathlib import Path

    write_model(Path(folder) / "model")
model = unsee.load_model(folder + "/model")
settings = {"iterations": 2, "shots": 1, "contexts": contexts}
tuner = unsee.PromptTuner(names[: classes - kept], method, preset="paper", **settings)
tuner.fit(model, Data("noise", images, images.subset(range(4))), out=folder + "/run")
found = tuner.predict(images.subset(range(4)))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"gib": peak / 2**30, "answers": len(found), "steps": len(tuner.history_)}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "classes", "kept", "contexts", "limit"),
    [
        ("scratch-resnet18", 100, 70, 4, 4.0),
        ("scratch-vit", 40, 24, 4, 4.0),
        # Weights, a copy of them, its gradient, two moments of Adam and the best so far: 3.4 GiB before any image.
        ("finetune", 70, 6, 16, 5.0),
    ],
)
def test_training_at_224_pixels_fits_in_memory(tmp_path, method, classes, kept, contexts, limit):
    arguments = [method, str(tmp_path), *map(str, (classes, kept, contexts))]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    print(method, found)
    assert found["steps"] == 2
    assert found["answers"] == 4
    assert found["gib"] <= limit
