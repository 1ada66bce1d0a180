"""Prints pip constraints that hold every dependency of unsee at its lower bound; `make lowest` installs with them.

torch stays at the build that constraints.txt names: older builds for the CPU alone cannot be had from every index.
Dependencies of dependencies are free: pip takes the newest that fit.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = ("torch",)
EXTRAS = (
    "heic",
    "parquet",
    "ray",
    "serve",
)  # those that are part of the package; the others are tools, which are pinned


def lowest() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *(r for extra in EXTRAS for r in project["optional-dependencies"][extra])]
    for requirement in required:
        found = re.fullmatch(r"([\w.-]+)>=([\w.]+)(?:,<[\w.]+)?", requirement)
        if found is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} is not a name and a lower bound")
        if found[1] not in PINNED:
            yield f"{found[1]}=={found[2]}"
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    yield from (pin for pin in pins if pin.partition("==")[0] in PINNED)


if __name__ == "__main__":
    print(*lowest(), sep="\n")
