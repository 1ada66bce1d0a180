"""The fast text tower against transformers' own, with random weights of a size at which errors would show."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.tiny import NAMES, make_clip, write_model
from unsee.errors import InputError
from unsee.models.fast.checkpoints import TowerSizes
from unsee.models.fast.clip import load_clip, text_tower
from unsee.models.fast.text_tower import BLOCK_ROWS, Layer, TextTower

SOS, EOT, FULL_STOP, VOCABULARY = 598, 599, 300, 600
SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
BASE = {"hidden_size": 512, "num_hidden_layers": 12, "num_attention_heads": 8, "intermediate_size": 2048}
LARGE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}


@cache
def reference(size: str, activation: str = "quick_gelu", layers: int | None = None):
    """A CLIPTextModelWithProjection with its own copy of scaled-up random weights."""
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    text = {"small": SMALL, "base": BASE, "large": LARGE}[size]
    config = CLIPTextConfig(
        **text | ({"num_hidden_layers": layers} if layers else {}),
        hidden_act=activation,
        vocab_size=VOCABULARY,
        bos_token_id=SOS,
        eos_token_id=EOT,
        projection_dim=text["hidden_size"],
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = CLIPTextModelWithProjection(config).eval()
        for name, weight in model.named_parameters():
            if name.endswith("proj.weight") or (".fc" in name and name.endswith("weight")):
                torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            elif name.endswith("bias"):
                torch.nn.init.normal_(weight, std=0.1)
            elif "norm" in name:
                torch.nn.init.normal_(weight, mean=1, std=0.1)
    return model.requires_grad_(False)


def ours(model) -> TextTower:
    config = model.config
    sizes = TowerSizes(
        config.hidden_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.intermediate_size,
        config.hidden_act,
    )
    return text_tower({name: weight.clone() for name, weight in model.state_dict().items()}, sizes)


def their_embeddings(model, contexts, suffixes, position="end", length=77, weights=None):
    """(b, m, D) -> (b, C, E): the contexts stand in for the embeddings of ids 0..m, padded as usual."""
    m = contexts.shape[1]
    half = {"end": m, "middle": m // 2, "front": 0}[position]
    ctx = list(range(m))
    texts = [[SOS, *ctx[:half], *s[:-2], *ctx[half:], *s[-2:]] for s in suffixes]
    ids = torch.tensor([text + [40] * (length - len(text)) for text in texts])
    name = "text_model.embeddings.token_embedding.weight"
    weights = weights or dict(model.named_parameters())
    out = []
    for candidate in contexts:
        table = torch.cat([candidate, weights[name][m:]])
        found = torch.func.functional_call(model, weights | {name: table}, kwargs={"input_ids": ids})
        out.append(torch.nn.functional.normalize(found.text_embeds, dim=-1))
    return torch.stack(out)


def names_of(count: int, seed: int = 0) -> list[list[int]]:
    """Class names of 1 to 6 tokens in no order, each followed by a full stop and EOT."""
    rng = np.random.default_rng(seed)
    lengths = rng.permutation(np.arange(count) % 6 + 1)
    return [[*rng.integers(50, 290, length).tolist(), FULL_STOP, EOT] for length in lengths]


def contexts_for(model, b: int, m: int, seed: int = 0) -> torch.Tensor:
    table = model.text_model.embeddings.token_embedding.weight
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(b, m, table.shape[1], generator=generator) * table.std()


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).detach().abs().max())


@pytest.mark.parametrize(
    ("size", "activation", "m", "length"),
    [
        pytest.param("base", "quick_gelu", 1, 12, marks=pytest.mark.slow),
        ("base", "quick_gelu", 4, 77),
        pytest.param("base", "quick_gelu", 16, 26, marks=pytest.mark.slow),
        pytest.param("large", "gelu", 1, 12, marks=pytest.mark.slow),
        pytest.param("large", "gelu", 4, 16, marks=pytest.mark.slow),
        pytest.param("large", "gelu", 16, 26, marks=pytest.mark.slow),
    ],
)
def test_full_size_towers_agree_with_transformers(size, activation, m, length):
    model = reference(size, activation)
    suffixes = names_of(14, seed=m)
    assert sum(map(len, suffixes)) > BLOCK_ROWS
    contexts = contexts_for(model, 1, m)
    with torch.inference_mode():
        found = ours(model).bind(suffixes, SOS).embeddings(contexts)
        assert worst(found, their_embeddings(model, contexts, suffixes, length=length)) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("eos", [2, EOT])
@pytest.mark.parametrize("m", [1, 4, 16])
@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
@pytest.mark.parametrize("size", ["base", "large"])
def test_full_size_towers_agree_with_transformers_in_every_combination(size, activation, m, eos):
    model = reference(size, activation)
    suffixes = names_of(40, seed=m)
    contexts = contexts_for(model, 1, m)
    model.text_model.eos_token_id = eos
    try:
        with torch.inference_mode():
            found = ours(model).bind(suffixes, SOS).embeddings(contexts)
            assert worst(found, their_embeddings(model, contexts, suffixes)) <= 1e-5
    finally:
        model.text_model.eos_token_id = EOT


@pytest.mark.parametrize("eos", [2, EOT])
@pytest.mark.parametrize("m", [1, 4, 16])
@pytest.mark.parametrize("activation", ["gelu", "quick_gelu"])
def test_many_classes_and_candidates_agree_with_transformers(activation, m, eos):
    model = reference("small", activation)
    suffixes = names_of(60, seed=m)
    contexts = contexts_for(model, 3, m)
    model.text_model.eos_token_id = eos
    try:
        with torch.inference_mode():
            found = ours(model).bind(suffixes, SOS).embeddings(contexts)
            assert worst(found, their_embeddings(model, contexts, suffixes)) <= 1e-5
    finally:
        model.text_model.eos_token_id = EOT


def test_embeddings_have_length_one_and_differ_between_classes_and_candidates():
    model = reference("small")
    found = ours(model).bind(names_of(20), SOS).embeddings(contexts_for(model, 2, 4))
    assert torch.allclose(found.norm(dim=-1), torch.ones(2, 20), atol=1e-5)
    assert worst(found[0], found[1]) > 1e-2
    assert all(worst(found[0, i], found[0, j]) > 1e-2 for i, j in itertools.combinations(range(20), 2))


@pytest.mark.parametrize("position", ["middle", "front"])
@pytest.mark.parametrize("m", [1, 4, 5])
def test_a_class_name_in_the_middle_or_in_front_agrees_with_transformers(position, m):
    model = reference("small")
    suffixes, contexts = names_of(20), contexts_for(model, 2, m)
    with torch.inference_mode():
        found = ours(model).bind(suffixes, SOS, position).embeddings(contexts)
        assert worst(found, their_embeddings(model, contexts, suffixes, position)) <= 1e-5
        assert worst(found, ours(model).bind(suffixes, SOS).embeddings(contexts)) > 1e-3


@pytest.mark.parametrize("layers", [1, 2])
def test_towers_of_one_and_two_layers_agree_with_transformers(layers):
    model = reference("small", layers=layers)
    suffixes, contexts = names_of(30), contexts_for(model, 3, 4)
    found = ours(model).bind(suffixes, SOS).embeddings(contexts)
    assert worst(found, their_embeddings(model, contexts, suffixes)) <= 1e-5


def test_no_contexts_at_all_gives_the_plain_texts():
    model = reference("small")
    suffixes, tower = names_of(12), ours(model)
    found = tower.bind(suffixes, SOS).embeddings(torch.zeros(1, 0, 64))
    assert worst(found[0], tower.encode([[SOS, *s] for s in suffixes])) <= 1e-5


def test_whole_texts_agree_with_transformers():
    model = reference("small")
    suffixes = names_of(25)
    found = ours(model).encode([[SOS, *s] for s in suffixes])
    assert worst(found[None], their_embeddings(model, torch.zeros(1, 0, 64), suffixes)) <= 1e-5


@pytest.mark.parametrize("position", ["end", "middle", "front"])
def test_gradients_in_the_contexts_agree_with_transformers(position):
    model = reference("small")
    suffixes, contexts = names_of(40), contexts_for(model, 2, 4).requires_grad_()
    weights = torch.randn(2, 40, 64, generator=torch.Generator().manual_seed(1))
    found = ours(model).bind(suffixes, SOS, position).embeddings(contexts)
    (mine,) = torch.autograd.grad((found * weights).sum(), contexts)
    (theirs,) = torch.autograd.grad((their_embeddings(model, contexts, suffixes, position) * weights).sum(), contexts)
    assert float((mine - theirs).norm() / theirs.norm()) <= 1e-4


def test_gradients_in_a_full_size_tower_agree_with_transformers():
    model = reference("base")
    suffixes, contexts = names_of(5), contexts_for(model, 1, 4).requires_grad_()
    weights = torch.randn(1, 5, 512, generator=torch.Generator().manual_seed(1))
    (mine,) = torch.autograd.grad((ours(model).bind(suffixes, SOS).embeddings(contexts) * weights).sum(), contexts)
    their = their_embeddings(model, contexts, suffixes, length=16)
    (theirs,) = torch.autograd.grad((their * weights).sum(), contexts)
    assert float((mine - theirs).norm() / theirs.norm()) <= 1e-4


def test_weights_that_require_gradients_get_those_of_transformers():
    model = reference("small")
    suffixes, contexts = names_of(30), contexts_for(model, 2, 4)
    tower = ours(model)
    for tensor in tower.tensors():
        tensor.requires_grad_()
    weights = {name: weight.clone().requires_grad_() for name, weight in model.named_parameters()}
    mix = torch.randn(2, 30, 64, generator=torch.Generator().manual_seed(1))
    (tower.bind(suffixes, SOS).embeddings(contexts) * mix).sum().backward()
    (their_embeddings(model, contexts, suffixes, weights=weights) * mix).sum().backward()
    assert all(tensor.grad is not None and tensor.grad.abs().max() > 0 for tensor in tower.tensors())
    at = "text_model.encoder.layers"
    pairs = {
        "text_model.embeddings.token_embedding.weight": tower.tokens,
        "text_model.embeddings.position_embedding.weight": tower.positions,
        "text_model.final_layer_norm.weight": tower.norm[0],
        "text_projection.weight": tower.projection,
    }
    for i, layer in enumerate(tower.layers):
        pairs[f"{at}.{i}.layer_norm1.weight"] = layer.norm1[0]
        pairs[f"{at}.{i}.self_attn.out_proj.weight"] = layer.out[0]
        pairs[f"{at}.{i}.mlp.fc1.weight"] = layer.fc1[0]
        pairs[f"{at}.{i}.mlp.fc2.bias"] = layer.fc2[1]
    for name, tensor in pairs.items():
        theirs = weights[name].grad
        assert float((tensor.grad - theirs).norm() / theirs.norm()) <= 1e-4, name


def test_weights_in_training_are_never_remembered():
    model = reference("small")
    suffixes, contexts = names_of(10), contexts_for(model, 1, 4)
    tower = ours(model)
    for tensor in tower.tensors():
        tensor.requires_grad_()
    bound = tower.bind(suffixes, SOS)
    before = bound.embeddings(contexts)
    with torch.no_grad():
        tower.tokens.mul_(1.5)
        tower.positions.mul_(0.5)
    after = bound.embeddings(contexts)
    assert worst(before, after) > 1e-3
    assert worst(after, tower.bind(suffixes, SOS).embeddings(contexts)) == 0


def test_a_large_population_gives_what_small_ones_give():
    model = reference("small")
    bound = ours(model).bind(names_of(24), SOS)
    contexts = contexts_for(model, 300, 4)
    assert bound.chunk(4) < 300
    with torch.inference_mode():
        found = bound.embeddings(contexts)
        assert worst(found, torch.cat([bound.embeddings(part) for part in contexts.split(50)])) <= 1e-6


def test_the_memory_bound_never_asks_for_less_than_one_candidate():
    model = reference("base")
    suffixes = names_of(500)
    for position in ("end", "middle", "front"):
        assert ours(model).bind(suffixes, SOS, position).chunk(16) == 1


def test_gradient_and_inference_calls_give_the_same_in_either_order():
    model = reference("small")
    suffixes, contexts = names_of(20), contexts_for(model, 2, 4)

    def inferred(bound):
        with torch.inference_mode():
            return bound.embeddings(contexts).numpy()

    def derived(bound):
        asked = contexts.clone().requires_grad_()
        found = bound.embeddings(asked)
        found.sum().backward()
        return found.detach().numpy(), asked.grad.numpy()

    first, second = ours(model).bind(suffixes, SOS), ours(model).bind(suffixes, SOS)
    a, (b, slope) = inferred(first), derived(first)
    (d, slope_again), c = derived(second), inferred(second)
    assert np.array_equal(a, c)
    assert np.array_equal(b, d)
    assert np.array_equal(slope, slope_again)
    assert np.abs(a - b).max() <= 1e-6
    assert np.array_equal(inferred(first), a)


def test_contexts_are_not_changed_by_a_call():
    model = reference("small")
    contexts = contexts_for(model, 2, 4)
    kept = contexts.clone()
    with torch.inference_mode():
        for position in ("end", "middle", "front"):
            ours(model).bind(names_of(20), SOS, position).embeddings(contexts)
    assert torch.equal(contexts, kept)


def test_contexts_of_the_wrong_width_are_refused():
    with pytest.raises(InputError, match="contexts are 63 wide, the model's tokens 64"):
        ours(reference("small")).bind(names_of(3), SOS).embeddings(torch.zeros(1, 4, 63))


def test_as_many_contexts_as_fit_are_taken_and_one_more_is_refused():
    model = reference("small")
    suffixes = [[60, FULL_STOP, EOT], [60, 61, 62, 63, FULL_STOP, EOT]]
    for position in ("end", "middle", "front"):
        bound = ours(model).bind(suffixes, SOS, position)
        assert bound.room == 70  # 77 positions, [SOS] and six of the longest name
        contexts = contexts_for(model, 1, 71)
        their = their_embeddings(model, contexts[:, :50], suffixes, position)
        assert worst(bound.embeddings(contexts[:, :50]), their) <= 1e-5
        assert bound.embeddings(contexts[:, :70]).shape == (1, 2, 64)
        with pytest.raises(InputError, match=r"71 contexts do not fit.*leaves 70"):
            bound.embeddings(contexts)


def test_an_unknown_class_position_is_refused():
    with pytest.raises(InputError, match="the class position is one of end, middle, front, not 'back'"):
        ours(reference("small")).bind(names_of(3), SOS, "back")


def test_macs_are_those_counted_by_hand():
    def pair(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(shape), torch.zeros(shape[0])

    layer = Layer(pair(8), pair(24, 8), pair(8, 8), pair(8), pair(16, 8), pair(8, 16))
    tower = TextTower(torch.zeros(9, 8), torch.zeros(12, 8), (layer,) * 3, pair(8), torch.zeros(4, 8), 2, "gelu", 1e-5)
    bound = tower.bind([[1, 8], [1, 2, 8]], sos=7)
    rows = 2 + 5  # contexts, names
    first = 2 * 3 * 64 + rows * 64 + rows * 2 * 128  # queries, keys and values of contexts only; output map; mlp
    second = rows * 3 * 64 + rows * 64 + rows * 2 * 128
    last = rows * 2 * 64 + 2 * (64 + 64 + 2 * 128)  # keys and values of all; the rest of the two EOTs
    assert bound.macs(2) == first + second + last + 2 * 8 * 4


@pytest.mark.parametrize("m", [1, 4, 16])
def test_macs_are_those_that_torch_counts(m):
    model = reference("small")
    bound, contexts = ours(model).bind(names_of(30), SOS), contexts_for(model, 3, m)
    with torch.no_grad():
        bound.embeddings(contexts)  # the constants
        with FlopCounterMode(display=False) as counter:
            bound.embeddings(contexts)
    counts = counter.get_flop_counts()["Global"]
    assert counts[torch.ops.aten.addmm] + counts[torch.ops.aten.mm] == 2 * 3 * bound.macs(m)


def test_logits_through_a_loaded_model_agree_with_transformers(tmp_path):
    model = make_clip().requires_grad_(False)
    loaded = load_clip(str(write_model(tmp_path)))
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    bound = loaded.bind(pixels, NAMES)
    contexts = (rng.standard_normal((2, 4, 64)) * loaded.card.token_std).astype(np.float32)
    found = bound.log_confidences(contexts)
    tokenizer = loaded.tokenizer
    texts = [[tokenizer.sos, 0, 1, 2, 3, *tokenizer.ids(f"{name}."), tokenizer.eot] for name in NAMES]
    ids = torch.tensor([text + [tokenizer.eot] * (77 - len(text)) for text in texts])
    prepared = torch.from_numpy(np.stack([loaded.encoder.prepare(image) for image in map(to_image, pixels)]))
    for candidate, logs in zip(contexts, found, strict=True):
        model.text_model.embeddings.token_embedding.weight[:4] = torch.from_numpy(candidate)
        logits = model(input_ids=ids, pixel_values=prepared).logits_per_image
        assert np.abs(logits.log_softmax(-1).numpy() - logs).max() <= 1e-4
        assert np.abs(logits.softmax(-1).numpy() - np.exp(logs)).max() <= 1e-5


def to_image(pixels):
    from PIL import Image

    return Image.fromarray(pixels)
