"""Scores as tables: of a finished run, of an evaluation."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from unsee.data.class_names import listed
from unsee.methods.registry import METHODS
from unsee.types import Scores

if TYPE_CHECKING:
    from unsee.answers.evaluation import ServedScores
    from unsee.runs.records import ResultRecord

Rows = Sequence[tuple[str, Scores | None]]


def scores_table(rows: Rows) -> Table:
    """Each line that there are scores for, in percent."""
    table = Table("", "H", "Err_for", "Acc_mem")
    for name, scores in rows:
        if scores is not None:
            table.add_row(name, *(f"{100 * value:.2f}" for value in (scores.h, scores.err_for, scores.acc_mem)))
    return table


def served_row(found: ServedScores | None, alone: Scores) -> tuple[str, Scores]:
    """The line of what a caller sees: without a rule, what the prompt alone answers."""
    return ("as served (as-is)", alone) if found is None else (f"as served ({found.rule})", found.scores)


def result_parts(result: ResultRecord, run: Path, images: int) -> list[str | Table]:
    """What a run ends with: its scores, cost and files."""
    rows = [("zero-shot", result.zero_shot), ("label mask", result.label_mask)]
    rows.append((f"tuned ({result.method})", result.test))
    if METHODS[result.method].tunes_prompt:
        rows.append(served_row(result.served, result.test))
    ledger, folder = result.ledger, shlex.quote(str(run))
    return [
        f"{result.data}: forgetting {listed(result.forget)} ({images} test images, {result.model})",
        scores_table(rows),
        *_below_plain(result),
        *(f"warning: {warning}" for warning in result.warnings),
        f"{ledger.candidates} candidates, {ledger.image_queries} image queries, {result.seconds['tuning']:.1f} s\n"
        f"run: {run}\npicture: {run / 'picture.png'}\n"
        f"next: unsee audit {folder} (what do the answers still leak?), unsee report {folder}",
    ]


def _below_plain(result: ResultRecord) -> list[str]:
    """A line if tuning made H worse than that of the plain prompt."""
    plain, alone = result.zero_shot, result.test.h
    if plain is None or alone >= plain.h or METHODS[result.method].untuned:
        return []
    words = f"below the plain prompt: H {100 * alone:.2f} prompt alone, {100 * plain.h:.2f} plain prompt"
    return [f"{words}; more --iterations or --shots may help"]
