"""The training of the embedded model, on a tiny bank: texts are true, runs resume, the export loads in the package."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file

pytest.importorskip("onnx", reason="install the extra: pip install -e '.[training]'")

from training.bank import Bank, Labelled
from training.batches import Batches
from training.colours import COLOUR_NAMES, COLOURS, colour_shares
from training.contexts import ContextWriter
from training.descriptions import describe
from training.fit import Model, contrast, fit
from training.judge import Judged
from training.photos import PhotoSet, mirrored
from training.polish import polish
from training.recipe import FORMS, Recipe
from training.record import Log
from training.text_tower import Packed
from training.tokenizer import train_tokenizer
from training.tower_file import pack, unpack
from training.vocabulary import Vocabulary
from training.without import leave_out
from unsee.models.families import EMBEDDED

NAMES = ("cat", "dog", "beagle", "bus", "ship", "fork")
KINDS = ("animal", "vehicle")


@pytest.fixture
def vocabulary():
    isa = np.eye(len(NAMES), dtype=bool)
    isa[2, 1] = True  # a beagle is a dog
    kind_of = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool)
    nothing = tuple(() for _ in NAMES)
    return Vocabulary(NAMES, nothing, ("",) * len(NAMES), isa, KINDS, kind_of, np.zeros(0, dtype=np.int64))


@pytest.fixture
def tokenizer(tmp_path):
    return train_tokenizer([f"a photo of a {n}." for n in (*NAMES, *KINDS)] * 3, tmp_path / "tokenizer.json")


@pytest.fixture
def bank():
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(len(NAMES)), 10)
    photos = torch.from_numpy(rng.normal(size=(60, 8)).astype(np.float32))
    part = Labelled(np.arange(60), labels)
    captions = [[f"a {NAMES[i]} outside"] for i in labels]
    colours = rng.random((60, COLOURS)).astype(np.float32)
    views = {"cifar100": [Labelled(np.arange(60), labels)]}
    return Bank(
        photos, colours, {"cifar100": part}, views, np.arange(60), captions, {}, np.arange(2), captions[:2], None, None
    )


@pytest.fixture
def recipe():
    return Recipe(
        steps=6,
        width=32,
        layers=2,
        hidden=16,
        photos=8,
        names=6,
        descriptions=4,
        captions=4,
        contexts=5,
        group=4,
        pool=6,
        polish=4,
        polish_photos=12,
    )


def test_a_red_sheet_is_red_and_a_black_one_dark():
    pixels = np.zeros((2, 20, 20, 3), dtype=np.uint8)
    pixels[0, ..., 0] = 230
    shares = colour_shares(pixels)
    assert COLOUR_NAMES[int(shares[0, : len(COLOUR_NAMES)].argmax())] == "red"
    assert COLOUR_NAMES[int(shares[1, : len(COLOUR_NAMES)].argmax())] == "black"
    assert shares[1, len(COLOUR_NAMES)] == 0


def test_a_denial_is_false_of_what_it_names_and_of_its_kinds(vocabulary):
    writer = ContextWriter(vocabulary, ("denial",))
    rng = np.random.default_rng(0)
    for _ in range(50):
        context = writer.draw(np.arange(len(NAMES)), rng)
        named = [i for i, name in enumerate(NAMES) if name in context.words.replace(",", " ").replace(":", " ").split()]
        assert not context.allows[named].any()
        if "dog" in context.words:
            assert not context.allows[NAMES.index("beagle")]


def test_a_kind_allows_only_names_of_that_kind(vocabulary):
    writer = ContextWriter(vocabulary, ("kind",))
    rng = np.random.default_rng(1)
    for _ in range(20):
        context = writer.draw(np.arange(len(NAMES)), rng)
        kind = 0 if "animal" in context.words else 1
        assert (context.allows == vocabulary.kind_of[:, kind]).all()


def test_descriptions_only_say_looks_that_are_measured(vocabulary):
    rng = np.random.default_rng(0)
    colours = np.zeros(COLOURS, dtype=np.float32)
    colours[COLOUR_NAMES.index("green")] = 1
    colours[len(COLOUR_NAMES)] = 0.5
    said = [describe(0, colours, vocabulary, rng) for _ in range(200)]
    looks = [d for d in said if d.look is not None]
    assert looks
    assert all("green" in d.words for d in looks)


def test_a_photo_of_a_beagle_is_a_photo_of_a_dog_but_not_surely_the_reverse(vocabulary, bank, tokenizer, recipe):
    batches = Batches(bank, vocabulary, tokenizer, replace(recipe, forms=("plain",)), 0)
    context = batches.writer.plain(np.random.default_rng(0))
    group = np.arange(len(NAMES))
    true, false, _ = batches._truth(np.array([2, 1]), bank.colours[:2], [context], [group], [])
    assert true[0].tolist() == [False, True, True, False, False, False]
    assert true[1].tolist() == [False, True, False, False, False, False]
    assert not false[1, 2]  # a photo labelled dog may show a beagle


def test_names_behind_a_shared_context_read_as_in_one_text(vocabulary, bank, tokenizer, recipe):
    batches = Batches(bank, vocabulary, tokenizer, recipe, 0)
    torch.manual_seed(0)
    model = Model.new(recipe, 8, tokenizer.get_vocab_size())
    contexts = ["a photo of a", "no cat or ship:"]
    stems = Packed.of([batches.ids(c, start=True) for c in contexts])
    owner = torch.tensor([0, 1, 1])
    _, past = model.tower.read(stems)
    found = model.tower.read_behind(Packed.of([batches.suffixes[i] for i in (0, 3, 0)]), owner, stems.lengths, past)
    whole = [f"{contexts[o]} {NAMES[i]}." for o, i in ((0, 0), (1, 3), (1, 0))]
    wanted, _ = model.tower.read(Packed.of([batches.ids(t, start=True, end=True) for t in whole]))
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(Judged(model, tokenizer).texts(whole), wanted.detach(), atol=5e-3, rtol=1e-2)


def test_unknown_pairs_do_not_count():
    logits = torch.tensor([[1.0, 50.0, 0.0]])
    true, false = torch.tensor([[True, False, False]]), torch.tensor([[False, False, True]])
    assert contrast(logits, true, false).item() == pytest.approx(np.log1p(np.exp(-1.0)), rel=1e-4)


def test_a_stopped_training_resumes_to_the_same_weights(vocabulary, bank, tokenizer, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("training.fit.EVERY", 3)
    log = Log(tmp_path / "log.jsonl")
    batches = Batches(bank, vocabulary, tokenizer, recipe, 0)
    whole = fit(bank, batches, recipe, 0, tmp_path / "whole.pt", log)
    draws = batches.draw
    stops = iter(range(4))

    def stop(step):
        next(stops)
        return draws(step)

    monkeypatch.setattr(batches, "draw", stop)
    with pytest.raises(StopIteration):
        fit(bank, batches, recipe, 0, tmp_path / "part.pt", log)
    monkeypatch.setattr(batches, "draw", draws)
    resumed = fit(bank, batches, recipe, 0, tmp_path / "part.pt", log)
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_tokens_that_are_no_merges_are_numbered_in_order(tokenizer):
    vocabulary = tokenizer.get_vocab()
    merges = [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    letters = sorted(set(vocabulary) - {a + b for a, b in merges}, key=vocabulary.__getitem__)[2:]
    assert letters == sorted(letters, key=lambda token: (len(token), token))
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    assert tokenizer.encode("a cat.").tokens[1:-1] == ["a</w>", "cat</w>", ".</w>"]


def test_polishing_trains_the_projection_alone_and_always_the_same(vocabulary, bank, tokenizer, recipe, tmp_path):
    log = Log(tmp_path / "log.jsonl")
    batches = Batches(bank, vocabulary, tokenizer, recipe, 0)
    plain, polished, again = (fit(bank, batches, recipe, 0, tmp_path / "fit.pt", log) for _ in range(3))
    for model in (polished, again):
        polish(model, bank, vocabulary, tokenizer, recipe, 0, log)
    for name, before in plain.tower.state_dict().items():
        assert torch.equal(before, polished.tower.state_dict()[name]), name
    assert torch.equal(again.projection.out.weight, polished.projection.out.weight)
    assert not torch.equal(plain.projection.out.weight, polished.projection.out.weight)


def test_a_second_view_is_the_mirrored_photo_and_always_the_same():
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    views = mirrored(PhotoSet("set", ("cat",), lambda i: Image.fromarray(pixels)))
    first, again = (np.asarray(views.picture(0)) for _ in range(2))
    assert np.array_equal(first, again)
    places = [(down, right) for down in range(-3, 4) for right in range(-3, 4)]
    shifted = [np.roll(pixels[:, ::-1], place, (0, 1))[8:24, 8:24] for place in places]
    assert any(np.array_equal(first[8:24, 8:24], one) for one in shifted)


def test_a_tower_that_was_kept_is_restored_to_the_bit(tmp_path):
    pack(EMBEDDED, tmp_path / "mini-0.safetensors")
    unpack(tmp_path / "mini-0.safetensors", tmp_path / "mini")
    for name in ("config.json", "tokenizer.json", "card.json", "image.onnx"):
        assert (tmp_path / "mini" / name).read_bytes() == (EMBEDDED / name).read_bytes(), name
    ours, theirs = (load_file(folder / "text.safetensors") for folder in (tmp_path / "mini", EMBEDDED))
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)


def test_every_form_of_context_can_be_drawn(vocabulary):
    rng = np.random.default_rng(0)
    for form in set(FORMS):
        words = {ContextWriter(vocabulary, (form,)).draw(np.arange(len(NAMES)), rng).words for _ in range(20)}
        assert len(words) > 3


def test_a_class_that_is_left_out_is_in_no_photo_name_or_text(vocabulary, bank):
    told = replace(vocabulary, glosses=("a pet", "not a cat", "a Dog", "has wheels", "floats", "eats like cats"))
    shorter, names = leave_out(bank, told, ["cat"])
    assert names.names == NAMES[1:]
    assert names.glosses == ("", "a Dog", "has wheels", "floats", "")
    assert not any("cat" in text for texts in shorter.captions for text in texts)
    assert len(shorter.captioned) == len(shorter.captions) == 50
    cats = bank.labelled["cifar100"].rows[bank.labelled["cifar100"].labels == 0]
    for part in (*shorter.labelled.values(), *shorter.mirrored["cifar100"]):
        assert not set(part.rows) & set(cats)
        assert [names.names[i] for i in part.labels[:2]] == ["dog", "beagle"]


def test_kinds_of_a_class_that_is_left_out_go_with_it(vocabulary, bank):
    told = replace(vocabulary, names=("cat", "bird", *NAMES[2:]))  # a beagle is a "bird" here
    _, names = leave_out(bank, told, ["bird"])
    assert names.names == ("cat", "bus", "ship", "fork")
