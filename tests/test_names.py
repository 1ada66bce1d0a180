"""One name, one thing: no two modules, classes, public functions or constants of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import unsee

ROOT = Path(unsee.__file__).parent
MODULES = [path for path in sorted(ROOT.rglob("*.py")) if path.stem not in ("__init__", "__main__")]
COMMANDS = ROOT / "cli"  # its files and functions are named after the commands


def twice(found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: places for name, places in found.items() if len(places) > 1}


def definitions(path: Path) -> set[str]:
    """Public names that a module defines at its top level; type variables are no things of their own."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and "TypeVar(" not in ast.unparse(node):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_no_two_modules_share_a_name():
    found = defaultdict(list)
    for path in MODULES:
        if COMMANDS not in path.parents:
            found[path.stem].append(str(path.relative_to(ROOT)))
    assert not twice(found)


def test_no_two_classes_functions_or_constants_share_a_name():
    found = defaultdict(list)
    for path in MODULES:
        if COMMANDS not in path.parents:
            for name in definitions(path):
                found[name].append(str(path.relative_to(ROOT)))
    assert not twice(found)
