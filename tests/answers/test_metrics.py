from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from unsee import InputError
from unsee.answers.metrics import (
    entropy,
    harmonic_mean,
    near_chance,
    per_class_accuracy,
    scores,
    top_classes,
)
from unsee.answers.rules import label_mask_answers
from unsee.data.class_names import forget_mask
from unsee.methods.losses import forget_loss, forgetting_loss, forgetting_loss_torch, memorize_loss
from unsee.models.black_box import LOG_FLOOR, safe_log


def some_log_p(b=3, n=7, c=5, seed=0):
    logits = np.random.default_rng(seed).normal(size=(b, n, c)) * 3
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)


def test_losses_equal_the_papers_formulas_written_out_slowly():
    log_p = some_log_p()
    labels = np.array([0, 1, 2, 3, 4, 0, 1])
    forget = np.array([True, False, True, False, False])
    for weights in ((1.0, 1.0), (3.0, 0.5)):
        got = forgetting_loss(log_p, labels, forget, *weights)
        for b in range(len(log_p)):
            kept = [-float(log_p[b, i, y]) for i, y in enumerate(labels) if not forget[y]]
            gone = [-sum(float(v) for v in log_p[b, i]) / 5 for i, y in enumerate(labels) if forget[y]]
            want = weights[0] * sum(kept) / len(kept) + weights[1] * sum(gone) / len(gone)
            assert got[b] == pytest.approx(want, rel=1e-6)


def test_the_loss_in_torch_is_the_loss_in_numpy_over_any_batches():
    log_p, forget = some_log_p(1), np.array([True, False, True, False, False])
    labels = np.array([0, 1, 2, 3, 4, 0, 1])
    gone = forget[labels]
    for weights in ((1.0, 1.0), (3.0, 0.5)):
        total = sum(
            float(
                forgetting_loss_torch(
                    torch.from_numpy(log_p[0][rows]),
                    torch.from_numpy(labels[rows]),
                    torch.from_numpy(gone[rows]),
                    weights,
                    (int((~gone).sum()), int(gone.sum())),
                )
            )
            for rows in (slice(0, 3), slice(3, 4), slice(4, 7))
        )
        assert total == pytest.approx(forgetting_loss(log_p, labels, forget, *weights)[0], rel=1e-6)


def test_guessing_is_near_chance_and_knowing_is_not():
    assert near_chance(0.11, 10, 320)
    assert near_chance(0.19, 10, 320)
    assert not near_chance(0.35, 10, 320)
    assert near_chance(0.5, 2, 32)
    assert not near_chance(0.9, 2, 32)
    assert not near_chance(0.1, 200, 400)


def test_forget_loss_is_least_for_uniform_answers():
    uniform = np.full((1, 4, 10), -math.log(10), dtype=np.float32)
    assert forget_loss(uniform)[0] == pytest.approx(math.log(10), rel=1e-6)
    assert forget_loss(some_log_p(1, 4, 10))[0] > math.log(10)


def test_losses_of_no_images_are_zero():
    empty = np.zeros((2, 0, 5), dtype=np.float32)
    assert forget_loss(empty).tolist() == [0, 0]
    assert memorize_loss(empty, np.zeros(0, dtype=np.int64)).tolist() == [0, 0]


def test_a_confidence_of_zero_has_a_finite_log_and_nan_stays_nan():
    logs = safe_log(np.array([0.0, 1.0, 1e-30, np.nan], dtype=np.float32))
    assert logs[0] == pytest.approx(LOG_FLOOR)
    assert logs[1] == 0
    assert logs[2] == pytest.approx(math.log(1e-30), rel=1e-5)
    assert np.isnan(logs[3])


def test_harmonic_mean_of_two_zeros_is_zero():
    assert harmonic_mean(0, 0) == 0
    assert harmonic_mean(0.5, 0) == 0
    assert harmonic_mean(0.5, 1.0) == pytest.approx(2 / 3)


def test_scores_count_errors_on_forgotten_and_hits_on_kept_classes():
    labels = np.array([0, 0, 1, 1, 1, 1])
    found = scores(np.array([0, 1, 1, 1, 1, 0]), labels, np.array([True, False]))
    assert (found.err_for, found.acc_mem) == (0.5, 0.75)
    assert found.h == pytest.approx(0.6)


def test_scores_without_images_of_one_side_are_zero_there():
    found = scores(np.array([1]), np.array([1]), np.array([True, False]))
    assert (found.h, found.err_for, found.acc_mem) == (0, 0, 1)


def test_label_mask_never_answers_a_forgotten_class():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], dtype=np.float32)
    assert label_mask_answers(p, np.array([True, False, False])).tolist() == [1, 2]
    assert top_classes(p).tolist() == [0, 2]


def test_per_class_accuracy_is_nan_for_a_class_without_images():
    found = per_class_accuracy(np.array([0, 1, 1]), np.array([0, 0, 1]), 3)
    assert found[:2].tolist() == [0.5, 1.0]
    assert np.isnan(found[2])


def test_entropy_is_one_for_uniform_and_zero_for_certain_answers():
    p = np.array([[0.25] * 4, [1, 0, 0, 0]], dtype=np.float32)
    assert entropy(p).tolist() == pytest.approx([1, 0])


def test_forget_mask_takes_underscores_for_spaces_and_suggests_near_names():
    names = ("golden retriever", "cat", "dog")
    assert forget_mask(names, ["golden_retriever"]).tolist() == [True, False, False]
    with pytest.raises(InputError, match="unknown class to forget 'catt'; did you mean 'cat'"):
        forget_mask(names, ["catt"])
    with pytest.raises(InputError, match="all 3 classes"):
        forget_mask(names, names)
    with pytest.raises(InputError, match="no class to forget"):
        forget_mask(names, [])
