"""A prompt says which names it applies to, and everything that answers with it honours that."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import unsee
from tests.test_tuner import FORGET, SHORT, Answering, tune
from unsee import InputError, PromptTuner, RunError
from unsee.cli import main
from unsee.methods.losses import embedding_loss
from unsee.models.black_box import bind
from unsee.models.white_box import ClassEmbeddings

TEMPLATE = "a photo of a {}."


def mixed_by_hand(model, images, names, contexts):
    """Confidences from two full classifiers, of which each class takes its row from one."""
    bound = model.bind(images, names)
    with torch.inference_mode():
        tuned = model.bind_names(names).embeddings(torch.from_numpy(contexts)[None])[0]
        plain = model.texts([TEMPLATE.replace("{}", name) for name in names])
        rows = torch.tensor([name in FORGET for name in names])[:, None]
        logits = model.logit_scale * bound.features @ torch.where(rows, tuned, plain).T
    return logits.softmax(dim=-1).numpy()


def black_box(model):
    return Answering(model, lambda b, n, c: np.full((b, n, c), 1 / c, np.float32))


@pytest.fixture(scope="module")
def literal(model, data, tmp_path_factory):
    """A run of C-Emb as the paper writes it."""
    out = tmp_path_factory.mktemp("c-emb") / "run"
    return tune(model, data, out, method="c-emb", serve="as-is"), out


def test_every_way_to_answer_leaves_the_kept_names_under_the_plain_prompt(model, data, literal, capsys):
    tuner, out = literal
    want = mixed_by_hand(model, data.test, data.class_names, tuner.contexts_)
    prompt = unsee.load_prompt(out)
    assert prompt.applies_to == tuple(FORGET)
    assert np.allclose(prompt.confidences(model, data.test), want, atol=1e-5)
    top = [data.class_names[i] for i in want.argmax(axis=1)]
    assert tuner.predict(data.test) == top
    assert [answer.after[0][0] for answer in prompt.classify(model, data.test)] == top
    assert tuner.evaluate(data.test).tuned == tuner.score(bind(model, data.test)) == tuner.score(data.test)
    everywhere = bind(model, data.test).confidences(tuner.contexts_[None])[0]
    assert not np.allclose(everywhere, want, atol=1e-3), "contexts before all names are another classifier"


def test_the_command_line_scores_it_as_the_tuner_does(model_folder, image_folder, tmp_path, capsys):
    arguments = ["forget", image_folder, "--model", model_folder, "--forget", "cat,dog", "--method", "c-emb"]
    arguments += ["--iterations", 3, "--out", tmp_path / "run", "--no-cache", "--json"]
    assert main([str(a) for a in arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert main(["evaluate", str(tmp_path / "run"), "--no-cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["test"] == result["test"]


def test_the_card_names_them_only_where_they_are_not_all(model, data, literal, tmp_path):
    assert json.loads((literal[1] / "prompt.json").read_text())["applies_to"] == FORGET
    tune(model, data, tmp_path / "lcs")
    assert "applies_to" not in json.loads((tmp_path / "lcs" / "prompt.json").read_text())
    assert unsee.load_prompt(tmp_path / "lcs").applies_to is None


@pytest.mark.parametrize("named", [["catt"], [], ["cat", "catt"]])
def test_a_card_with_names_that_are_no_classes_is_refused(literal, tmp_path, named):
    for name in ("prompt.safetensors", "prompt.json"):
        (tmp_path / name).write_bytes((literal[1] / name).read_bytes())
    card = json.loads((tmp_path / "prompt.json").read_text()) | {"applies_to": named}
    (tmp_path / "prompt.json").write_text(json.dumps(card))
    with pytest.raises(RunError, match="applies_to must name some of class_names"):
        unsee.load_prompt(tmp_path)


def test_a_black_box_with_one_prompt_for_all_names_refuses(model, data, literal, tmp_path):
    refused = pytest.raises(InputError, match="contexts for 4 of 10 names need a model in this process")
    with refused:
        unsee.load_prompt(literal[1]).classify(black_box(model), data.test)
    with refused:
        PromptTuner(FORGET, "lcs", applies_to="forgotten", **SHORT).fit(black_box(model), data, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="not all are classes here"):
        bind(model, data.test).apply_to(["cat", "catt"], TEMPLATE)


@pytest.mark.parametrize("method", ["lcs", "coop"])
def test_methods_with_images_can_be_told_to_leave_the_kept_names_alone(model, data, method):
    settings = SHORT | {"iterations": 20} | ({"population": 1} if method == "coop" else {})
    tuner = PromptTuner(FORGET, method, applies_to="forgotten", **settings).fit(model, data)
    assert tuner.prompt.applies_to == tuple(FORGET)
    assert min(g.losses.min() for g in tuner.history_) < tuner.history_[0].losses.min()
    with pytest.raises(InputError, match="unknown applies_to 'kept'"):
        PromptTuner(FORGET, method, applies_to="kept").fit(model, data)
    with pytest.raises(InputError, match="method 'finetune' tunes none"):
        PromptTuner(FORGET, "finetune", applies_to="forgotten").fit(model, data)


def test_both_readings_of_c_emb_minimise_the_same_loss(model, data):
    """It looks at the forgotten names' embeddings alone: the readings differ in what becomes of the kept ones."""
    forget = np.array([name in FORGET for name in data.class_names])
    contexts = np.random.default_rng(0).normal(0, 0.05, (3, 4, model.card.width)).astype(np.float32)
    literal, everywhere = (ClassEmbeddings(model, data.class_names, TEMPLATE, names) for names in (FORGET, None))
    after = literal.under(contexts)
    assert np.array_equal(after[:, ~forget], np.broadcast_to(literal.before[~forget], after[:, ~forget].shape))
    losses = [embedding_loss(e.under(contexts), e.before, forget, ~forget, 0.07) for e in (literal, everywhere)]
    assert np.allclose(*losses, atol=1e-4)


def test_embeddings_before_tuning_read_names_as_the_prompt_does(model):
    found = [ClassEmbeddings(model, names, TEMPLATE).before for names in (["polar_bear"], ["polar bear"])]
    assert np.array_equal(*found)
