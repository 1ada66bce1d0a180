"""Tokenizers of checkpoints: CLIP's own, or the one that a folder brings."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from tests.models.clip_files import (
    TEXT,
    VISION,
    answers,
    refusal,
)
from tests.tiny import NAMES, make_clip
from unsee.data.paper_names import CIFAR10, CIFAR100
from unsee.models import load_model
from unsee.models.fast.tokenizers import ClipTokenizer, find_tokenizer


def train_tokenizer(folder: Path):
    """A byte-pair tokenizer of a few hundred tokens in CLIP's manner."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    tokenizer.train_from_iterator([f"a photo of a {name}." for name in NAMES] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def test_a_tokenizer_json_is_used(tmp_path):
    trained = train_tokenizer(tmp_path)
    found = find_tokenizer(tmp_path, trained.get_vocab_size())
    assert (found.sos, found.eot) == (0, 1)
    assert found.ids("a photo of a Deer.") == trained.encode("a photo of a deer.").ids
    assert found.ids("") == []


def test_padding_and_cutting_that_a_tokenizer_json_asks_for_are_left_out(tmp_path):
    trained = train_tokenizer(tmp_path)
    wanted = trained.encode("a photo of a frog and a ship.").ids
    trained.enable_padding(length=77)
    trained.enable_truncation(4)
    trained.save(str(tmp_path / "tokenizer.json"))
    assert find_tokenizer(tmp_path, 300).ids("a photo of a frog and a ship.") == wanted


def test_a_vocabulary_and_merges_are_used(tmp_path):
    from transformers import CLIPTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz."
    tokens = ["<|startoftext|>", *letters, *(f"{letter}</w>" for letter in letters), "ca", "cat</w>", "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\nc a\nca t</w>\n")
    found = find_tokenizer(tmp_path, len(tokens))
    assert (found.sos, found.eot) == (0, len(tokens) - 1)
    assert found.ids("Cat.") == [tokens.index("cat</w>"), tokens.index(".</w>")]
    assert found.ids("cat.") == CLIPTokenizer.from_pretrained(tmp_path)("cat.").input_ids[1:-1]


def test_a_tokenizers_fingerprint_changes_with_its_file_only(tmp_path):
    (here := tmp_path / "here").mkdir()
    (there := tmp_path / "there").mkdir()
    train_tokenizer(here)
    content = (here / "tokenizer.json").read_text()
    (there / "tokenizer.json").write_text(content)
    first = find_tokenizer(here, 300).fingerprint
    assert find_tokenizer(there, 300).fingerprint == first
    (there / "tokenizer.json").write_text(content.replace('"Lowercase"', '"NFC"'))
    assert find_tokenizer(there, 300).fingerprint != first
    assert ClipTokenizer().fingerprint == "clip-bpe-49408"


def test_a_vocabularys_fingerprint_changes_with_either_file(tmp_path):
    def fingerprint(tokens: list[str], merges: str) -> str:
        (tmp_path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
        (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{merges}")
        return find_tokenizer(tmp_path, len(tokens)).fingerprint

    tokens = ["<|startoftext|>", "a", "b", "a</w>", "b</w>", "ab</w>", "<|endoftext|>"]
    turned = ["<|startoftext|>", "b", "a", "a</w>", "b</w>", "ab</w>", "<|endoftext|>"]
    first = fingerprint(tokens, "a b</w>\n")
    assert len({first, fingerprint(turned, "a b</w>\n"), fingerprint(tokens, "")}) == 3
    assert fingerprint(tokens, "a b</w>\n") == first


def test_the_same_weights_under_another_tokenizer_have_another_fingerprint(tmp_path):
    size = train_tokenizer(tmp_path).get_vocab_size()
    text = TEXT | {"vocab_size": size, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    make_clip(text, VISION, projection=64).save_pretrained(tmp_path)
    before = load_model(tmp_path).card.fingerprint
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text().replace('"Lowercase"', '"NFC"'))
    assert load_model(tmp_path).card.fingerprint != before


def test_a_whole_model_with_its_own_small_vocabulary_loads(tmp_path):
    trained = train_tokenizer(tmp_path)
    size = trained.get_vocab_size()
    text = TEXT | {"vocab_size": size, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    make_clip(text, VISION, projection=64).save_pretrained(tmp_path)
    found = answers(tmp_path)
    assert found.shape == (2, 3, len(NAMES))
    assert np.isfinite(found).all()


def test_an_end_of_text_that_the_tokenizer_does_not_have_is_refused(tmp_path):
    trained = train_tokenizer(tmp_path)
    text = TEXT | {"vocab_size": trained.get_vocab_size(), "eos_token_id": 5}
    make_clip(text, VISION, projection=64).save_pretrained(tmp_path)
    assert refusal(tmp_path) == f"{tmp_path}: eos_token_id is 5, but the tokenizer ends with 1"


def test_a_vocabulary_that_is_not_clips_needs_a_tokenizer_file(tmp_path):
    make_clip(TEXT | {"vocab_size": 500}, VISION, projection=64).save_pretrained(tmp_path)
    assert refusal(tmp_path) == f"{tmp_path}: no tokenizer.json, and 500 tokens are not CLIP's 49408"


@pytest.mark.parametrize("content", ["{", "{}", ""])
def test_a_broken_tokenizer_json_is_named(quick, folder, content):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    (folder / "tokenizer.json").write_text(content)
    assert str(folder / "tokenizer.json") in refusal(folder)


@pytest.mark.parametrize("content", ["{", "[]", ""])
def test_a_broken_vocabulary_is_named(quick, folder, content):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    (folder / "vocab.json").write_text(content)
    (folder / "merges.txt").write_text("#version: 0.2\n")
    assert str(folder) in refusal(folder)


def test_a_tokenizer_without_clips_special_tokens_is_named(quick, folder):
    (folder / "model.safetensors").symlink_to(quick[0] / "model.safetensors")
    trained = train_tokenizer(folder)
    content = trained.to_str().replace("<|startoftext|>", "<s>")
    (folder / "tokenizer.json").write_text(content)
    assert refusal(folder) == f"{folder / 'tokenizer.json'}: has no <|startoftext|> token"


CLIPS = {  # ids by another implementation of OpenAI's tokenizer, instant-clip-tokenizer 0.1.1
    "a photo of a cat.": [320, 1125, 539, 320, 2368, 269],
    "It's I'VE don't": [585, 568, 328, 1200, 847, 713],
    "Straße, Ünïcödé!": [1894, 127, 253, 324, 267, 6522, 77, 35689, 66, 7255, 67, 4166, 256],
    "日本語": [39121, 44353, 34002, 508],
    "👍🏽 v2.0": [43722, 341, 273, 269, 271],
    "ΑΣ": [138, 109, 139, 480],  # a sigma at the end of a word
    "n02012849 <|endoftext|>": [333, 271, 273, 271, 272, 273, 279, 275, 280, 27, 347, 40786, 4160, 91, 285],
    "tab\tnew\nline": [14724, 686, 1148],
    "": [],
}


def test_clips_own_vocabulary_gives_the_ids_of_openais_tokenizer():
    tokenizer = ClipTokenizer()
    assert {text: tokenizer.ids(text) for text in CLIPS} == CLIPS
    assert (tokenizer.sos, tokenizer.eot) == (49406, 49407)
    digest = hashlib.blake2b(digest_size=8)
    for name in (*CIFAR10, *CIFAR100):
        digest.update(repr(tokenizer.ids(f"a photo of a {name}.")).encode())
    assert digest.hexdigest() == "02dca43b1ffdac9c"
