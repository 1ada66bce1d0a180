"""What answers to test images leak: every measure of them, with its interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsee.answers.intervals import Estimate, auroc_of, largest_share, mean_of, share_of
from unsee.answers.metrics import entropy, per_class_accuracy, scores, top_classes
from unsee.answers.rules import rules_for_prompts
from unsee.audit.information import mutual_information
from unsee.audit.measures import calibration_error, kl_to_uniform
from unsee.audit.probes import PROTOTYPE_SHOTS, SHOTS, Fit, Halves, Prototypes, forgotten_probe, k_shot_probe
from unsee.audit.record import Answers, ForgottenClass, KeptClass, Served, estimate
from unsee.runs.records import EstimateRecord
from unsee.seeds import stream
from unsee.types import Doubles, Floats, Ints, Mask

SERVED_SHOTS = (16,)


def measure_answers(confidences: Floats, labels: Ints, forget: Mask, class_names: Sequence[str], seed: int) -> Answers:
    """All that these answers leak. confidences (n, C), labels (n,), forget (C,)."""
    gone = forget[labels]
    p, true, top = confidences[gone], labels[gone], top_classes(confidences[gone])
    n, classes, right = len(true), len(forget), top_classes(confidences) == labels
    flatness, far = entropy(p), kl_to_uniform(p)
    accuracy, kept = share_of(right[gone]), share_of(right[~gone])
    return Answers(
        images=n,
        scores=scores(top_classes(confidences), labels, forget),
        accuracy_forgotten=estimate(accuracy),
        times_chance=accuracy.value * classes if n else None,
        entropy=estimate(mean_of(flatness, 0, 1)),
        kl=estimate(mean_of(far, 0, np.log(classes))),
        largest_share=estimate(largest_share(top, classes)),
        lands_on=_lands_on(top, class_names),
        mutual_information=estimate(_bits(true, top, seed)),
        **_detected(confidences, gone, seed),
        probe={k: estimate(_probe(p, true, k, seed)) for k in SHOTS},
        prototype={k: estimate(_probe(p, true, k, seed, Prototypes)) for k in PROTOTYPE_SHOTS},
        accuracy_kept=estimate(kept),
        calibration_error=calibration_error(confidences[~gone], labels[~gone]) if (~gone).any() else None,
        worst_kept=_worst(confidences, labels, forget, class_names),
        per_class={
            class_names[c]: _one_class(top[true == c], c, flatness[true == c], far[true == c], class_names)
            for c in np.flatnonzero(forget).tolist()
        },
    )


def measure_served(p: Floats, labels: Ints, forget: Mask, seed: int) -> dict[str, Served]:
    """The same answers under each rule that a prompt can carry, with fewer figures."""
    return {
        name: _served(rule(p, forget, stream(seed, name)), labels, forget, seed)
        for name, rule in rules_for_prompts().items()
    }


def _bits(true: Ints, top: Ints, seed: int) -> Estimate:
    return mutual_information(true, top, stream(seed, "audit"))


def _probe(p: Floats, true: Ints, shots: int, seed: int, fit: Fit | None = None) -> Estimate | None:
    found = k_shot_probe(p, true, shots, stream(seed, "probe", shots), fit=fit)
    return None if found is None else found.estimate


def _detected(confidences: Floats, gone: Mask, seed: int) -> dict[str, EstimateRecord | None]:
    values = {"auroc_confidence": -confidences.max(axis=1).astype(np.float64), "auroc_entropy": entropy(confidences)}
    found = {name: estimate(auroc_of(value, gone)) for name, value in values.items()}
    return found | {"auroc_probe": estimate(_sure(forgotten_probe(confidences, gone, stream(seed, "halves")), gone))}


def _sure(found: Halves | None, gone: Mask) -> Estimate | None:
    return None if found is None else found.auroc(gone)


def _lands_on(top: Ints, class_names: Sequence[str]) -> str | None:
    return class_names[int(np.bincount(top, minlength=len(class_names)).argmax())] if len(top) else None


def _worst(confidences: Floats, labels: Ints, forget: Mask, class_names: Sequence[str]) -> KeptClass | None:
    shares = np.where(forget, np.nan, per_class_accuracy(top_classes(confidences), labels, len(forget)))
    if np.isnan(shares).all():
        return None
    worst = int(np.nanargmin(shares))
    return KeptClass(name=class_names[worst], accuracy=float(shares[worst]))


def _one_class(top: Ints, c: int, flatness: Doubles, far: Doubles, class_names: Sequence[str]) -> ForgottenClass:
    classes = len(class_names)
    return ForgottenClass(
        images=len(top),
        accuracy=estimate(share_of(top == c)),
        entropy=estimate(mean_of(flatness, 0, 1)),
        kl=estimate(mean_of(far, 0, np.log(classes))),
        largest_share=estimate(largest_share(top, classes)),
        lands_on=_lands_on(top, class_names),
    )


def _served(p: Floats, labels: Ints, forget: Mask, seed: int) -> Served:
    """The values that `measure_answers` finds, without most of their intervals."""
    gone = forget[labels]
    true, top = labels[gone], top_classes(p[gone])
    sure = _sure(forgotten_probe(p, gone, stream(seed, "halves")), gone)
    probes = {k: _probe(p[gone], true, k, seed) for k in SERVED_SHOTS}
    return Served(
        scores=scores(top_classes(p), labels, forget),
        accuracy_forgotten=estimate(share_of(top == true)),
        entropy=float(entropy(p[gone]).mean()) if gone.any() else None,
        mutual_information=_bits(true, top, seed).value if gone.any() else None,
        auroc_probe=None if sure is None else sure.value,
        probe={k: None if found is None else found.value for k, found in probes.items()},
    )
