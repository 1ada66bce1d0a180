"""docs/paper.md holds: every table, figure, row and method has an entry, and everything it names is there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from unsee.methods.registry import METHODS
from unsee.report.paper.experiments import experiment_names, load_experiment

ROOT = Path(__file__).parents[2]
verdicts = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "verdicts.py")))
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
STATEMENTS = PAGE.partition("\n## Every statement of the paper\n")[2]
VERDICTS = ("faithful", "deviates", "open", "not run", "context only", "added", "as in", "see")


def sections(name: str) -> str:
    """The parts of the list of statements that speak of a table or figure."""
    parts = re.split(r"^### ", STATEMENTS, flags=re.MULTILINE)
    return "\n".join(part for part in parts if f"`{name}`" in part)


@pytest.mark.parametrize("name", experiment_names())
def test_every_table_and_figure_has_a_command_and_an_entry_for_each_row(name):
    assert re.search(rf"^unsee reproduce {name} --model openai/clip-vit-base-patch16", PAGE, flags=re.MULTILINE)
    assert re.search(rf"^\| `{name}` \| \d+ \| [\d.]+ \| [\d.]+ \|$", PAGE, flags=re.MULTILINE), "its cost"
    text = sections(name)
    for row in load_experiment(name).rows:
        assert re.search(rf"(?<!\w){re.escape(row.name)}(?![\w+])", text), f"no entry for {row.name!r}"
        assert f"`{row.method}`" in text or f"`{row.method}`" in sections("table-main"), row.method


def test_every_method_of_the_paper_is_named():
    own = {name for name, method in METHODS.items() if "not in the paper" not in method.about}
    assert not {name for name in own if f"`{name}`" not in STATEMENTS}


def test_every_equation_and_numbered_table_and_figure_is_named():
    wanted = [f"Equation {i}" for i in (1, 2, 3)] + [f"Figure {i}" for i in range(1, 6)] + ["Table 1", "Table 2"]
    assert not [name for name in wanted if name not in STATEMENTS]


def test_every_entry_says_how_it_stands():
    rows = [line for line in STATEMENTS.splitlines() if line.startswith("| ") and not line.endswith("| |")]
    assert len(rows) > 100
    assert not [row for row in rows if not row.rstrip(" |").rpartition("| ")[2].startswith(VERDICTS)]


def test_every_file_and_every_function_it_names_is_there():
    files = set(re.findall(r"`((?:unsee|tests|benchmarks)/[\w/]+\.(?:py|toml))`", PAGE))
    assert len(files) > 20
    assert not {file for file in files if not (ROOT / file).is_file()}
    for file, name in re.findall(r"`(unsee/[\w/]+\.py)` \(`(\w+)`\)", PAGE):
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text(encoding="utf-8")), f"{name} in {file}"


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "cub200", "imagenet30", "imagenet"])
def test_the_zero_shot_row_to_check_first_is_the_papers(data):
    table = load_experiment("table-imagenet" if data == "imagenet" else "table-main")
    row = next(row for row in table.rows if row.method == "zero-shot")
    values = " | ".join(f"{row.paper[data][column][0]:.2f}" for column in ("h", "err_for", "acc_mem"))
    assert f"| `{data}` | {values} |" in PAGE


def test_no_claim_about_results_is_without_a_verdict():
    numbers = {int(found) for found in re.findall(r"^\| V(\d+) \|", PAGE, flags=re.MULTILINE)}
    assert numbers == set(range(1, len(verdicts.CLAIMS) + 1))
    cited = set[int]()
    claims = re.findall(r"not run[^|\n]*", STATEMENTS.partition("### Abstract")[2])
    assert len(claims) > 20
    for claim in claims:
        first_and_last = re.findall(r"V(\d+)(?: to V(\d+))?", claim)
        assert first_and_last, claim
        for first, last in first_and_last:
            cited |= set(range(int(first), int(last or first) + 1))
    assert cited == numbers


def test_verdicts_are_what_results_say():
    written = PAGE.partition(verdicts.START)[2].partition(verdicts.END)[0]
    assert written == verdicts.section(), "python docs/verdicts.py writes it again"


@pytest.mark.parametrize(
    ("should", "low", "high", "verdict"),
    [
        ("more", 0.1, 2.0, "holds"),
        ("more", -2.0, -0.1, "does not hold"),
        ("more", -1.0, 1.0, "cannot be told"),
        ("less", -2.0, -0.1, "holds"),
        ("alike", -2.0, 2.0, "holds"),
        ("alike", 3.5, 9.0, "does not hold"),
        ("alike", -1.0, 9.0, "cannot be told"),
        ("at most 2", -9.0, 1.9, "holds"),
        ("at most 2", 2.1, 3.0, "does not hold"),
    ],
)
def test_a_verdict_follows_from_the_whole_interval(should, low, high, verdict):
    assert verdicts.SHOULD[should](low, high).startswith(verdict)
