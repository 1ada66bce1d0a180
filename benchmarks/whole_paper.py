"""Runs every table and figure of the paper once, on a random CLIP of ViT-B/16's size, and reports the peak memory.

It shows that all of it runs to the end in the memory of a small machine; its numbers mean nothing. The files are in the
true form of each data set, with as many classes as it has; one image per class to tune on, to validate on and to test
on, one seed, one generation of four candidates. Tables of methods that train an image tower take longest, so they are
run on CIFAR-10 and on ten of CUB's classes unless --whole is given.

    python -m benchmarks.whole_paper FOLDER [--whole] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.true_forms import write_all, write_clip
from unsee.report.paper.experiments import experiment_names

TRAINED = ("table-finetune", "table-params", "table-scratch")
LIMIT = 6 * 10**9  # bytes
SMALL = {"iterations": 1, "population": 4, "shots": 1}


@dataclass(frozen=True)
class Measured:
    """One table or figure: its exit code, the time it took, and the peak memory of its process, in bytes."""

    name: str
    code: int
    seconds: float
    peak: int


def reproduce(name: str, model: Path, data: Path, sets: Sequence[str], out: Path) -> Measured:
    """Runs `unsee reproduce` in a process of its own, on one thread, and measures it."""
    command = [sys.executable, "-m", "unsee.cli", "reproduce", name, "--model", str(model), "--data-dir", str(data)]
    command += ["--seeds", "0", "--out", str(out / "runs"), "--save", str(out / "tables"), "--cache-dir", str(out)]
    command += [word for wanted in sets for word in ("--data", wanted)]
    command += [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    started = time.perf_counter()
    with (out / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})
        _, status, used = os.wait4(process.pid, 0)  # what this process alone used
    process.returncode = os.waitstatus_to_exitcode(status)
    return Measured(name, process.returncode, time.perf_counter() - started, used.ru_maxrss * 1024)


def main() -> int:
    """Prints a line for each table and figure; the exit code says whether all ended within the memory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--whole", action="store_true", help="train image towers on all four sets too: hours")
    parser.add_argument("--only", nargs="*", default=experiment_names(), metavar="NAME")
    given = parser.parse_args()
    root = given.folder.resolve()
    if not (root / "model").is_dir():
        write_clip(root / "model")
        write_all(root / "data")
        write_all(root / "few", birds=10, things=10)
    found = []
    for name in given.only:
        few = name in TRAINED and not given.whole
        sets = ("cifar10", "cub200") if few else ()
        found.append(reproduce(name, root / "model", root / ("few" if few else "data"), sets, root))
        print(_line(found[-1]), flush=True)
    peak = max(each.peak for each in found)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    total = sum(each.seconds for each in found)
    print(f"all: {total:.0f} s, peak {peak / 1e9:.2f} GB; writing the files: {own / 1e9:.2f} GB")
    return int(any(each.code for each in found) or peak > LIMIT)


def _line(found: Measured) -> str:
    state = "done" if found.code == 0 else f"FAILED ({found.code})"
    return f"{found.name}: {state}, {found.seconds:.0f} s, peak {found.peak / 1e9:.2f} GB"


if __name__ == "__main__":
    sys.exit(main())
