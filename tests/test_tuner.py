from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

import unsee
from tests import tiny
from unsee import InputError, ModelError, PromptTuner, RunError
from unsee.methods.guided import CHECKED
from unsee.methods.registry import METHODS
from unsee.models.black_box import bind
from unsee.runs.folder import read_answers, read_config

PROMPTED = [name for name, method in METHODS.items() if method.tunes_prompt]
RUNS = [name for name in METHODS if name != "scratch-vit"]  # as scratch-resnet18, but minutes long on a CPU

FORGET = ["airplane", "automobile", "bird", "cat"]
SHORT = {"iterations": 6, "shots": 4, "population": 8}


def tune(model, data, out=None, method="lcs", seed=0, say=None, **settings):
    return PromptTuner(FORGET, method, seed=seed, **(SHORT | settings)).fit(model, data, out=out, say=say)


def losses(run):
    lines = (run / "journal.jsonl").read_text().splitlines()
    return [
        (line["generation"], line["best_loss"], line["mean_loss"], line["valid_h"]) for line in map(json.loads, lines)
    ]


@pytest.mark.parametrize("method", PROMPTED)
def test_every_method_tunes_scores_and_predicts(model, data, method):
    population = 1 if METHODS[method].settings.get("search") == "gradient" else 8
    tuner = tune(model, data, method=method, population=population)
    assert tuner.contexts_.shape == (8, model.card.width)
    asked = 20 + 4 * population + CHECKED if method == "guided" else 6 * population
    assert tuner.ledger_.candidates == asked
    assert tuner.ledger_.generations == 6
    bound, labels = bind(model, data.test), data.test.labels
    answered, gone = tuner.prompt.unserved(bound).argmax(axis=1), np.isin(data.class_names, FORGET)[labels]
    found = tuner.score(data.test)
    assert found.err_for == pytest.approx(np.mean(answered[gone] != labels[gone]))
    assert found.acc_mem == np.mean(answered[~gone] == labels[~gone])
    served = tuner.prompt.answer(bound).argmax(axis=1)
    assert tuner.predict(data.test) == [data.class_names[i] for i in served]


def test_a_method_that_tunes_no_prompt_has_none(model, data):
    tuner = PromptTuner(FORGET, "label-mask", shots=2).fit(model, data)
    with pytest.raises(InputError, match="'label-mask' tunes no prompt"):
        _ = tuner.prompt


def test_classes_are_named_in_the_datas_order_and_spelling(model, data):
    tuner = PromptTuner("cat, bird", **SHORT).fit(model, data)
    assert tuner.prompt.forget == ("bird", "cat")


def test_tuning_lowers_the_loss_and_raises_h(model, data):
    tuner = tune(model, data, iterations=60, population=20)
    first, last = tuner.history_[0], tuner.history_[-1]
    assert last.losses.min() < first.losses.min() - 0.3
    assert tuner.score(data.test).h > tuner.evaluate(data.test).zero_shot.h + 0.2


def test_the_same_seed_gives_the_same_prompt_and_another_seed_another_split(model, data, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        tune(model, data, tmp_path / name, seed=seed)
    prompts = [(tmp_path / name / "prompt.safetensors").read_bytes() for name in "abc"]
    splits = [json.loads((tmp_path / name / "config.json").read_text())["split"] for name in "abc"]
    assert prompts[0] == prompts[1] != prompts[2]
    assert splits[0] == splits[1] != splits[2]
    assert losses(tmp_path / "a") == losses(tmp_path / "b") != losses(tmp_path / "c")


def test_global_random_state_is_the_same_before_and_after_fit(model, data):
    before, torch_before = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    tune(model, data)
    after = np.random.get_state()  # noqa: NPY002
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]
    assert torch.equal(torch_before, torch.get_rng_state())


def test_the_ledger_counts_every_prompt_and_image_query(model, data):
    tuner = tune(model, data)
    assert tuner.ledger_.prompts_encoded == (1 + 48) * 10, "once under the plain prompt"
    assert tuner.ledger_.image_queries == (1 + 48) * 80
    assert tuner.ledger_.images_encoded == 80


@pytest.mark.parametrize(("validate", "validated"), [("generation", 6), ("5", 10)])
def test_cheaper_validation_asks_for_fewer_images(model, data, validate, validated):
    tuner = tune(model, data, validate=validate)
    assert tuner.ledger_.candidates == 48
    assert tuner.ledger_.image_queries == 80 + 48 * 40 + validated * 40
    assert tuner.valid_ == tuner.score(data.train.subset(tuner.config_.split.valid))


def test_validating_every_candidate_keeps_the_best_of_all(model, data):
    every, best = tune(model, data), tune(model, data, validate="generation")
    assert [g.losses.tolist() for g in every.history_] == [g.losses.tolist() for g in best.history_]
    assert every.valid_.h >= best.valid_.h


@pytest.mark.parametrize(("budget", "asked"), [(8, 8), (15, 8), (20, 16), (47, 40), (48, 48), (1000, 48)])
def test_the_budget_is_never_exceeded_and_counts_whole_generations(model, data, budget, asked):
    said = []
    tuner = tune(model, data, budget=budget, say=said.append)
    assert tuner.ledger_.candidates == asked
    assert tuner.ledger_.prompts_encoded == (1 + asked) * 10, "once under the plain prompt"
    assert sum(len(g.losses) for g in tuner.history_) == asked
    left = [text for text in said if "left" in text]
    assert bool(left) == (budget % 8 > 0)
    assert all(text == f"{budget - asked} candidates of the budget are left: a generation takes 8" for text in left)


def test_a_budget_below_one_generation_is_refused(model, data):
    with pytest.raises(unsee.InputError, match="at least one generation, which is 8 candidates"):
        tune(model, data, budget=7)


@pytest.mark.parametrize("budget", [8, 13, 17, 47])
def test_a_run_out_of_budget_continues_as_if_there_had_been_none(model, data, tmp_path, budget):
    whole = tune(model, data, tmp_path / "whole")
    tune(model, data, tmp_path / "cut", budget=budget)
    config = read_config(tmp_path / "cut")
    longer = PromptTuner.from_config(config).resume(model, data, tmp_path / "cut", budget=1000)
    assert longer.ledger_.candidates == 48
    assert np.allclose(longer.contexts_, whole.contexts_, atol=1e-6)
    best = [[line[1] for line in losses(tmp_path / name)] for name in ("cut", "whole")]
    assert np.allclose(*best, atol=1e-6)
    assert json.loads((tmp_path / "cut" / "config.json").read_text())["settings"]["budget"] == 1000


def test_resuming_a_finished_run_asks_the_model_nothing(model, data, tmp_path):
    whole = tune(model, data, tmp_path / "run", budget=21)
    config = read_config(tmp_path / "run")
    again = PromptTuner.from_config(config).resume(model, data, tmp_path / "run")
    assert again.ledger_.candidates == 16
    assert again.ledger_.image_queries == whole.ledger_.image_queries
    assert np.array_equal(again.contexts_, whole.contexts_)
    assert again.valid_ == whole.valid_


def test_a_tuner_saved_afterwards_is_a_run_like_any_other(model, data, tmp_path):
    tuner = tune(model, data, tmp_path / "run")
    tuner.save(tmp_path / "saved")
    for name in ("prompt.safetensors", "prompt.json", "config.json"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert losses(tmp_path / "saved") == losses(tmp_path / "run")
    with pytest.raises(RunError, match="already holds a run"):
        tuner.save(tmp_path / "saved")


def in_other_order(images):
    """The same images with the same names, numbered the other way round."""
    last = len(images.class_names) - 1
    return dataclasses.replace(images, class_names=images.class_names[::-1], labels=last - images.labels)


def test_images_are_scored_by_the_names_of_their_classes_not_by_the_order(model, data, tmp_path):
    tuner = tune(model, data, tmp_path / "run", iterations=20)
    other = in_other_order(data.test)
    assert tuner.score(other) == tuner.score(data.test)
    found, wanted = tuner.evaluate(other), tuner.evaluate(data.test)
    assert (found.tuned, found.zero_shot, found.label_mask) == (wanted.tuned, wanted.zero_shot, wanted.label_mask)
    assert found.per_class(data.class_names) == wanted.per_class(data.class_names)
    bound = bind(model, other)
    assert tuner.score(bound) == tuner.score(data.test)
    assert tuner.score(bind(model, other, data.class_names)) == tuner.score(data.test)
    result = tuner.finish(tmp_path / "run", bound)
    assert result.test == wanted.tuned
    assert read_answers(tmp_path / "run")["labels"].tolist() == data.test.labels.tolist()


def test_images_of_other_classes_and_without_labels_are_not_scored(model, data):
    tuner = tune(model, data)
    renamed = dataclasses.replace(data.test, class_names=("plane", *data.class_names[1:]))
    for score in (tuner.score, tuner.evaluate):
        with pytest.raises(InputError, match=r"classes are not the run's: they have 'plane', which .* lack 'airplane'"):
            score(renamed)
        with pytest.raises(InputError, match="60 of the 60 images have no label"):
            score(unsee.as_images(np.zeros((60, 8, 8, 3), np.uint8)))
        some = data.test.labels.copy()
        some[3] = -1
        with pytest.raises(InputError, match="1 of the 60 images has no label"):
            score(dataclasses.replace(data.test, labels=some))


def test_a_saved_prompt_classifies_as_the_tuner_does(model, data, tmp_path):
    tuner = tune(model, data)
    tuner.save(tmp_path / "run")
    prompt = unsee.load_prompt(tmp_path / "run")
    answers = prompt.classify(model, data.test)
    assert [answer.after[0][0] for answer in answers] == tuner.predict(data.test)
    assert sum(c for _, c in prompt.classify(model, data.test, top=10)[0].after) == pytest.approx(1, abs=1e-4)
    assert np.allclose(prompt.confidences(model, data.test).sum(axis=1), 1, atol=1e-4)


def test_a_prompt_for_another_model_is_refused(model, data, tmp_path):
    tune(model, data, tmp_path / "run")
    other = unsee.load_model(tiny.write_model(tmp_path / "other", seed=5))
    with pytest.raises(RunError, match="was tuned for model"):
        unsee.load_prompt(tmp_path / "run").classify(other, data.test)


def test_a_damaged_or_changed_prompt_is_refused(model, data, tmp_path):
    tune(model, data, tmp_path / "run")
    weights = tmp_path / "run" / "prompt.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-4])
    with pytest.raises(RunError, match="damaged"):
        unsee.load_prompt(tmp_path / "run")
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match=r"does not match prompt\.json"):
        unsee.load_prompt(tmp_path / "run")
    weights.unlink()
    with pytest.raises(RunError, match="holds no prompt"):
        unsee.load_prompt(tmp_path / "run")


def test_another_model_or_other_data_cannot_resume_a_run(model, data, tmp_path):
    tune(model, data, tmp_path / "run", budget=9)
    config = read_config(tmp_path / "run")
    other_model = unsee.load_model(tiny.write_model(tmp_path / "other", seed=5))
    with pytest.raises(RunError, match="another model"):
        PromptTuner.from_config(config).resume(other_model, data, tmp_path / "run")
    other_data = unsee.load_data(tiny.write_images(tmp_path / "images", train=9))
    with pytest.raises(RunError, match="another data set"):
        PromptTuner.from_config(config).resume(model, other_data, tmp_path / "run")
    same_names = unsee.load_data(tiny.write_images(tmp_path / "others", seed=3))
    with pytest.raises(RunError, match="another data set"):
        PromptTuner.from_config(config).resume(model, same_names, tmp_path / "run")


def test_the_origin_can_be_a_phrase(model, data):
    tuner = tune(model, data, origin="a photo of a", sigma0=1e-9, projection="normalized", contexts=4)
    bound = model.bind(data.test, data.class_names)
    assert np.allclose(bound.confidences(tuner.contexts_[None])[0], bound.zero_shot("a photo of a {}."), atol=1e-4)
    with pytest.raises(InputError, match="4 tokens long, more than the 2 contexts"):
        tune(model, data, origin="a photo of a", contexts=2)


def test_weights_of_the_loss_change_what_is_found(model, data):
    even, kept = tune(model, data, iterations=30), tune(model, data, iterations=30, memorize_weight=20.0)
    assert even.history_[0].losses.tolist() != kept.history_[0].losses.tolist()


def test_too_many_contexts_are_refused_before_anything_is_written(model, data, tmp_path):
    with pytest.raises(InputError, match="76 contexts are more than the model's 77 tokens allow"):
        tune(model, data, tmp_path / "run", contexts=76)
    with pytest.raises(InputError, match="74 contexts do not fit in front of the longest class name"):
        tune(model, data, tmp_path / "run", contexts=74)
    assert not (tmp_path / "run").exists()


class Answering:
    """A provider that answers as told: it obeys the border with nothing but `card`, `bind` and `confidences`."""

    def __init__(self, model, answer):
        self.card = model.card
        self.answer = answer

    def bind(self, images, class_names):
        return dataclasses.make_dataclass(
            "Bound", [], namespace={"confidences": lambda _, c: self.answer(len(c), len(images), len(class_names))}
        )()


def test_a_provider_with_nothing_but_confidences_can_be_tuned_even_if_it_rounds_to_zero(model, data):
    def certain(b, n, c):
        p = np.zeros((b, n, c), dtype=np.float32)
        p[:, :, 0] = 1
        return p

    tuner = tune(Answering(model, certain), data)
    assert np.isfinite(tuner.history_[-1].losses).all()
    with pytest.raises(InputError, match="does not publish"):
        tune(Answering(model, certain), data, origin="a photo")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda b, n, c: np.full((b, n, c), np.nan, np.float32), "NaN or infinite"),
        (lambda b, n, c: np.full((b, n, c), np.inf, np.float32), "NaN or infinite"),
        (lambda b, n, c: np.full((b, n), 1 / c, np.float32), "answered with shape"),
    ],
)
def test_nonsense_from_a_model_is_a_clear_line_and_leaves_nothing_behind(model, data, answer, message, tmp_path):
    with pytest.raises(ModelError, match=message):
        tune(Answering(model, answer), data, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_stalled_search_ends_early_only_if_asked(model, data):
    def uniform(b, n, c):
        return np.full((b, n, c), 1 / c, np.float32)

    flat = {"iterations": 60}
    assert tune(Answering(model, uniform), data, **flat).ledger_.generations == 60
    assert tune(Answering(model, uniform), data, stop_when_stalled=True, **flat).ledger_.generations < 60


class Stop(Exception):
    pass


# `tests/runs/test_thousand_resumes.py` stops these by default; two others are long.
ELSEWHERE = ["lcs", "bbt-sep", "bbt-vkd", "cbbt", "cbbt-own", "zip", "coop", "c-emb", "coop-params", "finetune"]


@pytest.mark.parametrize("method", [pytest.param(m, marks=pytest.mark.slow) if m in ELSEWHERE else m for m in RUNS])
def test_any_method_interrupted_and_resumed_ends_with_the_same_answers(model, data, tmp_path, method):
    settings = SHORT | {"population": 1 if METHODS[method].settings.get("search") == "gradient" else 8}
    if method == "scratch-resnet18":
        settings["weights"] = str(tiny.write_resnet(tmp_path / "weights"))  # a full one takes ten times as long
        settings["image_size"] = 32

    def stop(generation, settings):
        if generation.number == 4:
            raise Stop

    whole = PromptTuner(FORGET, method, **settings).fit(model, data, out=tmp_path / "whole")
    if METHODS[method].settings.get("iterations") == 1:
        PromptTuner(FORGET, method, **settings).fit(model, data, out=tmp_path / "cut")
    else:
        with pytest.raises(Stop):
            PromptTuner(FORGET, method, **settings).fit(model, data, out=tmp_path / "cut", watch=stop)
    config = read_config(tmp_path / "cut")
    again = PromptTuner.from_config(config).resume(model, data, tmp_path / "cut")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert again.score(data.test) == whole.score(data.test)
    assert again.predict(data.test) == whole.predict(data.test)
    if method in PROMPTED:
        for name in ("prompt.safetensors", "prompt.json"):
            assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_folder_inside_the_data_is_refused(model, image_folder, tmp_path):
    data = unsee.load_data(shutil.copytree(image_folder, tmp_path / "images"))
    with pytest.raises(InputError, match="is inside the data"):
        tune(model, data, tmp_path / "images" / "runs" / "a")
    tuner = tune(model, data)
    with pytest.raises(InputError, match="is inside the data"):
        tuner.save(tmp_path / "images" / "run")
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["test", "train"]
