"""Models as tables: the card of the embedded one; a model beside its own library, answers compared, and speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from unsee.models.check.proof import Proof


def card_parts(card: Mapping[str, Any]) -> list[str | Table]:
    """All that `unsee models show` prints; `--json` has every figure."""
    parts: list[str | Table] = [f"{card['name']}, version {card['version']}. {card['what']}"]
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


def proof_parts(proof: Proof) -> list[str | Table]:
    """All that `unsee models check` prints."""
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


def family_parts(found: Mapping[str, Any]) -> list[str | Table]:
    """All that `unsee bench --family` prints."""
    table = Table("C", "m", "candidates", "ours, s", "library, s", "ratio", "bound", "share of bound", "difference")
    for row in found["settings"]:
        table.add_row(
            *(str(row[key]) for key in ("classes", "contexts", "candidates")),
            *(f"{row[key]:.3f}" for key in ("seconds", "seconds_library")),
            *(f"{row[key]:.3f}" for key in ("ratio", "bound")),
            f"{100 * row['share_of_bound']:.0f} %",
            f"{row['largest_difference']:.1e}",
        )
    return [
        f"{found['family']}, {found['model']}, {found['threads']} threads; CPU seconds of one candidate",
        table,
        "library: its batched call on the same prompts and weights, image features encoded before.\n"
        "bound: multiply-adds of that call over those left after every cut that changes no number.",
    ]
