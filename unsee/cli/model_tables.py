"""A model beside its own library, as tables: answers compared, and speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from unsee.models.proof import Proof


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
