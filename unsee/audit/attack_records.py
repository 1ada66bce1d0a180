"""Parts of `audit.json` on attacks and damage: joined attacks, undoing a prompt, classes near the forgotten ones."""

from __future__ import annotations

from unsee.runs.records import EstimateRecord, Record


class Attack(Record):
    """Forgotten images that an attack recovers."""

    share: EstimateRecord | None
    by_chance: float  # the mean share with class labels shuffled among these images
    above_chance: float | None  # where the share lies between chance (0) and all images (1); below 0 under chance
    questions: int  # answers asked for per image
    labelled: int  # images with a label that the attacker has per class
    budget: str  # both in words


class WorstCase(Record):
    """Forgotten images that any of the attacks recovers, beside each attack alone."""

    images: int
    any: Attack
    without_labels: Attack  # any of those that need no labelled images: chance is lower
    attacks: dict[str, Attack]
    shuffles: int  # of the labels, that chance is a mean over; 0 for one class, where chance is guessing


class Change(Record):
    """Accuracy before and after on some classes."""

    classes: int
    images: int
    before: EstimateRecord | None
    after: EstimateRecord | None


class NearDamage(Record):
    """Accuracy on the classes nearest to the forgotten ones, and on the others."""

    nearest: dict[str, str]  # forgotten class -> the nearest class that was not to be forgotten
    near: Change
    far: Change
    difference: EstimateRecord | None  # accuracy lost near minus accuracy lost far; null if there is no far class


class Fragility(Record):
    """Kept images recognised without change that some view turns wrong: a control for attacks by views."""

    views: int
    images_before: int  # recognised without change, under the plain prompt
    before: EstimateRecord | None
    images_after: int
    after: EstimateRecord | None
    difference: EstimateRecord | None  # after minus before, of images recognised without change both times


class Undone(Record):
    """Accuracy on forgotten test images of a map from served answers to what the plain prompt would answer."""

    accuracy: dict[int, dict[int, float]]  # by label lists, then by reference images
    lists: int | None  # with the fewest questions (lists times images) that give back 90 % of the old accuracy
    images: int | None


class RebuiltRule(Record):
    """What can be rebuilt from answers under one serving rule."""

    rank: dict[int, int]  # by label lists: dimensions that hold 99.9 % of the answers' variance
    explained: dict[int, float | None]  # held-out R² of the image features; null for a model elsewhere
    from_answers: Undone  # the client has the plain prompt's answers to its reference images
    from_labels: Undone  # it has their labels alone


class Rebuilt(Record):
    """Image features rebuilt from answers under chosen label lists, and the prompt undone."""

    names: int  # per label list; the first list is the data's own
    images: int  # forgotten test images
    accuracy_before: float
    feature_rank: int | None  # the same measure of the features themselves
    feature_width: int | None
    rules: dict[str, RebuiltRule]
