"""The architecture: modules have ranks and import only lower ones, in no cycle, and none is too long."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import unsee

ROOT = Path(unsee.__file__).parent
# A folder is one part. Rank 0 is shared by all, and its modules may import one another.
RANKS = {
    0: {"errors", "types", "settings", "seeds", "files", "versions", "text_table", "telemetry", "installation"},
    1: {"data"},
    2: {"models", "answers"},
    3: {"methods"},
    4: {"runs"},
    5: {"tuner", "audit", "serve"},
    6: {"report", "bench", "studio"},
    7: {"cli", "__init__", "__main__"},
}
RANK = {name: rank for rank, names in RANKS.items() for name in names}
MODULES = {
    ".".join(["unsee", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


def part(module: str) -> str:
    pieces = module.split(".")
    return pieces[1] if len(pieces) > 1 else "__init__"


def imports(path: Path) -> set[str]:
    """Modules of unsee that a module imports, also inside functions or for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unsee":
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "unsee"}
    return found


def test_every_module_has_a_rank_and_there_are_at_most_eight():
    assert {part(module) for module in MODULES} == set(RANK)
    assert len(RANKS) <= 8


def test_no_module_imports_upward_or_sideways():
    wrong = []
    for module, path in MODULES.items():
        if module in ("unsee", "unsee.__main__"):
            continue  # it names the public things of all ranks, and imports them when they are asked for
        for other in imports(path):
            mine, theirs = RANK[part(module)], RANK[part(other)] if other != "unsee" else 0
            if part(module) != part(other) and (theirs > mine or (theirs == mine and mine > 0)):
                wrong.append(f"{module} imports {other}")
    assert not wrong


def test_no_module_imports_itself_through_others():
    """Late imports count too: they are for speed, not to get round the architecture."""
    packages = {module for module, path in MODULES.items() if path.name == "__init__.py"}  # they name their parts
    graph = {module: imports(path) - packages for module, path in MODULES.items() if module not in packages}
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize(
    "name", ["methods/loop", "methods/cma", "methods/contexts", "methods/recorder", "answers/metrics", "tuner"]
)
def test_the_method_never_learns_what_clip_is(name):
    text = (ROOT / f"{name}.py").read_text(encoding="utf-8")
    assert "torch" not in text.replace("imports torch", "")
    assert "models.clip" not in text


def test_no_file_is_longer_than_400_lines():
    files = [*MODULES.values(), *Path(__file__).parent.rglob("*.py")]
    assert not {path.name: n for path in files if (n := len(path.read_text("utf-8").splitlines())) > 400}


def test_no_public_signature_has_a_dictionary_of_anything():
    wrong = []
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                hints = [a.annotation for a in [*node.args.args, *node.args.kwonlyargs]] + [node.returns]
                if any("dict[str, Any]" in ast.unparse(hint) for hint in hints if hint is not None):
                    wrong.append(f"{module}.{node.name}")
    assert not wrong


SCRIPT = """
import sys
from unsee.cli import main
main(sys.argv[1:])
HEAVY = ("torch", "transformers", "matplotlib", "cma", "onnxruntime", "ray", "rich", "fastapi", "httpx")
heavy = [name for name in HEAVY if name in sys.modules]
print(",".join(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ("--help", ""),
        ("forget --help", ""),
        ("data", "rich"),
        ("reproduce", "rich"),
        ("forget demo --forget catt", "rich"),
        ("report nowhere", "rich"),
        ("evaluate nowhere", "rich"),
        ("runs nowhere", "rich"),
        ("settings", "rich"),
    ],
)
def test_no_command_imports_what_it_does_not_need(arguments, allowed):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments.split()], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == allowed


def test_help_is_there_at_once():
    """Beside an import of click alone, so that it holds on a slow machine too."""

    def cpu_seconds(code: str) -> float:
        code += "; import resource, sys; r = resource.getrusage(0); print(r.ru_utime + r.ru_stime, file=sys.stderr)"
        command = [sys.executable, "-c", code]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
        return min(float(done.stderr) for done in runs)

    ours, alone = cpu_seconds("from unsee.cli import main; main(['--help'])"), cpu_seconds("import click")
    assert ours <= 8 * alone  # measured: 3.5 to 5.3 times
