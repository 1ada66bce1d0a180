"""What top-K, labels and a missing card withhold from a key that may tune: `python -m benchmarks.withheld`.

Answers pass through the service's own `Disclosure`, without HTTP: what a client does with them is the same. The client
rebuilds all confidences from pairs of labels, and maps the answers to one question to image features.
"""

from __future__ import annotations

from itertools import product

import numpy as np

import unsee
from unsee.audit.ridge import explained, kernels, ridge
from unsee.data.images import Images
from unsee.data.paper_names import CIFAR100
from unsee.models.local import LocalModel
from unsee.serve.disclosure import Disclosure
from unsee.types import Doubles, Floats

IMAGES = 400  # half to fit the map on, half to test it on
CANDIDATES = 16


def rebuilt_from_pairs(model: LocalModel, images: Images, names: tuple[str, ...], contexts: Floats) -> float:
    """The largest error of confidences that are rebuilt from top labels and their confidences alone.

    The whole list gives each image's top label; pairs of it with the other names give the rest.
    """
    bound, sends = model.bind(images, names), Disclosure.parse("top-1", "none").arrays
    whole = bound.confidences(contexts)[0]
    tops = sends(bound.log_confidences(contexts), "confidences")["top"][0, :, 0]
    rebuilt = np.ones(whole.shape)
    for first, other in product(range(len(names)), repeat=2):
        rows = np.flatnonzero(tops == first)
        if first != other and len(rows):
            pair = bound.select(rows).other_names((names[first], names[other]))
            sure = sends(pair.log_confidences(contexts), "confidences")["confidences"][0, :, 0].astype(np.float64)
            rebuilt[rows, other] = (1 - sure) / sure  # as a share of the top label's
    return float(np.abs(rebuilt / rebuilt.sum(axis=1, keepdims=True) - whole).max())


def features_from_one_question(model: LocalModel, images: Images, names: tuple[str, ...], answers: str) -> float:
    """R² of a linear map from the answers to one question (many contexts, many names) to the features."""
    rng = np.random.default_rng(0)
    contexts = rng.normal(0, 2 * model.card.token_std, (CANDIDATES, 4, model.card.width)).astype(np.float32)
    bound = model.bind(images, names)
    sent = Disclosure.parse(answers, "none").arrays(bound.log_confidences(contexts), "confidences")
    if "top" in sent:  # as a client that fills up evenly
        seen: Doubles = np.full((CANDIDATES, len(bound.features), len(names)), 0.0)
        np.put_along_axis(seen, sent["top"].astype(np.int64), sent.get("confidences", np.float32(0.9)), axis=-1)
        seen += np.maximum(0, 1 - seen.sum(axis=-1, keepdims=True)) / len(names)
    else:
        seen = sent["confidences"].astype(np.float64)
    logs = np.log(np.maximum(seen, 1e-12))
    inputs = (logs - logs.mean(axis=-1, keepdims=True)).transpose(1, 0, 2).reshape(len(bound.features), -1)
    features, half = bound.features.numpy().astype(np.float64), len(bound.features) // 2
    return explained(ridge(kernels(inputs[:half], inputs[half:]), features[:half])[0], features[half:])


def main() -> None:
    """Prints what a client rebuilds."""
    model, data = unsee.load_model("mini"), unsee.load_data("demo")
    assert isinstance(model, LocalModel)
    images = data.test.subset(np.random.default_rng(0).permutation(len(data.test))[:IMAGES])
    zeros = np.zeros((1, 4, model.card.width), dtype=np.float32)
    few = images.subset(np.arange(50))
    error = rebuilt_from_pairs(model, few, data.class_names, zeros)
    print(f"all confidences rebuilt from pairs of labels under top-1: largest error {error:.1e}")
    for answers in ("all", "top-5", "label"):
        found = features_from_one_question(model, images, tuple(CIFAR100), answers)
        print(f"features from one question of {CANDIDATES} contexts and 100 names, {answers}: R² {found:.2f}")


if __name__ == "__main__":
    main()
