"""Rebuilding image features from answers, and undoing a prompt: on linear models whose truth is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import unsee
from unsee.answers.rules import as_is, rules_for_prompts, top_label
from unsee.audit.rebuild import LabelListClient, draw_lists, log_shares, rebuild, undo
from unsee.audit.ridge import effective_rank, explained, kernels, ridge
from unsee.audit.subject import open_subject
from unsee.data.other_names import known_names
from unsee.models.black_box import bind

WIDTH, CLASSES, LISTS = 12, 5, 4


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


def linear_client(lists=LISTS, hidden=True):
    """A model whose logits are a linear map of features; the prompt is another map, which hides the classes."""
    rng = np.random.default_rng(0)
    centres = 2.0 * rng.standard_normal((CLASSES, WIDTH))
    labels, true = np.arange(80) % CLASSES, np.arange(60) % 2
    known, gone = (centres[y] + 0.5 * rng.standard_normal((len(y), WIDTH)) for y in (labels, true))
    maps = [0.3 * rng.standard_normal((WIDTH, CLASSES)) for _ in range(lists)]
    if not hidden:
        maps[0] = centres.T
    plain = softmax(known @ centres.T)
    return LabelListClient(
        asked=[(softmax(known @ each), softmax(gone @ each)) for each in maps],
        listed=[np.zeros(CLASSES, bool) for _ in maps],
        plain=plain,
        labels=labels,
        true=true,
        old=float((softmax(gone @ centres.T).argmax(axis=1) == true).mean()),
        features=(known, gone),
    )


def test_full_digits_rebuild_features_exactly_once_the_lists_have_their_rank():
    found = undo(linear_client(), as_is)
    assert (found.rank[1], found.rank[2]) == (4, 8)  # each list of five names tells four directions
    assert WIDTH - 1 <= found.rank[4] <= WIDTH  # the last one holds hardly any variance
    assert found.explained[4] == pytest.approx(1, abs=1e-4)
    assert found.explained[1] < 0.9


def test_the_top_label_alone_rebuilds_no_features():
    client = linear_client()
    found = undo(client, top_label)
    assert found.explained[4] < 0.8
    assert found.explained[4] < undo(client, as_is).explained[4] - 0.2


def test_full_digits_undo_a_prompt_and_the_fewest_questions_are_reported():
    client = linear_client()
    found = undo(client, as_is).from_answers
    assert client.old > 0.95
    assert found.accuracy[4][80] >= 0.9 * client.old
    enough = [p * n for p, by_images in found.accuracy.items() for n, a in by_images.items() if a >= 0.9 * client.old]
    assert found.lists * found.images == min(enough)


def test_answers_that_are_the_same_for_all_images_undo_nothing():
    client = linear_client()
    flat = LabelListClient(
        [(np.full_like(a, 0.2), np.full_like(b, 0.2)) for a, b in client.asked],
        client.listed,
        client.plain,
        client.labels,
        client.true,
        client.old,
        client.features,
    )
    found = undo(flat, as_is)
    assert set(found.rank.values()) == {0}
    assert max(found.explained.values()) <= 0
    assert found.from_answers.lists is None
    assert found.from_labels.images is None


def test_what_was_never_known_is_not_undone():
    found = undo(dataclasses.replace(linear_client(hidden=False), old=0.2), as_is).from_answers  # one of five classes
    assert (found.lists, found.images) == (None, None)


def test_a_prompt_that_hides_nothing_is_undone_from_one_list_and_the_fewest_images():
    found = undo(linear_client(hidden=False), as_is).from_answers
    assert (found.lists, found.images) == (1, 20)


def test_ridge_finds_a_linear_map_and_leaves_noise_alone():
    rng = np.random.default_rng(1)
    x, new, weights = rng.standard_normal((60, 6)), rng.standard_normal((30, 6)), rng.standard_normal((6, 3))
    [exact] = ridge(kernels(x, new), x @ weights + 2)
    np.testing.assert_allclose(exact, new @ weights + 2, atol=1e-6)
    [noise] = ridge(kernels(x, new), rng.standard_normal((60, 3)))
    assert explained(noise, rng.standard_normal((30, 3))) < 0.1
    assert np.abs(noise).max() < 0.7  # a strong ridge was chosen without looking at new images


def test_ridge_is_that_of_scikit_learn():
    from sklearn.linear_model import RidgeCV

    from unsee.audit.ridge import PENALTIES

    rng = np.random.default_rng(2)
    x, new = rng.standard_normal((30, 40)), rng.standard_normal((10, 40))
    y = x @ rng.standard_normal((40, 2)) + rng.standard_normal((30, 2))
    scale = ((x - x.mean(axis=0)) ** 2).sum() / len(x)
    expected = RidgeCV(scale * PENALTIES).fit(x, y).predict(new)
    np.testing.assert_allclose(ridge(kernels(x, new), y)[0], expected, atol=1e-6)


def test_rank_counts_the_dimensions_that_hold_the_variance():
    rng = np.random.default_rng(3)
    low = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 20))
    assert effective_rank(low) == effective_rank(low[:, :10]) == 3
    assert effective_rank(low + 1e-4 * rng.standard_normal(low.shape)) == 3
    assert effective_rank(np.ones((50, 20))) == 0


def test_logs_of_shares_do_not_know_what_a_softmax_hides():
    logits = np.random.default_rng(4).standard_normal((6, 5))
    np.testing.assert_allclose(log_shares(softmax(logits)), logits - logits.mean(axis=1, keepdims=True), atol=1e-5)


@pytest.fixture(scope="module")
def subject(model, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("rebuilt") / "run"
    tuner = unsee.PromptTuner(("bird", "cat"), shots=2, iterations=1).fit(model, data, out=out)
    tuner.finish(out, tuner.run_.bind(data.test))
    return open_subject(out, model, data)


def test_label_lists_hold_no_name_of_a_forgotten_class(subject):
    other = known_names(subject.task.forgotten)
    lists = draw_lists(subject, other)
    assert len(lists) == 15
    for names in lists:
        assert len(names) == len(set(names)) == len(subject.forget)
        assert not {"bird", "cat", *other["bird"], *other["cat"]} & set(names)
    assert lists == draw_lists(subject, other)
    assert len({name for names in lists[:10] for name in names}) == 100  # no noun twice before all were used


class Elsewhere:
    """A model that answers contexts and plain prompts, and shows nothing else."""

    def __init__(self, model):
        self.card, self._model = model.card, model

    def bind(self, images, class_names):
        bound = self._model.bind(images, class_names)
        shown = {"confidences": staticmethod(bound.confidences), "zero_shot": staticmethod(bound.zero_shot)}
        return type("Bound", (), shown)()


def test_a_model_elsewhere_is_undone_the_same_without_its_features(subject, data):
    other = known_names(subject.task.forgotten)
    away = rebuild(dataclasses.replace(subject, model=Elsewhere(subject.model)), data.test, other)
    here = rebuild(subject, data.test, other)
    assert away.feature_rank is None
    assert set(away.rules["as-is"].explained.values()) == {None}
    for rule in here.rules:
        assert away.rules[rule].from_answers == here.rules[rule].from_answers


def test_what_a_client_needs_and_does_not_have_is_said(subject, data):
    kept = data.test.subset(np.flatnonzero(~subject.forget[data.test.labels]))
    with pytest.raises(unsee.InputError, match="no test image of a forgotten class"):
        rebuild(subject, kept, {})
    short = dataclasses.replace(data, train=data.train.subset(np.arange(10)))
    with pytest.raises(unsee.InputError, match="20 training images; there are 10"):
        rebuild(dataclasses.replace(subject, data=short), data.test, {})


def test_contexts_for_some_names_leave_other_lists_under_the_plain_prompt(model, data, tmp_path):
    settings = {"shots": 2, "iterations": 1, "applies_to": "forgotten", "serve": "as-is"}
    tuner = unsee.PromptTuner(("bird", "cat"), **settings).fit(model, data, out=tmp_path)
    tuner.finish(tmp_path, tuner.run_.bind(data.test))
    subject = open_subject(tmp_path, model, data)
    bound = bind(model, data.test, ["lamp", "dog"])
    found = subject.unserved_renamed(bound, [None] * len(data.class_names))
    np.testing.assert_array_equal(found, bound.zero_shot(subject.template))


def test_a_model_in_this_process_is_rebuilt_under_every_rule(subject, data):
    found = rebuild(subject, data.test, known_names(subject.task.forgotten))
    assert set(found.rules) == set(rules_for_prompts())
    assert found.names == len(data.class_names)
    assert found.images == int(subject.forget[data.test.labels].sum())
    full = found.rules["as-is"]
    assert full.explained[16] > full.explained[1]
    assert full.explained[16] > found.rules["top-label"].explained[16]
    assert full.rank[16] <= found.feature_width
    assert set(full.from_answers.accuracy) == {1, 2, 4, 8, 16}
