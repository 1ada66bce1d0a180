"""Modules have ranks and import only lower ones: data flows one way."""

from __future__ import annotations

import ast
from pathlib import Path

import unsee

ROOT = Path(unsee.__file__).parent
RANKS = {
    0: {"errors", "seeds", "files", "provenance", "images", "records", "tables"},
    1: {"data", "contexts", "search", "descent", "scores", "models", "charts"},
    2: {"split", "runs", "settings", "prompts", "evaluation"},
    3: {"task", "picture", "finished"},
    4: {"judge", "learned"},
    5: {"loop", "baselines"},
    6: {"tuner"},
    7: {"outcome", "bench"},
    8: {"grid"},
    9: {"compare", "experiments", "cluster"},
    10: {"reproduce", "groups"},
    11: {"exhibits", "report"},
    12: {"progress"},
    13: {"cli"},
    14: {"__init__"},
}
RANK = {name: rank for rank, names in RANKS.items() for name in names}
# Within a rank, who may import whom.
BESIDE = {("records", "errors"), ("records", "images"), ("images", "errors"), ("models", "scores")} | {
    ("evaluation", "settings")
}


def part(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unsee":
            pieces = node.module.split(".")
            found |= {pieces[1]} if len(pieces) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("unsee.")}
    return found


def test_every_module_has_a_rank():
    assert {part(path) for path in ROOT.rglob("*.py")} <= set(RANK)


def test_no_module_imports_upward_or_sideways():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        own = part(path)
        for other in imports(path) - {own}:
            if RANK[other] > RANK[own] or (RANK[other] == RANK[own] and (own, other) not in BESIDE):
                wrong.append(f"{own} imports {other}")
    assert not wrong


def test_the_tuner_and_the_search_never_learn_what_clip_is():
    for name in ("loop", "tuner", "search", "contexts", "scores"):
        text = (ROOT / f"{name}.py").read_text(encoding="utf-8")
        assert "torch" not in text
        assert "models.clip" not in text
