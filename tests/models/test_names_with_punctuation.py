"""Names that end in punctuation: their full stop may merge with it into one token, and both text towers cut alike."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests import tiny
from unsee.models.fast.clip import load_clip
from unsee.models.fast.text_tower import causal
from unsee.models.library.text_towers import LibraryTower, TokenLayout, place_contexts, token_table
from unsee.models.local import LocalModel

NAMES = ["sea lion", "U.S.", "St. John's", "what?!", "etc...", "(R)", "wow!?."]


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """One CLIP with random weights: as this package computes it, and as the library does."""
    fast = load_clip(str(tiny.write_model(tmp_path_factory.mktemp("model"))))
    theirs = tiny.make_clip()
    place_contexts(token_table(theirs))
    tower = LibraryTower(theirs, token_table(theirs), TokenLayout(77, 320), "", 4096)
    return fast, LocalModel("library", tower, fast.tokenizer, fast.encoder, fast.logit_scale)


@pytest.fixture(scope="module")
def contexts(towers):
    return 0.02 * torch.tensor(np.random.default_rng(0).standard_normal((2, 4, towers[0].tower.width))).float()


@pytest.mark.parametrize("position", ["end", "middle", "front"])
def test_both_text_towers_give_the_same_embeddings_of_names_that_end_in_punctuation(towers, contexts, position):
    with torch.inference_mode():
        ours, theirs = (model.bind_names(NAMES, position).embeddings(contexts) for model in towers)
    assert (ours - theirs).abs().amax(dim=(0, 2)).max() < 1e-5


@pytest.mark.parametrize("position", ["middle", "front"])
def test_contexts_follow_as_many_tokens_as_the_name_alone_has(towers, contexts, position):
    """CoOp's rule: it cuts the prompt after the number of tokens of the name without its full stop."""
    model, (one, *_) = towers[0], contexts
    tokens, half = model.tower.tokens, 2 if position == "middle" else 0
    for name in NAMES:
        whole, length = [*model.tokenizer.ids(f"{name}."), model.tokenizer.eot], len(model.tokenizer.ids(name))
        parts = [tokens[[model.tokenizer.sos]], one[:half], tokens[whole[:length]], one[half:], tokens[whole[length:]]]
        rows = torch.cat(parts)
        with torch.inference_mode():
            wanted = model.tower.read(causal(model.tower, (rows + model.tower.positions[: len(rows)])[None]))[0]
            found = model.bind_names([name], position).embeddings(contexts)[0, 0]
        assert (wanted - found).abs().max() < 1e-5, name
