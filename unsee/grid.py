"""Many runs: each one a cell, found again by its fingerprint, made only if it is not there."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from unsee.learned import Watch
from unsee.models import BlackBox, Bound
from unsee.outcome import conclude
from unsee.records import Data
from unsee.runs import check_whole, read_config, read_result
from unsee.task import settle
from unsee.tuner import PromptTuner

Result = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run of a grid: all that makes it, beside the model and the data."""

    method: str
    seed: int
    forget: tuple[str, ...]
    preset: str = "tuned"
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class Place:
    """Where cells are run: on a model and data, into a folder."""

    model: BlackBox
    data: Data
    folder: Path

    @cached_property
    def test(self) -> Bound:
        return self.model.bind(self.data.test, self.data.class_names)

    @cached_property
    def _facts(self) -> list[str]:
        return [self.model.card.fingerprint, self.data.fingerprint]

    def find(self, cell: Cell) -> Path:
        """The run folder of this cell. Its name ends in a fingerprint of everything the run is a function of."""
        settings = settle(self.data, cell.method, cell.preset, cell.seed, cell.settings).as_dict()
        facts = [*self._facts, sorted(cell.forget), settings]
        key = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=6).hexdigest()
        name = Path(self.data.name).name  # of a folder of images, its last part
        return self.folder / f"{name}-{cell.method}-seed{cell.seed}-{key}"

    def has(self, cell: Cell) -> bool:
        """Whether this cell's run is there and whole."""
        return check_whole(self.find(cell))

    def run(self, cell: Cell, watch: Watch | None = None) -> Result:
        """The cell's result: read if it is there, gone on with if it was cut off, made if it is missing."""
        out = self.find(cell)
        if check_whole(out):
            return read_result(out)
        started = time.perf_counter()
        if (out / "config.json").is_file():
            tuner = PromptTuner.from_config(read_config(out)).resume(self.model, self.data, out, watch=watch)
        else:
            tuner = PromptTuner(cell.forget, cell.method, preset=cell.preset, seed=cell.seed, **cell.settings)
            tuner.fit(self.model, self.data, out=out, watch=watch)
        return conclude(tuner, self.data, self.test, out, {"tuning": time.perf_counter() - started})


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """So many threads for the model, for a while. Sums over other numbers of threads may differ in the last bit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_all(place: Place, cells: Iterable[Cell], watch: Watch | None = None) -> Iterator[tuple[Cell, Result, float]]:
    """Each cell with its result and the seconds it took now, one after the other in this process."""
    for cell in cells:
        started = time.perf_counter()
        result = place.run(cell, watch)
        yield cell, result, time.perf_counter() - started
