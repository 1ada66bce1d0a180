"""Writes the verdict on every claim of the paper to docs/paper.md, from results/: python docs/verdicts.py.

A claim is a comparison: two lines of a table, a column, and how they should compare. The verdict follows from the 95 %
interval of their difference on `mini` alone.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import t as student

from unsee.report.paired import UPPER, Difference, difference_over_seeds
from unsee.report.paper.experiments import COLUMN_NAMES, Experiment, load_experiment

PAGE = Path(__file__).parent / "paper.md"
RESULTS = Path(__file__).parents[1] / "results"
START, END = "<!-- verdicts -->\n", "<!-- end of verdicts -->\n"
ALIKE = 3.0  # points within which two numbers count as comparable
HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told on `mini`"
SHOULD = {
    "more": lambda low, high: HOLDS if low > 0 else FAILS if high < 0 else OPEN,
    "less": lambda low, high: HOLDS if high < 0 else FAILS if low > 0 else OPEN,
    "alike": lambda low, high: (
        HOLDS if low > -ALIKE and high < ALIKE else FAILS if low > ALIKE or high < -ALIKE else OPEN
    ),
    "at most 1": lambda low, high: HOLDS if high < 1 else FAILS if low > 1 else OPEN,
    "at most 2": lambda low, high: HOLDS if high < 2 else FAILS if low > 2 else OPEN,
}


@dataclass(frozen=True)
class Claim:
    """One line minus another in a column, and how they should compare; a line is `row` or `row @ point`."""

    says: str
    table: str
    first: str = ""
    second: str = ""
    column: str = "h"
    should: str = "more"
    why_not: str = ""  # a claim that nothing here can test


FEW = ("20 : 5", "0 : 10", "36 : 1")  # sizes of fig-dims on CIFAR-10: the paper's, nothing shared, most shared
MANY = ("400 : 100", "0 : 125", "1840 : 10")  # and on its other sets
CLAIMS = (
    Claim("LCS improves on zero-shot", "table-main", "Ours", "Zero-Shot"),
    Claim("LCS outperforms BBT", "table-main", "Ours", "BBT"),
    Claim("LCS outperforms CBBT", "table-main", "Ours", "CBBT"),
    Claim("LCS outperforms CBBT on CBBT's own schedule", "table-main", "Ours", "CBBT (its own schedule)"),
    Claim("LCS outperforms the search without LCS", "table-main", "Ours", "Ours (w/o LCS)"),
    Claim("LCS and BBT are comparable in Acc_mem", "table-main", "Ours", "BBT", "acc_mem", "alike"),
    Claim("LCS is slightly below CBBT in Acc_mem", "table-main", "Ours", "CBBT", "acc_mem", "less"),
    Claim("without LCS, Acc_mem is comparable", "table-main", "Ours", "Ours (w/o LCS)", "acc_mem", "alike"),
    Claim("CoOp is less than 2 points better in H", "table-main", "CoOp (White-Box)", "Ours", "h", "at most 2"),
    Claim("CoOp is less than 1 better in Err_for", "table-main", "CoOp (White-Box)", "Ours", "err_for", "at most 1"),
    Claim("derivative-free search is slow in many dimensions", "", why_not="the paper prints no row of it"),
    Claim("answers to forgotten images are close to random", "", why_not="the paper prints no number"),
    Claim("LCS: 16 contexts are better than 4", "fig-contexts", "Ours @ 16", "Ours @ 4"),
    Claim("BBT: 16 contexts are better than 4", "fig-contexts", "BBT @ 16", "BBT @ 4"),
    Claim("LCS with 4 contexts is as good as BBT with 16", "fig-contexts", "Ours @ 4", "BBT @ 16", "h", "alike"),
    Claim("LCS falls little from 4 contexts to 1", "fig-contexts", "Ours @ 4", "Ours @ 1", "h", "alike"),
    Claim("BBT falls sharply from 4 contexts to 1", "fig-contexts", "BBT @ 4", "BBT @ 1"),
    *(
        claim
        for paper, none, most in (FEW, MANY)
        for claim in (
            Claim(f"nothing shared ({none}) is worse than {paper}", "fig-dims", f"Ours @ {paper}", f"Ours @ {none}"),
            Claim(f"too much shared ({most}) is worse than {paper}", "fig-dims", f"Ours @ {paper}", f"Ours @ {most}"),
            Claim(f"{paper} is above BBT", "fig-dims", f"Ours @ {paper}", "BBT @ level"),
        )
    ),
    Claim("BBT loses Err_for from 10 % to 90 % forgotten", "fig-ratio", "BBT @ 90 %", "BBT @ 10 %", "err_for", "less"),
    Claim("CBBT loses Err_for from 10 % to 90 %", "fig-ratio", "CBBT @ 90 %", "CBBT @ 10 %", "err_for", "less"),
    Claim("LCS does not", "fig-ratio", "Ours @ 90 %", "Ours @ 10 %", "err_for", "alike"),
    Claim("LCS is better than BBT with separable CMA-ES", "table-cma", "Ours", "BBT w/ Sep"),
    Claim("LCS is better than BBT with VkD-CMA-ES", "table-cma", "Ours", "BBT w/ VkD"),
    Claim("the same in Err_for, separable", "table-cma", "Ours", "BBT w/ Sep", "err_for"),
    Claim("the same in Err_for, VkD", "table-cma", "Ours", "BBT w/ VkD", "err_for"),
    Claim("LCS outperforms all on ImageNet-1k", "table-imagenet", why_not="ImageNet could not be obtained"),
    Claim("more weight on keeping (Acc prio.) has more Acc_mem", "table-acc", "Ours (Acc prio.)", "Ours", "acc_mem"),
    Claim("and less Err_for", "table-acc", "Ours (Acc prio.)", "Ours", "err_for", "less"),
    Claim("Acc prio. is above BBT in H", "table-acc", "Ours (Acc prio.)", "BBT"),
    Claim("Acc prio. is above CBBT in H", "table-acc", "Ours (Acc prio.)", "CBBT"),
    Claim("CoOp hardly improves Acc_mem", "table-memorize", "CoOp (White-Box)", "Zero-Shot", "acc_mem", "at most 1"),
    Claim(
        "CoOp without forgetting improves it by more",
        "table-memorize",
        "CoOp (White-Box w/ only memorization)",
        "CoOp (White-Box)",
        "acc_mem",
    ),
    Claim("C-Emb. is slightly better in Err_for", "table-c-emb", "C-Emb.", "Ours", "err_for"),
    Claim("C-Emb. is far lower in Acc_mem", "table-c-emb", "C-Emb.", "Ours", "acc_mem", "less"),
    Claim("Ours + C-Emb. outperforms Ours if half have no images", "table-combine", "Ours + C-Emb.", "Ours"),
    Claim("ResNet-18 from scratch is far behind", "table-scratch", "ResNet18 from scratch", "Ours", "acc_mem", "less"),
    Claim("ViT-B/16 from scratch is far behind", "table-scratch", "ViT-B/16 from scratch", "Ours", "acc_mem", "less"),
    Claim("pretrained weights help somewhat", "table-scratch", why_not="no such weights could be obtained"),
    Claim("fine-tuning weights does not forget enough", "table-finetune", "Fine-tuning, weights", "Ours", "h", "less"),
    Claim(
        "nor does fine-tuning contexts",
        "table-finetune",
        "Fine-tuning, contexts (CoOp, only memorization)",
        "Ours",
        "h",
        "less",
    ),
    Claim(
        "training the weights as well hurts CoOp",
        "table-params",
        "CoOp + parameter update",
        "CoOp (White-Box)",
        "h",
        "less",
    ),
    Claim("the scale of the projection matters: sigma is better than 1", "table-projection", "N(0, sigma)", "N(0, 1)"),
    Claim(
        "every choice of classes does well: {4, 5, 6, 7, 8}, the lowest H here, is as good as {1}",
        "table-classes",
        "{4, 5, 6, 7, 8}",
        "{1}",
        "h",
        "alike",
    ),
)  # fmt: skip
HEAD = f"""
Differences are in points: ours on `mini` with 95 % intervals (Student's over the seeds' differences where `results/`
has every seed; else Welch's, marked †), and the paper's on CLIP. *Holds* and *does not hold* mean that the whole
interval says so; *comparable* means within {ALIKE:g} points. An interval is about seeds of one small model: it neither
confirms nor refutes what the paper found on CLIP.

| | claim | from | paper, CLIP | data | ours on `mini` | verdict |
|---|---|---|---|---|---|---|
"""


def section() -> str:
    """All claims, one line for each data set."""
    lines = []
    for number, claim in enumerate(CLAIMS, 1):
        start = f"| V{number} | {claim.says} | " + (
            f"`{claim.table}`, {COLUMN_NAMES[claim.column]}" if claim.table else "–"
        )
        if claim.why_not:
            lines.append(f"{start} | – | – | {claim.why_not} | {OPEN} |")
            continue
        found = {data: difference(claim, data) for data in data_sets(claim.table)}
        for data, (apart, mark) in ((data, each) for data, each in found.items() if each is not None):
            known = apart.low is not None and apart.high is not None
            verdict = SHOULD[claim.should](apart.low, apart.high) if known else OPEN
            seeds = f"{apart.seeds} seeds" if apart.seeds > 1 else "one seed"
            lines.append(f"{start} | {of_the_paper(claim)} | `{data}` | {apart}{mark}, {seeds} | {verdict} |")
        if not any(found.values()):
            lines.append(f"{start} | {of_the_paper(claim)} | – | not run | {OPEN} |")
    return HEAD + "\n".join(lines) + "\n"


def data_sets(table: str) -> list[str]:
    """The data sets that results/ has this table on."""
    names = [path.stem.removeprefix(f"{table}-") for path in sorted(RESULTS.glob(f"{table}-*.csv"))]
    return [name for name in names if not name.endswith("-seeds")]


def difference(claim: Claim, data: str) -> tuple[Difference, str] | None:
    """Ours, paired by seed where every seed's number is there; None where a line was not run."""
    path = RESULTS / f"{claim.table}-{data}-seeds.csv"
    pair = [line.split(" @ ") for line in (claim.first, claim.second)]
    if path.exists():
        rows = read(path)
        by_seed = [{row["seed"]: float(row[claim.column]) for row in rows if is_line(row, line)} for line in pair]
        shared = [seed for seed in by_seed[0] if seed in by_seed[1]]
        ours = ([each[seed] for seed in shared] for each in by_seed)
        if shared:
            return difference_over_seeds(claim.second, *ours), ""
    rows = read(RESULTS / f"{claim.table}-{data}.csv")
    lines = [row for line in pair for row in rows if is_line(row, line) and row["seeds"] != "0"]
    if len(lines) < 2:
        return None
    n = [int(row["seeds"]) for row in lines]
    mean = [float(row[f"{claim.column}_mean"]) for row in lines]
    if min(n) < 2:
        return Difference(claim.second, mean[0] - mean[1], None, None, min(n)), "†"
    part = [float(row[f"{claim.column}_std"]) ** 2 / count for row, count in zip(lines, n, strict=True)]
    freedom = sum(part) ** 2 / max(1e-12, sum(p * p / (count - 1) for p, count in zip(part, n, strict=True)))
    half = float(student.ppf(UPPER, max(1.0, freedom))) * math.sqrt(sum(part))
    apart = mean[0] - mean[1]
    return Difference(claim.second, apart, apart - half, apart + half, min(n)), "†"


def of_the_paper(claim: Claim) -> str:
    """The paper's differences, set by set."""
    experiment = load_experiment(claim.table)
    values = {
        data: [published(experiment, line, data, claim.column) for line in (claim.first, claim.second)]
        for data in experiment.data
    }
    found = [f"`{data}` {pair[0] - pair[1]:+.2f}" for data, pair in values.items() if None not in pair]
    return ", ".join(found) or "a picture"


def published(experiment: Experiment, line: str, data: str, column: str) -> float | None:
    """What the paper prints for a line."""
    name, _, label = line.partition(" @ ")
    for row, point, _ in experiment.entries(data, {}):
        if (row.name, point.label) == (name, label) and column in experiment.published(row, point, data):
            return float(experiment.published(row, point, data)[column][0])
    return None


def is_line(row: dict[str, str], line: list[str]) -> bool:
    """Whether a row of a CSV is this line."""
    return [row["row"], row["point"]] == [line[0], *(line[1:] or [""])]


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    PAGE.write_text(before + START + section() + END + after, encoding="utf-8")
