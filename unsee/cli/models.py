"""`unsee models`: the models that can be used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.groups import WholeHelpGroup
from unsee.cli.options import make_console, shared
from unsee.errors import ModelError

if TYPE_CHECKING:
    from unsee.cli.console import Part
    from unsee.models.check.proof import Proof


@click.group(cls=WholeHelpGroup, invoke_without_command=True)
@shared("json")
@click.pass_context
def models(context: click.Context, as_json: bool) -> None:
    """List the kinds of models that can be used, or check one."""
    from rich.table import Table

    from unsee.models.families import FAMILIES

    context.obj = as_json
    if context.invoked_subcommand is not None:
        return
    table = Table("kind", "--model", "what it is", "text tower", "tested against")
    for family in FAMILIES:
        table.add_row(family.name, family.write, family.about, family.text, family.tested)
    words = (
        "fast: computes only what reaches the answers; generic: the library's own forward. Tested on random weights in "
        "each family's own form; unsee models check NAME tests yours. CLIP's image tower with a text tower of ours: "
        "python -m training train --encoder clip-b16 builds its folder, in a checkout of this project."
    )
    make_console(as_json).show({"models": [dataclasses.asdict(family) for family in FAMILIES]}, [table, words])


@models.command("show")
@click.argument("name", metavar="NAME", type=click.Choice(["mini"]))
@shared("json")
@click.pass_context
def models_show(context: click.Context, name: str, as_json: bool) -> None:
    """Show the card of the embedded model (mini): training data, limits, licence."""
    from unsee.models.families import embedded_card

    card = embedded_card()
    make_console(as_json or context.obj).show({"mini": card}, card_parts(card))


@models.command("check")
@click.argument("name")
@click.argument("images", nargs=-1)
@click.option(
    "--against", metavar="MODEL", show_default="NAME itself", help="Copy of the model that the library loads instead."
)
@shared("json")
@click.pass_context
def models_check(
    context: click.Context, name: str, images: tuple[str, ...], against: str | None, as_json: bool
) -> None:
    """Check that a model answers here as in its own library; exit code 1 if not.

    Compares confidences on IMAGES (or on generated ones) under random contexts, plain-text prompts and long names, and
    every weight bit for bit.
    """
    from unsee.models.check.proof import prove

    found = prove(name, images, against)
    make_console(as_json or context.obj).show(found.as_dict(), proof_parts(found))
    if not found.passed:
        raise ModelError(found.verdict)


def card_parts(card: Mapping[str, Any]) -> list[Part]:
    """All that `unsee models show` prints; `--json` has every figure."""
    from rich.table import Table

    parts: list[Part] = [f"{card['name']}, version {card['version']}. {card['what']}"]
    parts += [f"{part.replace('_', ' ')}: {card[part]}" for part in ("image_tower", "text_tower")]
    trained = Table("trained on", "as", "terms")
    for source in card["trained_on"]:
        trained.add_row(source["what"], source["use"], source["terms"])
    parts += [trained, "Not trained on: " + "; ".join(card["held_out"]), f"Designed texts: {card['designed']}"]
    parts += [f"Can name: {card['can_name']}", "Cannot:", *(f"- {text}" for text in card["cannot"])]
    tested = card["measured"]["test"]
    accuracy = Table("accuracy, %", '"a photo of a …"', "24 templates", "word salad", "random contexts: mean (range)")
    for name, found in tested.items():
        if "templates" in found:
            drawn = found["random contexts"]
            accuracy.add_row(
                name,
                str(found["templates"]["a photo of a {}."]),
                *(_range(list(found[kind].values())) for kind in ("templates", "word salad")),
                f"{drawn['mean']} ({drawn['lowest']}–{drawn['highest']})",
            )
    retrieved = {key: value for key, value in tested["Flickr8k test"].items() if key != "photos"}
    parts += [accuracy, "Flickr8k test: " + ", ".join(f"{key} {value}" for key, value in retrieved.items())]
    return [*parts, *(f"Licence of {what}: {terms}" for what, terms in card["licences"].items())]


def _range(values: list[float]) -> str:
    return f"{min(values)}–{max(values)}"


def proof_parts(proof: Proof) -> list[Part]:
    """All that `unsee models check` prints."""
    from rich.table import Table

    table = Table("compared", "largest difference")
    for what, difference in proof.differences.items():
        table.add_row(what, f"{difference:.1e}")
    same = proof.weights - len(proof.changed)
    table.add_row("weights", f"{same} of {proof.weights} tensors are the same to the last bit")
    return [
        f"{proof.model}, {proof.images} images, against {proof.reference}",
        table,
        f"a candidate takes {1000 * proof.seconds:.1f} ms, {1000 * proof.seconds_library:.1f} ms by the library's "
        f"batched call: {proof.ratio:.1f} times as fast\nfingerprint {proof.fingerprint}",
    ]
