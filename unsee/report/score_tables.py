"""Tables of finished runs: scores side by side, one line per run, one line per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from unsee.methods.registry import REFERENCE
from unsee.report.paired import difference_over_seeds
from unsee.report.summary import MethodSummary, SeedGroup, summarize_scores, task_words
from unsee.text_table import TextTable, percent, points


def scores_table(groups: Sequence[SeedGroup], title: str = "") -> TextTable:
    """H, Err_for and Acc_mem in points, prompt alone and as served, beside zero-shot and label mask."""
    pairs = [f"{score} {way}" for score in ("H", "Err_for", "Acc_mem") for way in ("prompt alone", "as served")]
    header = ("", *pairs, "rule as served", "sees of the model", "runs", "candidates", "tuning, s")
    return TextTable(header, [_score_cells(*named) for named in _rows(groups, short=True)], title, _notes(groups))


def _notes(groups: Sequence[SeedGroup]) -> list[str]:
    """What ± means, and how each group of several seeds differs from LCS's on the same task, seed by seed."""
    notes = ["± is the standard deviation over seeds (n − 1)"] if any(len(g.runs) > 1 for g in groups) else []
    for group in groups:
        first = next((g for g in groups if g.summary.method == REFERENCE and g.first.task == group.first.task), group)
        mine, theirs = ({run.result.seed: 100 * run.result.test.h for run in g.runs} for g in (group, first))
        shared = [seed for seed in mine if seed in theirs]
        if first is not group and len(shared) > 1:
            pair = ([values[seed] for seed in shared] for values in (mine, theirs))
            apart = difference_over_seeds(first.label, *pair)
            notes.append(f"{group.label}: H prompt alone {apart} to {apart.to}, paired over {apart.seeds} seeds, 95 %")
    return notes


def _rows(groups: Sequence[SeedGroup], short: bool = False) -> list[tuple[str, MethodSummary]]:
    """Each task's untuned rows, unless they were run as methods, then its groups."""
    firsts, rows = [g.first for g in groups], []
    for task in dict.fromkeys(run.task for run in firsts):
        own = [g for g in groups if g.first.task == task]
        for method, key in (("zero-shot", "zero_shot"), ("label-mask", "label_mask")):
            found = [scores for run in own[0].runs if (scores := getattr(run.result, key)) is not None]
            if found and method not in {g.summary.method for g in own}:
                words = [method, *task_words(own[0].first, firsts)]
                rows.append((", ".join(words), summarize_scores(method, found)))
        rows += [(g.label if short else g.name, g.summary) for g in own]
    return rows


def _score_cells(name: str, row: MethodSummary) -> list[str]:
    sides, cells = (row, row.served), [name]
    for key in ("h", "err_for", "acc_mem"):
        cells += ["–" if s is None else points(getattr(s, key), getattr(s, f"{key}_std"), row.seeds) for s in sides]
    rule = "–" if row.served is None else row.served.rule
    return [*cells, rule, row.access, str(row.seeds), str(row.candidates), f"{row.seconds:.0f}"]


def scores_data(groups: Sequence[SeedGroup]) -> TextTable:
    """The same for programs: fractions, all digits, mean and spread apart."""
    rows = [(name, _flat(row)) for name, row in _rows(groups)]
    header = list(dict.fromkeys(key for _, row in rows for key in row))
    return TextTable(("name", *header), [[name, *(row.get(key, "") for key in header)] for name, row in rows])


def _flat(row: MethodSummary) -> dict[str, str]:
    own = {key: str(value) for key, value in row.as_dict().items() if key not in ("served", "by_seed")}
    served = {} if row.served is None else asdict(row.served)
    return own | {f"{key}_served": str(value) for key, value in served.items()}


def runs_table(groups: Sequence[SeedGroup], title: str = "") -> TextTable:
    """One line per run: its folder, what it scored, in percent, and what it cost."""
    header = ("run", "group", "seed", "H prompt alone", "H as served", "validation H", "candidates", "tuning, s")
    rows = []
    for g, run in [(group, run) for group in groups for run in group.runs]:
        r = run.result
        served = (r.test if r.served is None else r.served.scores) if g.tunes_prompt else None
        percents = [percent(h, 2, "") for h in (r.test.h, None if served is None else served.h, r.valid.h)]
        costs = [str(r.ledger.candidates), f"{r.seconds['tuning']:.1f}"]
        rows.append([str(run.folder), g.name, str(r.seed), *percents, *costs])
    return TextTable(header, rows, title)


def runs_data(groups: Sequence[SeedGroup]) -> TextTable:
    """The same for programs: all that is one number or one word in a run's result, fractions with all digits."""
    flat = []
    for run in (run for g in groups for run in g.runs):
        cells: dict[str, str] = {"run": str(run.folder)}
        for name, value in run.result.model_dump(mode="json").items():
            if name not in ("per_class", "forget", "warnings", "audit"):
                inner = value if isinstance(value, dict) else {"": value}
                cells |= {f"{name}.{key}".rstrip("."): str(entry) for key, entry in inner.items()}
        flat.append(cells | {"forget": ", ".join(run.result.forget), "warnings": " ".join(run.result.warnings)})
    header = list(dict.fromkeys(name for cells in flat for name in cells))
    return TextTable(header, [[cells.get(name, "") for name in header] for cells in flat])


def classes_table(group: SeedGroup, title: str = "") -> TextTable:
    """Accuracy of each class in percent, classes to forget first."""
    run, ways = group.first, group.ways()
    columns = [group.accuracy(when) for when in ("before", *ways)]
    order = np.argsort(~run.forgotten, kind="stable")
    shares = [["–" if np.isnan(x[i]) else f"{100 * x[i]:.1f}" for x in columns] for i in order]
    fates = ["forget" if run.forgotten[i] else "keep" for i in order]
    rows = [[run.class_names[i], fate, *share] for i, fate, share in zip(order, fates, shares, strict=True)]
    return TextTable(("class", "to", "accuracy, %: plain prompt", *ways.values()), rows, title)
