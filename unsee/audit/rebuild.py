"""Can a caller rebuild image features from confidences, and undo the prompt?

Confidences with all their digits are, after logs, a linear map of the image's features, another one for each list of
names. The client here is a caller of a service with a mandatory prompt: it chooses label lists, but neither the
contexts nor the rule. It has reference images for which it knows what the plain prompt answered, or their labels
alone, fits a linear map from the served answers to these, and uses it on images of forgotten classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, product

import numpy as np

from unsee.answers.intervals import wilson
from unsee.answers.metrics import near_chance, top_classes
from unsee.answers.rules import Apply, rules_for_prompts
from unsee.audit.attack_records import Rebuilt, RebuiltRule, Undone
from unsee.audit.cells import rule_name, show_share, show_value
from unsee.audit.evidence import ENOUGH, MARGIN, compare_with, how_many_more, make_finding
from unsee.audit.part import Part
from unsee.audit.probes import FLOOR
from unsee.audit.record import AuditRecord
from unsee.audit.ridge import Kernels, effective_rank, explained, kernels, ridge
from unsee.audit.subject import Subject
from unsee.data.class_names import plain
from unsee.data.images import Images
from unsee.data.other_names import DISTRACTORS, OtherNames
from unsee.data.paper_names import CIFAR10, CIFAR100, IMAGENET30
from unsee.errors import InputError
from unsee.models.black_box import BoundImages, rebind
from unsee.runs.records import EstimateRecord, Finding
from unsee.seeds import stream
from unsee.text_table import TextTable, percent
from unsee.types import Doubles, Floats, Ints, Mask

LIST_COUNTS = (1, 2, 4, 8, 16)
REFERENCE_IMAGES = (20, 80, 320)


@dataclass(frozen=True, eq=False)
class LabelListClient:
    """All that a caller has, and what it is to find out. n reference images, t forgotten ones, C classes."""

    asked: list[tuple[Floats, Floats]]  # answers before any rule, list by list: (n, names) and (t, names)
    listed: list[Mask]  # which names of each list are on a rule's list
    plain: Floats  # what the plain prompt answers to the reference images, (n, C)
    labels: Ints  # theirs, (n,)
    true: Ints  # those of the forgotten images, (t,)
    old: float  # accuracy on these before
    features: tuple[Doubles, Doubles] | None = None  # of both, for a model in this process: (n, E) and (t, E)


def rebuild(subject: Subject, images: Images, other_names: OtherNames) -> Rebuilt:
    """What a client gets back on the forgotten ones of these images, under each serving rule."""
    client, features = _client(subject, images, draw_lists(subject, other_names)), None
    if client.features is not None:
        features = client.features[0]
    return Rebuilt(
        names=len(client.listed[-1]),
        images=len(client.true),
        accuracy_before=client.old,
        feature_rank=None if features is None else effective_rank(features),
        feature_width=None if features is None else features.shape[1],
        rules={name: undo(client, rule) for name, rule in rules_for_prompts().items()},
    )


def undo(client: LabelListClient, rule: Apply) -> RebuiltRule:
    """What the client rebuilds where answers pass through this rule."""
    seen = _served(client, rule)
    by_lists: dict[int, Kernels] = dict(enumerate(accumulate(kernels(*each) for each in seen), 1))
    counts = [p for p in LIST_COUNTS if p <= len(seen)]
    targets = log_shares(client.plain), np.eye(client.plain.shape[1])[client.labels]
    found: tuple[dict[int, dict[int, float]], ...] = ({p: {} for p in counts}, {p: {} for p in counts})
    for lists, n in product(counts, (n for n in REFERENCE_IMAGES if n <= len(client.labels))):
        predicted = ridge(by_lists[lists].first(n), *(target[:n] for target in targets))
        for side, guess in zip(found, predicted, strict=True):
            side[lists][n] = float((guess.argmax(axis=1) == client.true).mean())
    return RebuiltRule(
        rank={p: effective_rank(np.concatenate([known for known, _ in seen[:p]], axis=1)) for p in counts},
        explained={p: _explained(by_lists[p], client.features) for p in counts},
        from_answers=_undone(found[0], client),
        from_labels=_undone(found[1], client),
    )


def draw_lists(subject: Subject, other_names: OtherNames, count: int = max(LIST_COUNTS) - 1) -> list[tuple[str, ...]]:
    """Label lists of everyday nouns, as long as the data's own, without a name of a forgotten class.

    A noun comes up again only once all have been used.
    """
    gone = {plain(name).lower() for name in subject.task.forgotten}
    gone |= {plain(other).lower() for name in subject.task.forgotten for other in other_names.get(name, ())}
    every = dict.fromkeys(name for name in (*CIFAR10, *CIFAR100, *IMAGENET30, *DISTRACTORS) if " " not in name)
    nouns = np.array([name for name in every if name not in gone])
    rng, size = stream(subject.seed, "label lists"), min(len(subject.forget), len(nouns))
    found: list[tuple[str, ...]] = []
    while len(found) < count:
        drawn = rng.permutation(nouns)
        found += [tuple(drawn[i : i + size].tolist()) for i in range(0, len(drawn) - size + 1, size)]
    return found[:count]


def log_shares(confidences: Floats, floor: float = FLOOR) -> Doubles:
    """Logs of confidences without what all names of an image have in common, which a softmax does not show. (n, C)."""
    logs = np.log(np.maximum(confidences.astype(np.float64), floor))
    found: Doubles = logs - logs.mean(axis=1, keepdims=True)
    return found


def _client(subject: Subject, images: Images, lists: list[tuple[str, ...]]) -> LabelListClient:
    """The client's answers to its own images and to the forgotten ones of these: its own label list first."""
    if not subject.takes_names:
        raise InputError(f"{subject.fixed} is fixed to the names it was made for")
    known, gone = _reference(subject), images.subset(np.flatnonzero(subject.forget[images.labels]))
    if len(gone) == 0:
        raise InputError("there is no test image of a forgotten class")
    both = subject.bind(known), subject.bind(gone)
    plain_known, plain_gone = (subject.before(each) for each in both)
    if plain_known is None or plain_gone is None:
        raise InputError("undoing is measured against the plain prompt's accuracy, and this model answers none")
    asked, none = [(subject.unserved(both[0]), subject.unserved(both[1]))], [None] * len(subject.forget)
    for names in lists:
        first, second = (subject.unserved_renamed(rebind(subject.model, each, names), none) for each in both)
        asked.append((first, second))
    return LabelListClient(
        asked=asked,
        listed=[subject.forget, *(np.zeros(len(names), dtype=np.bool_) for names in lists)],
        plain=plain_known,
        labels=known.labels,
        true=gone.labels,
        old=float((top_classes(plain_gone) == gone.labels).mean()),
        features=_features(*both),
    )


def _reference(subject: Subject) -> Images:
    """The client's own images: training images of any class, in an order drawn by the seed."""
    train = subject.data.train
    rows = np.flatnonzero(train.labels >= 0)
    drawn = stream(subject.seed, "reference").permutation(rows)[: max(REFERENCE_IMAGES)]
    images = subject.usable(train.subset(drawn))
    if len(images) < REFERENCE_IMAGES[0]:
        raise InputError(f"undoing needs {REFERENCE_IMAGES[0]} training images; there are {len(images)}")
    return images


def _features(known: BoundImages, gone: BoundImages) -> tuple[Doubles, Doubles] | None:
    """Image features of a model in this process."""
    from unsee.models.local import LocalBound

    if not (isinstance(known.bound, LocalBound) and isinstance(gone.bound, LocalBound)):
        return None
    first, second = (bound.features.cpu().numpy().astype(np.float64) for bound in (known.bound, gone.bound))
    return first, second


def _served(client: LabelListClient, rule: Apply) -> list[tuple[Doubles, Doubles]]:
    """What the client makes of each list's answers under a rule: logs of shares.

    A share of 0 counts as half the smallest one that the rule ever leaves: how far below it was is not served, and two
    digits floored at FLOOR would hide more from the client than they do.
    """
    streams = [stream(0, f"serve {part}") for part in ("known", "gone")]
    seen = [
        (rule(known, listed, streams[0]), rule(gone, listed, streams[1]))
        for (known, gone), listed in zip(client.asked, client.listed, strict=True)
    ]
    floor = max(FLOOR, min(float(known[known > 0].min()) for known, _ in seen) / 2)
    return [(log_shares(known, floor), log_shares(gone, floor)) for known, gone in seen]


def _explained(given: Kernels, features: tuple[Doubles, Doubles] | None) -> float | None:
    return None if features is None else explained(ridge(given, features[0])[0], features[1])


def _undone(accuracy: dict[int, dict[int, float]], client: LabelListClient) -> Undone:
    """With the fewest questions that are enough; none are where the plain prompt could be guessing."""
    guessing = near_chance(client.old, client.plain.shape[1], len(client.true))
    pairs = [(lists, n, share) for lists, by_images in accuracy.items() for n, share in by_images.items()]
    enough = [(lists * n, n, lists) for lists, n, share in pairs if share >= ENOUGH * client.old and not guessing]
    _, images, lists = min(enough) if enough else (None, None, None)
    return Undone(accuracy=accuracy, lists=lists, images=images)


def _table(found: AuditRecord) -> list[TextTable]:
    """What a client rebuilds and undoes under each rule."""
    rebuilt = found.rebuilt
    if rebuilt is None:
        return []
    most = max(max(each.rank) for each in rebuilt.rules.values())
    width = "" if rebuilt.feature_rank is None else f" (features {rebuilt.feature_rank})"
    header = ("undone under rule", f"rank{width}", "features, R²", "accuracy, 1 list", f"{most} lists")
    rows = [
        (
            rule_name(name, found.serve),
            str(each.rank[most]),
            show_value(each.explained[most]),
            percent(_best(each.from_answers, 1)),
            percent(_best(each.from_answers, most)),
            _enough(each.from_answers),
            _enough(each.from_labels),
        )
        for name, each in rebuilt.rules.items()
    ]
    note = (
        f"{rebuilt.images} forgotten images, accuracy before {percent(rebuilt.accuracy_before)}; enough: label lists × "
        "reference images that give back 90 % of it"
    )
    return [TextTable((*header, "enough, plain answers known", "labels known"), rows, notes=[note])]


def _findings(found: AuditRecord) -> list[Finding]:
    """Whether a caller who chooses label lists undoes the prompt, under the rule that it carries."""
    rebuilt = found.rebuilt
    if rebuilt is None or found.serve not in rebuilt.rules:
        return []
    undone = rebuilt.rules[found.serve].from_answers
    lists = max(undone.accuracy)
    images = max(undone.accuracy[lists])
    back, ceiling = wilson(undone.accuracy[lists][images], rebuilt.images), found.chance + MARGIN
    share = EstimateRecord(value=back.value, low=back.low, high=back.high)
    mark = compare_with(ceiling, share)
    words = {
        "ok": "a caller who chooses label lists does not undo the forgetting",
        "leak": "a caller who chooses label lists undoes the forgetting"
        + ("" if undone.lists is not None else " in part"),
        "unclear": "too few images to tell whether a caller who chooses label lists undoes the forgetting",
    }
    known = f"{lists} lists and {images} images whose plain answers are known"
    enough = "" if undone.lists is None else f"; {undone.lists} lists and {undone.images} images give 90 % of it back"
    more = how_many_more(mark, share, ceiling, rebuilt.images)
    old = f"{percent(rebuilt.accuracy_before, 0)} before"
    evidence = f"accuracy as served {show_share(share, 0)} from {known}, {old}{enough}{more}"
    return [make_finding(mark, words[mark], evidence)]


def _best(found: Undone, lists: int) -> float | None:
    """Accuracy with the most reference images."""
    by_images = found.accuracy[lists]
    return by_images[max(by_images)] if by_images else None


def _enough(found: Undone) -> str:
    return "–" if found.lists is None else f"{found.lists} × {found.images}"


UNDOING = Part(lambda case: rebuild(case.subject, case.few, case.other_names), _table, _findings, field="rebuilt")
