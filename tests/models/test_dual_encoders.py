"""Dual encoders that `transformers` knows: our answers are those of the library's own forward."""

from __future__ import annotations

import functools
import logging

import numpy as np
import pytest
import torch
from PIL import Image

from tests.models.dual_files import FAMILIES, LONG_NAME, NAMES, modern, pixels, write
from unsee.errors import InputError
from unsee.models import load_model
from unsee.models.fast.text_tower import TextTower
from unsee.models.library.dual_encoder import DUAL_ENCODERS
from unsee.models.library.text_towers import LibraryTower

pytestmark = modern

CLASSES = (*NAMES, LONG_NAME)
REST = [family for family in FAMILIES if family not in ("siglip", "altclip")]
SLOW = functools.partial(pytest.param, marks=pytest.mark.slow)
M = 4


@pytest.fixture(scope="module", autouse=True)
def silent():
    logging.getLogger("transformers").setLevel(logging.ERROR)  # it advises on the vocabulary of such small models


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Each family's folder, written when it is first asked for."""
    made = {}

    def get(family: str, size: str = "tiny"):
        if (family, size) not in made:
            made[family, size] = write(tmp_path_factory.mktemp(family), family, size)
        return made[family, size]

    return get


class Library:
    """The model, tokenizer and image processor as a user of `transformers` would use them.

    Contexts are written into rows of the token table that no prompt uses: nothing here is shared with the package.
    """

    def __init__(self, folder, family: str) -> None:
        from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

        self.model = AutoModel.from_pretrained(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.images = AutoImageProcessor.from_pretrained(folder, backend="pil")
        fixed = {"padding": "max_length", "max_length": 16}
        self.padding = fixed if family.startswith("siglip") else {"padding": True}
        self.table = self.model.text_model.get_input_embeddings()

    def logits(self, ids: list[list[int]], images: np.ndarray) -> torch.Tensor:
        """Scores of images for texts. -> (n, C)."""
        text = self.tokenizer.pad({"input_ids": ids}, **self.padding, return_tensors="pt")
        text = {name: text[name] for name in self.tokenizer.model_input_names if name in text}
        pixels = self.images(images=[Image.fromarray(image) for image in images], return_tensors="pt")
        pixels["pixel_values"] = pixels["pixel_values"].to(self.table.weight.dtype)
        return self.model(**text, **pixels).logits_per_image

    def under(self, contexts: torch.Tensor, names, images, position: str = "end") -> torch.Tensor:
        """Scores with contexts (m, D) before, around or after each name."""
        m = len(contexts)
        texts = [self.tokenizer(f"{name}.")["input_ids"] for name in names]
        bare = [len(self.tokenizer(name, add_special_tokens=False)["input_ids"]) for name in names]
        used = {token for text in texts for token in text} | set(self.tokenizer.all_special_ids)
        free = [token for token in range(len(self.tokenizer)) if token not in used][:m]
        whole = self.table.weight.detach().clone()
        rows = whole.clone()
        rows[torch.tensor(free)] = contexts.detach()
        self.table.weight.data = rows
        start = len(self.tokenizer("a")["input_ids"]) - 1 - len(self.tokenizer("a", add_special_tokens=False).input_ids)
        before = {"end": m, "middle": m // 2, "front": 0}[position]
        ids = []
        for text, length in zip(texts, bare, strict=True):
            name, tail = text[start : start + length], text[start + length :]
            ids.append([*text[:start], *free[:before], *name, *free[before:], *tail])
        try:
            return self.logits(ids, images)
        finally:
            self.table.weight.data = whole


def contexts(width: int, b: int = 3, m: int = M) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 0.5, (b, m, width)).astype(np.float32)


def compare_with_library(folder, family: str) -> None:
    model, library = load_model(folder), Library(folder, family)
    bound = model.bind(pixels(), CLASSES)
    given = contexts(model.card.width)
    with torch.no_grad():
        theirs = torch.stack([library.under(torch.from_numpy(one), CLASSES, pixels()) for one in given])
        plain = [f"a photo of a {name}." for name in CLASSES]
        zero = library.logits([library.tokenizer(text)["input_ids"] for text in plain], pixels())
    found = bound.confidences(given)
    assert np.abs(found - theirs.softmax(dim=-1).numpy()).max() < 1e-5
    assert np.abs(bound.zero_shot("a photo of a {}.") - zero.softmax(dim=-1).numpy()).max() < 1e-5
    assert np.ptp(found, axis=0).max() > 0.01, "contexts matter, or the comparison shows little"
    assert np.ptp(found, axis=1).max() > 0.01, "and so do images"
    if model.logit_bias is not None:
        assert np.abs(bound.sigmoids(given) - theirs.sigmoid().numpy()).max() < 1e-5
        assert np.abs(bound.sigmoids() - zero.sigmoid().numpy()).max() < 1e-5


@pytest.mark.parametrize(
    "family", ["siglip", "altclip", "metaclip_2", *(SLOW(f) for f in FAMILIES[1:2] + FAMILIES[3:6])]
)
def test_answers_are_those_of_the_library(folders, family):
    compare_with_library(folders(family), family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_of_larger_models_are_those_of_the_library(folders, family):
    compare_with_library(folders(family, "larger"), family)


def test_every_family_is_tested_and_only_metaclip_has_clips_own_tower(folders):
    assert set(FAMILIES) == {*DUAL_ENCODERS, "metaclip_2"}
    assert isinstance(load_model(folders("metaclip_2")).tower, TextTower)
    assert isinstance(load_model(folders("altclip")).tower, LibraryTower)


@pytest.mark.parametrize("family", ["siglip", "altclip", *(pytest.param(f, marks=pytest.mark.slow) for f in REST)])
def test_gradients_are_those_of_the_library(folders, family):
    """Of one confidence with respect to the contexts; the library's own by small steps in double precision."""
    model = load_model(folders(family))
    bound = model.bind(pixels(2), NAMES[:3])
    point = torch.from_numpy(contexts(model.card.width, b=1)).requires_grad_()
    bound.log_softmax(bound.text.embeddings(point))[0, 0, 1].backward()
    direction = torch.from_numpy(np.random.default_rng(2).standard_normal(point.shape))
    library = Library(folders(family), family)
    library.model.double()

    def at(step: float) -> float:
        with torch.no_grad():
            moved = point.detach().double() + step * direction
            return float(library.under(moved[0], NAMES[:3], pixels(2)).log_softmax(dim=-1)[0, 1])

    slope = (at(1e-3) - at(-1e-3)) / 2e-3
    assert float((point.grad.double() * direction).sum()) == pytest.approx(slope, rel=2e-3, abs=1e-4)
    assert abs(slope) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("position", ["middle", "front"])
@pytest.mark.parametrize("family", ["siglip", "siglip2", "altclip"])  # padded behind, padded in front, not padded
def test_names_in_the_middle_or_in_front_agree_with_the_library(folders, family, position):
    model, library = load_model(folders(family)), Library(folders(family), family)
    bound = model.bind(pixels(2), CLASSES).at(position)
    given = contexts(model.card.width, b=1, m=3)
    with torch.no_grad():
        theirs = library.under(torch.from_numpy(given[0]), CLASSES, pixels(2), position).softmax(dim=-1).numpy()
    assert np.abs(bound.confidences(given)[0] - theirs).max() < 1e-5
    assert np.abs(model.bind(pixels(2), CLASSES).confidences(given)[0] - theirs).max() > 1e-3


def test_a_population_is_answered_like_its_members_one_by_one(folders, monkeypatch):
    model = load_model(folders("altclip"))
    bound = model.bind(pixels(2), CLASSES)
    given = contexts(model.card.width, b=5)
    whole = bound.confidences(given)
    monkeypatch.setattr("unsee.models.library.text_towers.CHUNK_BYTES", 1)  # one prompt at a time
    assert np.allclose(np.concatenate([bound.confidences(one[None]) for one in given]), whole, atol=1e-6)


def test_padding_is_only_computed_where_the_tower_looks_at_it(folders):
    siglip, altclip = (load_model(folders(family)).bind_names(CLASSES) for family in ("siglip", "altclip"))
    assert {group.ids.shape[1] for group in siglip.prompts(M)} == {16}
    short = altclip.prompts(M)[0]
    assert short.ids.shape == (10, 2 + M + 2), "start, contexts, name, full stop, end"
    assert short.mask is None
    assert len(altclip.prompts(M)) > 1, "names of each length go together"
    assert siglip.prompts(M) is siglip.prompts(M), "and are prepared once"


def test_contexts_that_do_not_fit_are_refused(folders):
    model = load_model(folders("siglip"))
    bound = model.bind(pixels(1), CLASSES)
    assert bound.room == 16 - 9
    with pytest.raises(InputError, match="8 contexts do not fit"):
        bound.confidences(contexts(32, m=8))
    with pytest.raises(InputError, match="contexts are 31 wide"):
        bound.confidences(contexts(31))


def test_a_softmax_model_has_no_sigmoid_scores(folders):
    bound = load_model(folders("altclip")).bind(pixels(1), NAMES)
    with pytest.raises(InputError, match="trained with a softmax"):
        bound.sigmoids()


def test_the_fingerprint_tells_of_every_weight_and_of_the_files(folders, tmp_path):
    """Of a copy with one weight moved, or with images prepared otherwise."""
    import shutil

    from safetensors.torch import load_file, save_file

    folder = folders("siglip")
    first = load_model(folder)
    assert load_model(folder).card.fingerprint == first.card.fingerprint
    for key in ("text_model.head.bias", "vision_model.head.probe", "logit_bias"):
        other = shutil.copytree(folder, tmp_path / key)
        weights = load_file(folder / "model.safetensors")
        weights[key].view(-1)[0] += 1e-3
        save_file(weights, other / "model.safetensors", {"format": "pt"})
        assert load_model(other).card.fingerprint != first.card.fingerprint, key
