"""Rules in closed form: forgotten names projected out of the classifier."""

from __future__ import annotations

import numpy as np
import pytest

import unsee
from tests.test_tuner import FORGET, Answering
from unsee import InputError, PromptTuner
from unsee.methods.null_space import NULL_SPACES, directions, project_out
from unsee.models.white_box import class_embeddings


@pytest.fixture(scope="module")
def classifier(model, data):
    """Class embeddings (C, E) and which of them to forget."""
    found = class_embeddings(model, data.class_names, "a photo of a {}.").astype(np.float64)
    return found, np.array([name in FORGET for name in data.class_names])


@pytest.mark.parametrize("centred", [False, True])
def test_nothing_is_left_along_the_removed_directions(classifier, centred):
    embeddings, forget = classifier
    basis = directions(embeddings, forget, centred)
    assert np.allclose(basis @ basis.T, np.eye(len(FORGET)))
    left = project_out(embeddings, basis)
    assert np.abs(left @ basis.T).max() < 1e-12
    assert np.allclose(project_out(left, basis), left), "once is enough"
    apart = embeddings[forget] - (embeddings[~forget].mean(axis=0) if centred else 0)
    assert np.abs(left @ apart.T).max() < 1e-12


def test_a_forgotten_name_scores_nothing_or_the_mean_of_the_kept(classifier):
    embeddings, forget = classifier
    images = np.random.default_rng(0).normal(size=(50, embeddings.shape[1]))
    plain = images @ project_out(embeddings, directions(embeddings, forget, centred=False)).T
    assert np.abs(plain[:, forget]).max() < 1e-12
    centred = images @ project_out(embeddings, directions(embeddings, forget, centred=True)).T
    assert np.allclose(centred[:, forget], centred[:, ~forget].mean(axis=1, keepdims=True))


def test_projecting_images_or_names_is_the_same(classifier):
    embeddings, forget = classifier
    images = np.random.default_rng(0).normal(size=(50, embeddings.shape[1]))
    basis = directions(embeddings, forget, centred=False)
    assert np.allclose(project_out(images, basis) @ embeddings.T, images @ project_out(embeddings, basis).T)


def test_names_that_mean_the_same_take_one_direction():
    embeddings = np.eye(4)[[0, 0, 1, 2]]
    assert len(directions(embeddings, np.array([True, True, False, False]), centred=False)) == 1


def test_the_centred_rule_never_answers_a_forgotten_name(model, data):
    tuner = PromptTuner(FORGET, "null-space-centred", shots=2).fit(model, data)
    assert tuner.score(data.test).err_for == 1.0
    assert not set(tuner.predict(data.test)) & set(FORGET)


@pytest.mark.parametrize("method", NULL_SPACES)
def test_it_has_the_interface_of_every_untuned_method(model, data, tmp_path, method):
    tuner = PromptTuner(FORGET, method, shots=2).fit(model, data, out=tmp_path / "run")
    assert tuner.ledger_.candidates == 0
    assert tuner.ledger_.image_queries == 2 * 20, "the validation images, under the plain prompt and by the rule"
    found = tuner.fitted_.confidences(unsee.models.black_box.bind(model, data.test))
    assert found.shape == (len(data.test), 10)
    assert np.allclose(found.sum(axis=1), 1, atol=1e-4)
    result = tuner.result(tuner.evaluate(data.test), tuner.valid_)
    assert result.access == "class embeddings"
    assert tuner.predict(data.test) == tuner.predict(data.test), "chance is seeded"
    with pytest.raises(InputError, match="tunes no prompt"):
        _ = tuner.prompt


@pytest.mark.parametrize("method", NULL_SPACES)
def test_a_black_box_is_refused_in_one_line(model, data, method):
    box = Answering(model, lambda b, n, c: np.full((b, n, c), 1 / c, np.float32))
    with pytest.raises(InputError, match=f"'{method}' needs class embeddings of a model in this process"):
        PromptTuner(FORGET, method, shots=2).fit(box, data)
    tuner = PromptTuner(FORGET, method, shots=2).fit(model, data)
    with pytest.raises(InputError, match="a black box takes no class embeddings"):
        tuner.score(unsee.models.black_box.bind(box, data.test))


@pytest.fixture(scope="module")
def embedded(demo_features, few_photos):
    cache = unsee.models.FeatureCache(demo_features)
    return unsee.load_model("mini", cache=cache), few_photos


@pytest.mark.parametrize(("method", "low", "high"), [("null-space", 0.95, 0.97), ("null-space-centred", 0.97, 0.98)])
def test_what_they_reach_on_the_embedded_model(embedded, method, low, high):
    """Label mask has 0.982 there. The first lets forgotten names win where nothing of the kept ones is above 0."""
    model, data = embedded
    tuner = PromptTuner(FORGET, method).fit(model, data)
    assert low < tuner.score(data.test).h < high
