"""A Markdown table of judged models: one row for each `*-judged.json` in a work folder."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

HEADER = (
    "| model | scale | CIFAR-10: accuracy | salad | random contexts: recall, scatter | CoOp | subspace "
    "| CIFAR-100: accuracy | salad | random contexts | CoOp | subspace | Flickr8k dev R@1, R@10 (caption to photo) |"
)


def summary(work: Path) -> str:
    """The table."""
    rows = [HEADER, "|" + "---|" * 13]
    for path in sorted(work.glob("*-judged.json")):
        found = json.loads(path.read_text())
        cells = [path.name.removesuffix("-judged.json"), f"{found['logit scale']:.0f}"]
        for name in ("cifar10", "cifar100"):
            cells += _cells(found[name])
        dev = found.get("flickr8k dev")  # other encoders are judged on other captions
        cells.append(f"{dev['caption to photo R@1']}, {dev['caption to photo R@10']}" if dev else "–")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _cells(found: dict[str, Any]) -> list[str]:
    return [
        f"{found['accuracy']:.1f}",
        f"{mean(found['salad']):.0f}",
        f"{found['recall']:.0f}, {found['scatter']:.0f}",
        ", ".join(f"{h:.1f}" for h, _, _ in found["coop"]),
        ", ".join(f"{h:.1f}" for h, _, _ in found["subspace"]),
    ]
