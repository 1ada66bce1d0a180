"""The user's own proof that a checkpoint answers here as it does in its own library.

Both sides load the file on their own. Two things are compared:

* answers: confidences under random contexts, under plain-text prompts and with names as long as fit;
* weights: every tensor in memory, bit for bit, because one changed weight may hardly move an answer.

A weight that is wrong in the file is wrong on both sides: to notice it, compare with another copy (`against`), such as
the published one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from unsee.data.images import as_images
from unsee.data.paper_names import CIFAR10
from unsee.errors import InputError
from unsee.models import load_model
from unsee.models.check.reference import Reference, open_reference
from unsee.models.fast.checkpoint_record import TowerSizes
from unsee.models.fast.clip import text_tower
from unsee.models.fast.text_tower import TextTower
from unsee.models.fast.vision import TorchEncoder
from unsee.models.fast.weights import Weights
from unsee.models.library.text_towers import LibraryTower, token_table
from unsee.models.local import LocalBound, LocalModel
from unsee.types import Floats

UNSAFE = 0.02  # the same between half precision and float32: beyond this it is not safe
LARGEST_DIFFERENCE = 1e-3  # a difference of confidences beyond this is a failure
PROOF_TEMPLATES = ("a photo of a {}.", "{}")
CANDIDATES, PROOF_CONTEXTS, PROOF_IMAGES = 3, 4, 4
LONGEST_PROMPT = 77  # positions of the longest names; some towers would take hundreds


@dataclass(frozen=True)
class Proof:
    """What was compared, and how far apart it is."""

    model: str
    reference: str
    fingerprint: str
    images: int
    differences: dict[str, float]  # largest difference of confidences, by what was asked
    weights: int  # tensors compared
    changed: tuple[str, ...]  # those that are not the same to the last bit
    seconds: float  # of a candidate, ours; images are encoded before
    seconds_library: float  # the same by the library's batched call

    @property
    def largest(self) -> float:
        return float(np.max(list(self.differences.values())))  # NaN if one is

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.seconds_library / self.seconds

    @property
    def passed(self) -> bool:
        """False for NaN too."""
        return self.largest <= LARGEST_DIFFERENCE and not self.changed

    @property
    def verdict(self) -> str:
        """One line."""
        if self.changed:
            more = f" and {len(self.changed) - 1} more" if self.changed[1:] else ""
            return f"{self.model}: {self.changed[0]}{more} of {self.weights} weights differ from the reference's"
        said = f"answers differ by {self.largest:.1e} at most"
        return f"{self.model}: {said}" + ("" if self.passed else f", which is more than {LARGEST_DIFFERENCE:g}")

    def as_dict(self) -> dict[str, object]:
        found = {"largest": self.largest, "ratio": self.ratio, "passed": self.passed, "verdict": self.verdict}
        told = {what: None if math.isnan(value) else value for what, value in self.differences.items()}
        return (
            asdict(self) | found | {"differences": told, "largest": None if math.isnan(self.largest) else self.largest}
        )


def prove(name: str, images: Sequence[str] = (), against: str | None = None) -> Proof:
    """Compares the model of this name with its own library's, on these images or on generated ones."""
    model = load_model(name)
    if not isinstance(model, LocalModel):
        raise InputError(f"{name!r} does not run in this process, so there is nothing to compare with")
    return compare_answers(model, open_reference(against or name, model), images)


def compare_answers(model: LocalModel, reference: Reference, images: Sequence[str] = ()) -> Proof:
    """Compares a loaded model with a reference."""
    _check_sizes(model, reference)
    count, changed = compare_weights(model, reference)
    given = as_images(list(images)) if images else as_images(generated_images())
    pictures = [given.read(i) for i in range(len(given))]
    bound = model.bind(given, CIFAR10)
    contexts = draw_contexts(model, bound)
    long = (*_longest(model, contexts.shape[1]), "cat")
    stretched = model.bind(given, long)
    found: dict[str, list[float]] = {"random contexts": [], "plain templates": [], "longest names": []}
    for i, one in enumerate(contexts):
        found["random contexts"].append(_apart(bound.confidences(contexts)[i], reference.under(one, CIFAR10, pictures)))
        found["longest names"].append(_apart(stretched.confidences(one[None])[0], reference.under(one, long, pictures)))
    for template in PROOF_TEMPLATES:
        ids = [reference.ids(template.replace("{}", name)) for name in CIFAR10]
        found["plain templates"].append(_apart(bound.zero_shot(template), reference.answers(ids, pictures)))
    ours, theirs = _times(bound, contexts, reference)
    return Proof(
        model.card.name,
        reference.said,
        model.card.fingerprint,
        len(given),
        {what: float(np.max(values)) for what, values in found.items()},
        count,
        tuple(changed),
        ours,
        theirs,
    )


def draw_contexts(model: LocalModel, bound: LocalBound) -> Floats:
    """Random contexts of about three times the spread of tokens, as many as fit. -> (b, m, D)."""
    shape = (CANDIDATES, min(PROOF_CONTEXTS, bound.room), model.card.width)
    drawn = np.random.default_rng(0).standard_normal(shape)
    found: Floats = (model.card.token_mean + 3 * model.card.token_std * drawn).astype(np.float32)
    return found


def half_precision(half: LocalModel, full: LocalModel) -> str:
    """One line: how far the answers of a model in half precision are from the same model's in float32."""
    given = as_images(generated_images())
    first, second = half.bind(given, CIFAR10), full.bind(given, CIFAR10)
    contexts = draw_contexts(full, second)
    apart = [_apart(first.confidences(contexts), second.confidences(contexts))]
    apart += [_apart(first.zero_shot(template), second.zero_shot(template)) for template in PROOF_TEMPLATES]
    largest, kind = float(np.max(apart)), str(half.tower.tokens.dtype).removeprefix("torch.")
    said = f"{kind} answers differ by {largest:.1e} at most from float32's, on {len(given)} generated images"
    return said if largest <= UNSAFE else f"{said}; that is much: use --dtype float32 with this model"


def compare_weights(model: LocalModel, reference: Reference) -> tuple[int, list[str]]:
    """How many tensors were compared, and the names of those that are not the same."""
    theirs = dict(reference.loaded.model.state_dict())
    pairs = [*_text_pairs(model, theirs, reference), *_image_pairs(model, theirs)]
    changed = [name for name, mine, other in pairs if other is None or not torch.equal(mine.cpu(), other.cpu())]
    scale = theirs.get("logit_scale")
    wanted = 1 / float(theirs["temperature"]) if scale is None else math.exp(float(scale))
    if model.logit_scale != wanted:
        changed.append("logit_scale")
    if model.logit_bias is not None and ("logit_bias" not in theirs or model.logit_bias != float(theirs["logit_bias"])):
        changed.append("logit_bias")
    return len(pairs) + 1 + (model.logit_bias is not None), changed


def _check_sizes(model: LocalModel, reference: Reference) -> None:
    """Refuses to compare towers of different sizes."""
    table = token_table(reference.loaded.model)
    mine, theirs = [tuple(model.tower.tokens.shape)], [tuple(table.weight.shape)]
    if isinstance(model.tower, TextTower):
        mine.append((len(model.tower.layers), model.tower.limit))
        text = reference.loaded.model.config.text_config
        theirs.append((text.num_hidden_layers, text.max_position_embeddings))
    if mine != theirs:
        raise InputError(f"{model.card.name!r} and its reference have different sizes: {mine} and {theirs}")


def _text_pairs(
    model: LocalModel, theirs: Weights, reference: Reference
) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    tower = model.tower
    if isinstance(tower, LibraryTower):
        for name, mine in tower.model.state_dict().items():
            yield name, mine, theirs.get(name)
    elif isinstance(tower, TextTower):  # its maps are joined and scaled: theirs are joined the same way
        text = reference.loaded.model.config.text_config
        sizes = TowerSizes(text.hidden_size, text.num_hidden_layers, text.num_attention_heads, 0, tower.activation)
        other = text_tower(theirs, sizes).tensors()
        for i, mine in enumerate(tower.tensors()):
            yield _label(i), mine, other[i]


def _label(i: int) -> str:
    """What the i-th tensor of a text tower is."""
    outside = ("tokens", "positions", "final norm", "final norm", "projection")
    inside = ("norm 1", "queries, keys and values", "attention output", "norm 2", "fc1", "fc2")
    if i < len(outside):
        return f"text {outside[i]}"
    layer, part = divmod(i - len(outside), 2 * len(inside))
    return f"text layer {layer} {inside[part // 2]}"


def _image_pairs(model: LocalModel, theirs: Weights) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    encoder = model.encoder
    if isinstance(encoder, TorchEncoder):
        for name, mine in encoder.model.state_dict().items():
            yield name, mine, theirs.get(name)


def _apart(ours: Floats, theirs: Floats) -> float:
    """The largest difference; NaN if there is one on either side."""
    return float(np.abs(ours - theirs).max())


def _longest(model: LocalModel, m: int) -> list[str]:
    """A name that fills the tower's positions beside m contexts, and one that is half as long."""
    words, limit = ["three"], min(model.tower.limit, LONGEST_PROMPT)

    def length(text: str) -> int:
        return len(model.tokenizer.ids(f"{text}.")) + 2 + m

    for word in ("toed", "woodpecker", "of", "the", "far", "north", "with", "a", "red", "crown") * 8:
        if length(" ".join([*words, word])) > limit:
            break
        words.append(word)
    return [" ".join(words), " ".join(words[: max(1, len(words) // 2)])]


def generated_images() -> list[Image.Image]:
    """Pictures of several shapes, each a colour with some noise."""
    rng = np.random.default_rng(0)
    shapes = ((240, 320), (300, 224), (224, 224), (96, 130))[:PROOF_IMAGES]
    colours = rng.integers(40, 216, (len(shapes), 1, 1, 3))
    return [
        Image.fromarray((colour + rng.integers(-40, 40, (*shape, 3))).astype(np.uint8))
        for shape, colour in zip(shapes, colours, strict=True)
    ]


def _times(bound: LocalBound, contexts: Floats, reference: Reference) -> tuple[float, float]:
    """Seconds of one candidate: ours, and by the library's batched call on the same prompts, each the best of three."""
    texts = [reference.ids(f"{name}.") for name in CIFAR10]
    spare = reference.spare(texts, contexts.shape[1])
    at = 0 if bound.model.tokenizer.sos is None else 1
    given = reference.texts([[*text[:at], *spare, *text[at:]] for text in texts] * len(contexts))

    def library() -> None:
        with torch.inference_mode():
            reference.loaded.model.get_text_features(**given)

    ours = min(_seconds(lambda: bound.log_confidences(contexts)) for _ in range(3))
    return ours / len(contexts), min(_seconds(library) for _ in range(3)) / len(contexts)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
