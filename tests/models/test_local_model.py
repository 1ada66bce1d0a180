"""A model held in memory, as the border sees it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from tests.tiny import NAMES, TEXT, make_clip, write_images, write_model
from unsee.data.images import ArraySource, as_images, labelled
from unsee.errors import InputError, ModelError
from unsee.models import BlackBox, Bound, FeatureCache, Metered, load_model
from unsee.models.black_box import BoundImages, LooksUpTokens, TellsLogs, bind
from unsee.models.fast.checkpoints import TowerSizes
from unsee.models.fast.clip import text_tower
from unsee.models.fast.text_tower import TextTower
from unsee.models.local import LocalModel
from unsee.types import Ledger


@pytest.fixture(scope="module")
def clip():
    return make_clip().requires_grad_(False)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> LocalModel:
    return load_model(write_model(tmp_path_factory.mktemp("clip")))


def pixels(n: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 40, 32, 3), dtype=np.uint8)


def contexts(model: LocalModel, b: int = 3, m: int = 4) -> np.ndarray:
    scale = 3 * model.card.token_std
    return (np.random.default_rng(1).standard_normal((b, m, model.card.width)) * scale).astype(np.float32)


def remade(model: LocalModel, **changes) -> LocalModel:
    """The same model with some of its parts exchanged."""
    parts = {
        "name": "remade",
        "tower": model.tower,
        "tokenizer": model.tokenizer,
        "encoder": model.encoder,
        "logit_scale": model.logit_scale,
    }
    return LocalModel(**parts | changes)


def test_confidences_are_float32_and_rows_sum_to_one(model):
    bound = model.bind(pixels(), NAMES)
    found = bound.confidences(contexts(model))
    assert found.dtype == np.float32
    assert found.shape == (3, 6, 10)
    assert (found >= 0).all()
    assert np.abs(found.sum(axis=-1) - 1).max() <= 1e-5
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_logs_are_those_of_the_confidences(model):
    bound = model.bind(pixels(), NAMES)
    logs = bound.log_confidences(contexts(model))
    assert logs.dtype == np.float32
    assert np.array_equal(np.exp(logs), bound.confidences(contexts(model)))


def test_logs_are_finite_even_where_confidences_round_to_zero(model):
    bound = remade(model, logit_scale=1e4).bind(pixels(), NAMES)
    logs = bound.log_confidences(contexts(model))
    assert np.isfinite(logs).all()
    assert logs.min() < -200
    assert bound.confidences(contexts(model)).min() == 0
    assert np.abs(bound.confidences(contexts(model)).sum(axis=-1) - 1).max() <= 1e-5


def test_a_population_gets_what_each_candidate_gets_alone(model):
    bound = model.bind(pixels(), NAMES)
    together = bound.log_confidences(contexts(model))
    for i in range(3):
        assert np.abs(bound.log_confidences(contexts(model)[i : i + 1])[0] - together[i]).max() <= 1e-5


def test_contexts_need_not_be_float32_nor_contiguous(model):
    bound = model.bind(pixels(), NAMES)
    wanted = bound.log_confidences(contexts(model))
    assert np.array_equal(bound.log_confidences(contexts(model).astype(np.float64)), wanted)
    turned = np.ascontiguousarray(contexts(model).transpose(2, 1, 0)).transpose(2, 1, 0)
    assert np.array_equal(bound.log_confidences(turned), wanted)
    fixed = contexts(model)
    fixed.setflags(write=False)
    assert np.array_equal(bound.log_confidences(fixed), wanted)


def test_contexts_of_the_wrong_shape_are_refused(model):
    bound = model.bind(pixels(), NAMES)
    with pytest.raises(InputError, match=r"contexts must be \(b, m, 64\), not \(4, 64\)"):
        bound.confidences(np.zeros((4, 64), np.float32))
    with pytest.raises(InputError, match="contexts are 65 wide"):
        bound.confidences(np.zeros((1, 4, 65), np.float32))


def test_as_many_contexts_as_there_is_room_for_are_taken(model):
    bound = model.bind(pixels(2), ["cat", "dog"])
    assert bound.room == 77 - 1 - 3  # [SOS]; the name, its full stop, EOT
    assert bound.confidences(np.zeros((1, 73, 64), np.float32)).shape == (1, 2, 2)
    with pytest.raises(InputError, match="74 contexts do not fit"):
        bound.confidences(np.zeros((1, 74, 64), np.float32))
    metered = Metered(BoundImages(as_images(pixels(2)), bound, ("cat", "dog")), Ledger())
    metered.check_room(73)
    with pytest.raises(InputError, match="at most 73"):
        metered.check_room(74)


@pytest.mark.parametrize("template", ["a photo of a {}.", "{}", "a blurry photo of the {}, a {}!"])
def test_zero_shot_is_the_softmax_of_transformers(model, clip, template):
    names = [*NAMES, "great_white_shark", "Boeing 747-400"]
    found = model.bind(pixels(), names).zero_shot(template)
    tokenizer = model.tokenizer
    texts = [tokenizer.ids(template.replace("{}", name.replace("_", " "))) for name in names]
    ids = torch.tensor([[tokenizer.sos, *t, tokenizer.eot] + [tokenizer.eot] * (75 - len(t)) for t in texts])
    prepared = np.stack([model.encoder.prepare(Image.fromarray(p)) for p in pixels()])
    logits = clip(input_ids=ids, pixel_values=torch.from_numpy(prepared)).logits_per_image
    assert found.shape == (6, 12)
    assert found.dtype == np.float32
    assert np.abs(found - logits.softmax(dim=-1).numpy()).max() <= 1e-5


def test_a_template_without_a_place_for_the_name_is_refused(model):
    bound = model.bind(pixels(), NAMES)
    for template in ("a photo", "", "a {name}", "{ }"):
        with pytest.raises(InputError, match=r"must hold \{\} where the class name goes"):
            bound.zero_shot(template)


def test_clips_vocabulary_gives_clips_ids(model):
    """Ids that OpenAI's tokenizer is known to give."""
    assert (model.tokenizer.sos, model.tokenizer.eot) == (49406, 49407)
    assert model.tokenizer.ids("a photo of a cat.") == [320, 1125, 539, 320, 2368, 269]
    assert model.tokenizer.ids("A  Photo of a CAT.") == [320, 1125, 539, 320, 2368, 269]


def test_underscores_in_class_names_become_spaces(model):
    bound = model.bind(pixels(), ["great_white_shark", "polar_bear"])
    plain = model.bind(pixels(), ["great white shark", "polar bear"])
    assert np.array_equal(bound.confidences(contexts(model)), plain.confidences(contexts(model)))
    assert np.array_equal(bound.zero_shot("a {}."), plain.zero_shot("a {}."))


def test_a_class_name_too_long_for_the_model_is_refused_by_name(model):
    name = "very " * 80 + "large cat"
    with pytest.raises(InputError, match=r"the class name 'very very.*' takes 84 of the model's 77 tokens"):
        model.bind(pixels(), ["dog", name])


def test_a_template_too_long_for_the_model_is_refused(model):
    with pytest.raises(InputError, match="77 tokens"):
        model.bind(pixels(), NAMES).zero_shot("a very " * 50 + "{}")


def test_no_class_names_are_refused(model):
    with pytest.raises(InputError, match="at least one class name"):
        model.bind(pixels(), [])


def test_one_class_and_one_image_are_enough(model):
    bound = model.bind(pixels(1), ["cat"])
    assert np.array_equal(bound.confidences(contexts(model)), np.ones((3, 1, 1), np.float32))


def test_class_order_is_kept_whatever_the_lengths_of_names(model):
    names = ["giant panda bear cub", "cat", "great white shark", "dog", "tyrannosaurus rex", "ox"]
    order = [3, 0, 5, 2, 4, 1]
    found = model.bind(pixels(), names).log_confidences(contexts(model))
    turned = model.bind(pixels(), [names[i] for i in order]).log_confidences(contexts(model))
    assert np.abs(found[:, :, order] - turned).max() <= 1e-5


def test_embed_gives_the_rows_of_a_phrases_tokens(model, clip):
    table = clip.text_model.embeddings.token_embedding.weight.numpy()
    found = model.embed("a photo of a")
    assert found.dtype == np.float32
    assert np.array_equal(found, table[[320, 1125, 539, 320]])
    assert model.embed("").shape == (0, 64)


def test_the_card_tells_the_token_tables_mean_and_spread(model, clip):
    table = clip.text_model.embeddings.token_embedding.weight.double().numpy()
    card = model.card
    assert (card.width, card.token_limit) == (64, 77)
    assert card.token_mean.shape == (64,)
    assert np.abs(card.token_mean - table.mean(axis=0)).max() <= 1e-6
    assert abs(card.token_std - table.std()) <= 1e-6 * table.std() + 1e-8


def test_the_same_weights_have_the_same_fingerprint_wherever_they_lie(model, tmp_path):
    again = load_model(write_model(tmp_path))
    assert again.card.fingerprint == model.card.fingerprint
    assert again.card.name != model.card.name
    assert load_model(write_model(tmp_path, seed=1)).card.fingerprint != model.card.fingerprint


def test_the_fingerprint_changes_with_any_weight(model):
    small = dataclasses.replace(model.tower, tokens=model.tower.tokens[:100].clone())
    first = remade(model, tower=small).card.fingerprint
    assert remade(model, tower=small).card.fingerprint == first
    found = set()
    for tensor in small.tensors():
        kept = tensor.clone()
        tensor.view(-1)[-1] += 0.01
        found.add(remade(model, tower=small).card.fingerprint)
        tensor.copy_(kept)
    assert len(found) == len(small.tensors())
    assert first not in found
    assert remade(model, tower=small).card.fingerprint == first


def test_the_fingerprint_changes_with_what_the_weights_do_not_tell(model):
    def fingerprint(tower: TextTower = model.tower, **changes) -> str:
        return remade(model, tower=tower, **changes).card.fingerprint

    found = {
        fingerprint(),
        fingerprint(logit_scale=model.logit_scale * 1.01),
        fingerprint(dataclasses.replace(model.tower, heads=2)),
        fingerprint(dataclasses.replace(model.tower, activation="gelu")),
        fingerprint(dataclasses.replace(model.tower, eps=1e-6)),
        fingerprint(tokenizer=Words()),
        fingerprint(reads_highest=True),
    }
    assert len(found) == 7


def test_images_may_be_a_record_paths_pil_images_or_an_array(model, tmp_path):
    paths = []
    for i, array in enumerate(pixels()):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(array).save(paths[-1])
    given = [
        labelled(ArraySource(pixels()), [0] * 6, NAMES),
        paths,
        [str(path) for path in paths],
        [Image.fromarray(array) for array in pixels()],
        pixels(),
        (Image.fromarray(array) for array in pixels()),
    ]
    wanted = model.bind(pixels(), NAMES).confidences(contexts(model))
    for images in given:
        assert np.array_equal(model.bind(images, NAMES).confidences(contexts(model)), wanted)


@pytest.mark.parametrize(
    "images", [[], [1, 2], "image.png", np.zeros((2, 8, 8, 3)), np.zeros((8, 8, 3), np.uint8), [np.zeros((8, 8, 3))]]
)
def test_what_are_no_images_is_refused(model, images):
    with pytest.raises(InputError):
        model.bind(images, NAMES)


def test_a_binding_tells_what_it_encoded_and_the_ledger_keeps_it(model, tmp_path):
    folder = write_images(tmp_path / "images", names=NAMES[:2], train=3, test=1)
    paths = sorted(folder.rglob("*.png"))
    cached = remade(model, cache=FeatureCache(tmp_path / "cache"))
    ledger = Ledger()
    for _ in range(2):
        metered = Metered(bind(cached, as_images(paths), NAMES), ledger)
    assert (ledger.images_encoded, ledger.images_from_cache) == (8, 8)
    metered.log_confidences(contexts(model))
    assert (ledger.prompts_encoded, ledger.image_queries) == (3 * 10, 3 * 8)


def test_a_local_model_obeys_the_border(model):
    box: BlackBox = model
    bound: Bound = box.bind(pixels(), NAMES)
    assert isinstance(box, LooksUpTokens)
    assert isinstance(bound, TellsLogs)


def test_answers_do_not_change_from_one_call_to_the_next(model):
    bound = model.bind(pixels(), NAMES)
    first = bound.log_confidences(contexts(model))
    bound.zero_shot("a photo of a {}.")
    bound.log_confidences(contexts(model, 2, 7))
    assert np.array_equal(bound.log_confidences(contexts(model)), first)


class Words:
    """A tokenizer of whole words, with some above the end token, as models with added tokens have."""

    sos, eot = 50, 51
    fingerprint = "words"

    def ids(self, text: str) -> list[int]:
        return [60 + len(word) if word.isupper() else 1 + sum(map(ord, word)) % 40 for word in text.split()]


@pytest.mark.parametrize(("eos", "name"), [(2, "a NEW cat"), (51, "a NEW cat"), (2, "a cat"), (51, "a cat")])
def test_texts_are_read_where_transformers_reads_them(model, eos, name):
    """By the older rule a text ends at its highest id, which an added token above EOT moves."""
    words = Words()
    text = TEXT | {"vocab_size": 80, "bos_token_id": 50, "eos_token_id": eos, "num_hidden_layers": 3}
    theirs = make_clip(text).requires_grad_(False)
    tower = text_tower(theirs.state_dict(), TowerSizes(64, 3, 4, 128, "quick_gelu"))
    found = remade(model, tower=tower, tokenizer=words, reads_highest=eos == 2).texts([name])
    ids = [words.sos, *words.ids(name), words.eot]
    features = theirs.get_text_features(input_ids=torch.tensor([ids + [0] * (77 - len(ids))]))
    features = getattr(features, "pooler_output", features)
    assert float((found - torch.nn.functional.normalize(features, dim=-1)).abs().max()) <= 1e-5


def test_half_precision_on_a_cpu_and_unknown_types_are_refused(tmp_path):
    folder = write_model(tmp_path)
    with pytest.raises(InputError, match="float16 needs a GPU"):
        load_model(folder, dtype="float16")
    with pytest.raises(InputError, match="dtype is one of float32, float16, bfloat16, not 'int8'"):
        load_model(folder, dtype="int8")


def test_an_empty_model_name_is_refused():
    with pytest.raises(InputError, match="no model was named"):
        load_model(" ")


def test_weights_that_are_not_numbers_are_refused_when_asked(model):
    tower = dataclasses.replace(model.tower, projection=model.tower.projection * float("nan"))
    bound = bind(remade(model, tower=tower), as_images(pixels()), NAMES)
    with pytest.raises(ModelError, match="NaN or infinite"):
        Metered(bound, Ledger()).log_confidences(contexts(model))


def test_a_synset_behind_a_name_is_not_part_of_the_prompt(model):
    two = model.bind(pixels(2), ["crane (n02012849)", "crane (n03126707)", "boat"])
    one = model.bind(pixels(2), ["crane", "boat"])
    template = "a photo of a {}."
    assert np.array_equal(two.zero_shot(template)[:, 0], two.zero_shot(template)[:, 1])
    ratio = one.zero_shot(template)[:, 0] / one.zero_shot(template)[:, 1]
    assert np.allclose(two.zero_shot(template)[:, 0] / two.zero_shot(template)[:, 2], ratio, rtol=1e-4)
    found = two.confidences(contexts(model))
    assert np.allclose(found[:, :, 0], found[:, :, 1], atol=1e-5)


def test_several_templates_are_averaged_after_each_is_normalised(model):
    names, templates = ["cat", "dog"], ["a photo of a {}.", "a sketch of a {}.", "{}"]
    each = torch.stack([model.plain_names(names, template) for template in templates])
    mean = each.mean(dim=0)
    found = model.plain_names(names, " | ".join(templates))
    assert torch.allclose(found, mean / mean.norm(dim=-1, keepdim=True), atol=1e-6)
    assert torch.allclose(found.norm(dim=-1), torch.ones(2))


def test_each_of_several_templates_needs_a_place_for_the_name(model):
    with pytest.raises(InputError, match=r"'a photo' must hold \{\} where the class name goes"):
        model.plain_names(["cat"], "a photo of a {}. | a photo")
