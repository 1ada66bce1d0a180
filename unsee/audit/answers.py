"""What answers to test images tell: every measure of `measures.py` and `probes.py`, with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsee.audit.measures import (
    Estimate,
    auroc,
    bootstrap,
    calibration_error,
    kl_to_uniform,
    largest_share,
    mean_of,
    mutual_information,
)
from unsee.audit.probes import SHOTS, Probe, forgotten_probe, k_shot_probe
from unsee.methods.serving import SERVING
from unsee.metrics import answers, entropy, per_class_accuracy, scores
from unsee.runs.audit_record import Answers, ForgottenClass, KeptClass, Membership, Served
from unsee.runs.records import EstimateRecord
from unsee.seeds import stream
from unsee.types import Doubles, Floats, Ints, Mask

SERVED_SHOTS = (16,)


def measure_answers(confidences: Floats, labels: Ints, forget: Mask, class_names: Sequence[str], seed: int) -> Answers:
    """All that these answers tell. confidences (n, C), labels (n,), forget (C,)."""
    gone = forget[labels]
    p, true, top = confidences[gone], labels[gone], answers(confidences[gone])
    n, classes, right = len(true), len(forget), answers(confidences) == labels
    flatness, far = entropy(p), kl_to_uniform(p)
    rng = stream(seed, "audit")
    accuracy = bootstrap(mean_of(right[gone].astype(np.float64)), n, rng)
    return Answers(
        scores=scores(answers(confidences), labels, forget),
        accuracy_forgotten=estimate(accuracy),
        times_chance=accuracy.value * classes if n else None,
        entropy=estimate(bootstrap(mean_of(flatness), n, rng)),
        kl=estimate(bootstrap(mean_of(far), n, rng)),
        largest_share=estimate(bootstrap(largest_share(top, classes), n, rng)),
        lands_on=_lands_on(top, class_names),
        mutual_information=estimate(bootstrap(mutual_information(true, top, classes), n, rng)),
        **_told_apart(confidences, gone, seed),
        probe={k: _probe_estimate(k_shot_probe(p, true, k, stream(seed, "probe", k)), rng) for k in SHOTS},
        accuracy_kept=estimate(bootstrap(mean_of(right[~gone].astype(np.float64)), int((~gone).sum()), rng)),
        calibration_error=calibration_error(confidences[~gone], labels[~gone]) if (~gone).any() else None,
        worst_kept=_worst(confidences, labels, forget, class_names),
        per_class={
            class_names[c]: _one_class(top[true == c], c, flatness[true == c], far[true == c], class_names, rng)
            for c in np.flatnonzero(forget).tolist()
        },
    )


def measure_served(p: Floats, labels: Ints, forget: Mask, seed: int) -> dict[str, Served]:
    """The same answers under each serving rule, in fewer words."""
    return {name: _served(rule(p, forget, stream(seed, name)), labels, forget, seed) for name, rule in SERVING.items()}


def measure_membership(
    shots: Floats, shot_labels: Ints, others: Floats, other_labels: Ints, forget: Mask, which: str, seed: int
) -> Membership:
    """Whether answers to the tuning shots differ from those to other images of their classes.

    The attacker looks at the confidence in the true class. Classes are told apart one by one and averaged over images,
    as each class has a confidence of its own: what counts is the rank of an image within its class.
    """

    def within(side: Mask) -> Estimate | None:
        values, member = [], []
        for c in np.flatnonzero(side):
            mine, theirs = shots[shot_labels == c, c], others[other_labels == c, c]
            if len(mine) and len(theirs):
                both = np.concatenate([mine, theirs])
                values.append(_ranks(both))
                member.append(np.arange(len(both)) < len(mine))
        if not values:
            return None
        told = np.concatenate(member)
        return bootstrap(auroc(np.concatenate(values), told), len(told), stream(seed, "membership"))

    return Membership(forgotten=estimate(within(forget)), kept=estimate(within(~forget)), others=which)


def estimate(found: Estimate | None) -> EstimateRecord | None:
    """A measure as a record; None without images."""
    if found is None or np.isnan([found.value, found.low, found.high]).any():
        return None
    return EstimateRecord(value=found.value, low=found.low, high=found.high)


def _ranks(values: Floats) -> Doubles:
    """The rank of each value as a share, equals in the middle of theirs."""
    low = np.searchsorted(np.sort(values), values, side="left")
    high = np.searchsorted(np.sort(values), values, side="right")
    found: Doubles = (low + high) / (2 * len(values))
    return found


def _told_apart(confidences: Floats, gone: Mask, seed: int) -> dict[str, EstimateRecord | None]:
    rng, probe = stream(seed, "told apart"), forgotten_probe(confidences, gone, stream(seed, "halves"))
    values = {
        "auroc_confidence": -confidences.max(axis=1).astype(np.float64),
        "auroc_entropy": entropy(confidences),
        "auroc_probe": probe,
    }
    return {
        name: None if found is None else estimate(bootstrap(auroc(found, gone), len(gone), rng))
        for name, found in values.items()
    }


def _probe_estimate(probe: Probe | None, rng: np.random.Generator) -> EstimateRecord | None:
    if probe is None:
        return None
    tested = probe.per_image[~np.isnan(probe.per_image)]
    return estimate(bootstrap(mean_of(tested), len(tested), rng))


def _lands_on(top: Ints, class_names: Sequence[str]) -> str | None:
    return class_names[int(np.bincount(top, minlength=len(class_names)).argmax())] if len(top) else None


def _worst(confidences: Floats, labels: Ints, forget: Mask, class_names: Sequence[str]) -> KeptClass | None:
    shares = np.where(forget, np.nan, per_class_accuracy(answers(confidences), labels, len(forget)))
    if np.isnan(shares).all():
        return None
    worst = int(np.nanargmin(shares))
    return KeptClass(name=class_names[worst], accuracy=float(shares[worst]))


def _one_class(
    top: Ints, c: int, flatness: Doubles, far: Doubles, class_names: Sequence[str], rng: np.random.Generator
) -> ForgottenClass:
    n, classes = len(top), len(class_names)
    return ForgottenClass(
        accuracy=estimate(bootstrap(mean_of((top == c).astype(np.float64)), n, rng)),
        entropy=estimate(bootstrap(mean_of(flatness), n, rng)),
        kl=estimate(bootstrap(mean_of(far), n, rng)),
        largest_share=estimate(bootstrap(largest_share(top, classes), n, rng)),
        lands_on=_lands_on(top, class_names),
    )


def _served(p: Floats, labels: Ints, forget: Mask, seed: int) -> Served:
    gone = forget[labels]
    true, top = labels[gone], answers(p[gone])
    sure = forgotten_probe(p, gone, stream(seed, "halves"))
    probes = {k: k_shot_probe(p[gone], true, k, stream(seed, "probe", k)) for k in SERVED_SHOTS}
    return Served(
        scores=scores(answers(p), labels, forget),
        entropy=float(entropy(p[gone]).mean()) if gone.any() else None,
        mutual_information=mutual_information(true, top, len(forget))(np.ones(len(true))) if gone.any() else None,
        auroc_probe=None if sure is None else auroc(sure, gone)(np.ones(len(gone))),
        probe={k: None if found is None else found.accuracy for k, found in probes.items()},
    )
