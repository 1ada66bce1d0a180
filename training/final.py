"""The last measurement of accuracy, on files as shipped: CIFAR-10's test set, touched once.

Forgetting on the test set is measured with the package itself: `unsee compare cifar10-batch5 …`.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from training import data, features
from training.export import load_tower
from training.judge import template_accuracies
from training.record import Log
from training.text_side import Reader


def final_test(folder: Path, model: Path, log: Log, threads: int = 2) -> dict[str, object]:
    """Log and return test accuracy over all templates."""
    tower = load_tower(model)
    reader = Reader(Tokenizer.from_file(str(model / "tokenizer.json")))
    session = features.open_graph(model / "image.onnx", threads)
    pixels, labels = data.load_sheet(folder, data.TEST_SHEET)
    began = time.perf_counter()
    embedded = torch.from_numpy(features.run_graph(session, pixels))
    log.write("encoded", images_per_second=len(pixels) / (time.perf_counter() - began))
    accuracies = template_accuracies(tower, reader, embedded, torch.from_numpy(labels))
    log.write("test accuracy", **accuracies)
    return {"test accuracy by template": {template: round(value, 2) for template, value in accuracies.items()}}
