"""The worst case over attacks: forgotten images that any of several attackers recovers.

An attack is allowed a stated number of questions per image and of labelled images per class. What any of many attacks
recovers rises by chance alone, so the same is computed with the class labels shuffled among the forgotten images;
probes are trained on the shuffled labels, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from unsee.answers.intervals import share_of
from unsee.answers.metrics import top_classes
from unsee.audit.asking import AskedAgain, Renamed
from unsee.audit.attack_records import Attack, WorstCase
from unsee.audit.case import Case
from unsee.audit.cells import show_share, show_value
from unsee.audit.evidence import MARGIN, compare_with, how_many_more, make_finding, worst_of
from unsee.audit.part import Part
from unsee.audit.probes import PROTOTYPE_SHOTS, SHOTS, Fit, Prototypes, guess_each
from unsee.audit.record import AuditRecord, estimate
from unsee.runs.records import Finding
from unsee.seeds import stream
from unsee.text_table import TextTable, percent
from unsee.types import Floats, Ints, Mask

SHUFFLES = 20
Hits = Callable[[Ints, np.random.Generator], Mask]  # labels (n,) -> which images are recovered (n,)


@dataclass(frozen=True, eq=False)
class Attacker:
    """A way to recover classes, and what it costs."""

    hits: Hits
    questions: int  # per image
    labelled: int  # images per class
    budget: str


def by_answers(top: Sequence[Ints], budget: str) -> Attacker:
    """Recovers an image if one of these answers is its class. top: one answer per image each, -1 for none."""
    stacked = np.stack(list(top))
    return Attacker(lambda labels, rng: (stacked == labels).any(axis=0), len(stacked), 0, budget)


def by_probe(confidences: Floats, shots: int, kind: str, fit: Fit | None = None) -> Attacker:
    """Recovers an image if a probe that was not shown it recovers its class from its usual answer."""

    def hits(labels: Ints, rng: np.random.Generator) -> Mask:
        guessed = guess_each(confidences, labels, shots, rng, fit)
        return np.zeros(len(labels), dtype=np.bool_) if guessed is None else guessed == labels

    return Attacker(hits, 1, shots, f"{kind}, {shots} labelled per class")


def make_attackers(asked: AskedAgain, forget: Mask, class_names: Sequence[str]) -> dict[str, Attacker]:
    """All attackers of the forgotten images that these answers allow."""
    gone = np.flatnonzero(forget[asked.labels])
    plain, labels = asked.after[gone], asked.labels[gone]
    questions = {
        "asked as usual": ([top_classes(asked.after)], "the answer as it is"),
        "views": ([each.after for each in asked.pictures], f"{len(asked.pictures)} changed images"),
        "other names": (
            [_under_other_names(each, class_names) for each in asked.renamed],
            f"{len(asked.renamed)} label lists with other names",
        ),
        "templates": ([each.after for each in asked.templates], f"{len(asked.templates)} other templates"),
    }
    found = {name: by_answers([each[gone] for each in top], words) for name, (top, words) in questions.items() if top}
    present, counts = np.unique(labels, return_counts=True)
    kinds: tuple[tuple[str, tuple[int, ...], Fit | None], ...]
    kinds = ("logistic probe", SHOTS, None), ("prototype probe", PROTOTYPE_SHOTS, Prototypes)
    for kind, shots, fit in kinds if len(present) > 1 else ():
        for k in (k for k in shots if counts.min() >= 2 * k):
            found[f"{k}-shot {kind}"] = by_probe(plain, k, kind, fit)
    return found


def worst_case(
    attackers: dict[str, Attacker], labels: Ints, classes: int, seed: int, shuffles: int = SHUFFLES
) -> WorstCase | None:
    """The share that each attack recovers, that any does, and both by chance; None without images.

    labels (n,) of the forgotten images. Labels of one class alone cannot be shuffled: then chance is that of guessing
    among all classes, once with each question.
    """
    if len(labels) == 0:
        return None
    probes = np.array([each.labelled > 0 for each in attackers.values()])
    budgets, rng = _budgets(attackers.values()), stream(seed, "shuffled labels")
    chance, times = [1 - (1 - 1 / classes) ** questions for questions, _, _ in budgets], 0
    if len(np.unique(labels)) > 1:
        shuffled = [_all_hits(attackers, rng.permutation(labels), seed, 1 + i) for i in range(shuffles)]
        chance, times = np.mean([_joined(hits, probes).mean(axis=1) for hits in shuffled], axis=0).tolist(), shuffles
    found = _joined(_all_hits(attackers, labels, seed, 0), probes)
    *alone, without_labels, everything = [_record(*each) for each in zip(found, chance, budgets, strict=True)]
    return WorstCase(
        images=len(labels),
        any=everything,
        without_labels=without_labels,
        attacks=dict(zip(attackers, alone, strict=True)),
        shuffles=times,
    )


def _all_hits(attackers: dict[str, Attacker], labels: Ints, seed: int, number: int) -> Mask:
    """Which images each attack recovers if these were their labels. -> (attacks, n)."""
    return np.stack([each.hits(labels, stream(seed, f"attack {name}", number)) for name, each in attackers.items()])


def _joined(hits: Mask, probes: Mask) -> Mask:
    """These, and below them which images any attack without labels recovers, and any at all. -> (attacks + 2, n)."""
    return np.vstack([hits, hits[~probes].any(axis=0), hits.any(axis=0)])


def _record(hits: Mask, by_chance: float, budget: tuple[int, int, str]) -> Attack:
    above = None if by_chance >= 1 else float((hits.mean() - by_chance) / (1 - by_chance))
    questions, labelled, words = budget
    return Attack(
        share=estimate(share_of(hits)),
        by_chance=by_chance,
        above_chance=above,
        questions=questions,
        labelled=labelled,
        budget=words,
    )


def _budgets(attackers: Collection[Attacker]) -> list[tuple[int, int, str]]:
    """Questions per image, labelled images per class, both in words: of each attack, of all without labels, of all."""
    probes = [each.labelled for each in attackers if each.labelled]
    questions = sum(each.questions for each in attackers) - len(probes)  # these judge what was asked for anyway
    words = f"{questions} questions per image"
    more = f", {len(probes)} probes with at most {max(probes)} labelled per class" if probes else ""
    both = (questions, 0, words), (questions, max(probes, default=0), words + more)
    return [*((each.questions, each.labelled, each.budget) for each in attackers), *both]


def _under_other_names(asked: Renamed, class_names: Sequence[str]) -> Ints:
    """The top answers that are other names; -1 where a class was answered by its own."""
    other = np.array([name in asked.names for name in class_names])
    return np.where(other[asked.after], asked.after, -1)


def _measure(case: Case) -> WorstCase | None:
    asked, subject = case.asked, case.subject
    gone, names = asked.labels[subject.forget[asked.labels]], subject.data.class_names
    return worst_case(make_attackers(asked, subject.forget, names), gone, len(names), subject.seed)


def _table(found: AuditRecord) -> list[TextTable]:
    """Each attack alone, and all together."""
    worst = found.worst_case
    if worst is None:
        return []
    rows = [
        (name, show_share(attack.share), percent(attack.by_chance), show_value(attack.above_chance), attack.budget)
        for name, attack in (*worst.attacks.items(), *_joined_attacks(worst).items())
    ]
    header = f"attack on {worst.images} forgotten images", "recovered", "by chance", "above chance", "allowed"
    return [TextTable(header, rows)]


def _findings(found: AuditRecord) -> list[Finding]:
    """Whether some attack recovers more than chance does: all together, and each alone."""
    worst = found.worst_case
    if worst is None or worst.any.share is None:
        return []
    shares = [
        (attack.share, attack.by_chance + MARGIN)
        for attack in (worst.any, worst.without_labels, *worst.attacks.values())
        if attack.share is not None
    ]
    mark = worst_of([compare_with(ceiling, share) for share, ceiling in shares])
    share, ceiling = next(each for each in shares if compare_with(each[1], each[0]) == mark)
    words = {
        "ok": f"{len(worst.attacks)} attacks together recover no more forgotten images than chance",
        "leak": f"some of {len(worst.attacks)} attacks recover forgotten images",
        "unclear": f"too few images to tell whether {len(worst.attacks)} attacks recover more than chance",
    }
    best, most = max(worst.attacks.items(), key=lambda item: item[1].above_chance or 0.0)
    shown = {**_joined_attacks(worst), f"most alone: {best}": most}
    evidence = "; ".join(f"{name} {_against_chance(attack)}" for name, attack in shown.items())
    more = how_many_more(mark, share, ceiling, worst.images)
    return [make_finding(mark, words[mark], f"{evidence}; {worst.any.budget}{more}")]


def _joined_attacks(worst: WorstCase) -> dict[str, Attack]:
    return {"any without labelled images": worst.without_labels, "any of all": worst.any}


def _against_chance(attack: Attack) -> str:
    return f"{show_share(attack.share, 0)}, by chance {percent(attack.by_chance, 0)}"


ATTACKS = Part(_measure, _table, _findings, field="worst_case")
