"""Attacks and damage as tables: the worst case, classes near the forgotten ones, undoing a prompt."""

from __future__ import annotations

from rich.table import Table

from unsee.audit.attack_records import Change, Fragility, NearDamage, Rebuilt, Undone, WorstCase
from unsee.audit.cells import cell, number, percent, points, rule_name
from unsee.audit.record import AuditRecord


def attack_parts(found: AuditRecord) -> list[Table]:
    """All tables of this file that the audit has figures for."""
    tables = [] if found.worst_case is None else [worst_case_table(found.worst_case)]
    tables.append(damage_table(found.near_kept, found.near_others, found.fragility))
    return tables if found.rebuilt is None else [*tables, rebuilt_table(found.rebuilt, found.serve)]


def worst_case_table(found: WorstCase) -> Table:
    """Each attack alone, and all together."""
    table = Table(f"attack on {found.images} forgotten images", "recovered", "by chance", "above chance", "allowed")
    joined = ("any without labelled images", found.without_labels), ("any of all", found.any)
    for name, attack in (*found.attacks.items(), *joined):
        table.add_row(name, cell(attack.share), percent(attack.by_chance), number(attack.above_chance), attack.budget)
    return table


def damage_table(kept: NearDamage | None, siblings: NearDamage | None, fragile: Fragility | None) -> Table:
    """Accuracy near the forgotten classes and far from them, and how easily kept classes are lost anyway."""
    table = Table("classes that were to stay", "images", "before", "as served")
    for where, found in (("kept", kept), ("other data", siblings)):
        if found is not None:
            near = ", ".join(dict.fromkeys(found.nearest.values()))
            _change(table, f"{where}, nearest to the forgotten: {near}", found.near)
            _change(table, f"{where}, the others", found.far)
            table.add_row("  lost near minus lost far, points", "", "", points(found.difference))
    if fragile is not None:
        images = f"{fragile.images_before}, {fragile.images_after}"
        name = f"kept, recognised, turned wrong by one of {fragile.views} views"
        table.add_row(name, images, cell(fragile.before), cell(fragile.after))
    return table


def rebuilt_table(found: Rebuilt, served: str) -> Table:
    """What a client rebuilds and undoes under each serving rule."""
    most = max(max(each.rank) for each in found.rules.values())
    width = "" if found.feature_rank is None else f" (features {found.feature_rank})"
    table = Table("undone, served as", f"rank{width}", "features, R²", "accuracy, 1 list", f"{most} lists")
    table.add_column("enough, plain answers known")
    table.add_column("labels known")
    table.caption = (
        f"{found.images} forgotten images, accuracy before {percent(found.accuracy_before)}; enough: label lists × "
        "reference images that give back 90 % of it"
    )
    for name, each in found.rules.items():
        table.add_row(
            rule_name(name, served),
            str(each.rank[most]),
            number(each.explained[most]),
            percent(_best(each.from_answers, 1)),
            percent(_best(each.from_answers, most)),
            _enough(each.from_answers),
            _enough(each.from_labels),
        )
    return table


def _change(table: Table, name: str, found: Change) -> None:
    table.add_row(name, str(found.images), cell(found.before), cell(found.after))


def _best(found: Undone, lists: int) -> float | None:
    """Accuracy with the most reference images."""
    by_images = found.accuracy[lists]
    return by_images[max(by_images)] if by_images else None


def _enough(found: Undone) -> str:
    return "–" if found.lists is None else f"{found.lists} × {found.images}"
