"""A grid on Ray: each run is a task of its own, on the cores of this machine or on a cluster.

If a worker dies, Ray starts its task again elsewhere; where the run folder is on a disk that both see, the run goes
on from its checkpoint, else from its beginning. Either way the numbers are those of a run that was never disturbed,
and the same as without Ray.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unsee.data import load_data
from unsee.errors import MissingExtra, RunError, UnseeError
from unsee.files import write_bytes
from unsee.grid import Cell, Place, Result, limit_threads
from unsee.models import FeatureCache, load_model
from unsee.runs import LOCK, RESULT

RETRIES = 5  # of a run whose worker died


@dataclass(frozen=True)
class Worker:
    """How a worker loads what the runs are of. Paths must mean the same on every machine."""

    data_dir: Path | None = None
    cache_dir: Path | None = None
    seed: int = 0  # of a folder of images that is halved by seed
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1  # of one run

    def load(self, model: str, data: str, folder: Path) -> Place:
        cache = None if self.cache_dir is None else FeatureCache(self.cache_dir)
        loaded = load_model(model, cache=cache, device=self.device, dtype=self.dtype)
        return Place(loaded, load_data(data, seed=self.seed, data_dir=self.data_dir), folder)


def run_on_ray(
    worker: Worker, cluster: str | None, place: Place, cells: Sequence[Cell]
) -> Iterator[tuple[Cell, Result, float]]:
    """As `grid.run_all`, but as many runs at once as there is room for; in the order they finish."""
    # Ray reports its use over the network unless told not to before it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray.exceptions import RayError, RayTaskError
    except ImportError:
        raise MissingExtra("ray", "ray") from None

    _connect(ray, cluster)
    gpus = 1 if worker.device.startswith("cuda") else 0
    limits = {"env_vars": {"OMP_NUM_THREADS": str(worker.threads)}}
    remote = ray.remote(_task).options(
        num_cpus=worker.threads, num_gpus=gpus, max_retries=RETRIES, runtime_env=limits, name="unsee run"
    )
    where = (place.model.card.name, place.data.name, place.folder)
    waiting = {remote.remote(worker, where, cell): cell for cell in cells}
    try:
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            cell = waiting.pop(ready)
            try:
                result, seconds, files = ray.get(ready)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, UnseeError) else error from None
            except RayError as error:
                raise RunError(
                    f"{cell.method} seed {cell.seed}: its worker died {RETRIES + 1} times ({error})"
                ) from None
            _keep(place, cell, files)
            yield cell, result, seconds
    finally:
        for task in waiting:
            ray.cancel(task, force=True)
        ray.shutdown()


def _connect(ray: Any, cluster: str | None) -> None:
    if cluster is None:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
        return
    host, colon, port = cluster.removeprefix("ray://").rpartition(":")
    try:
        if colon:  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        ray.init(address=cluster, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        hint = "If the cluster asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as it has them"
        raise RunError(f"no Ray cluster at {cluster} ({str(error).splitlines()[0]}). {hint}") from None


def _task(worker: Worker, where: tuple[str, str, Path], cell: Cell) -> tuple[Result, float, dict[str, bytes]]:
    """One run, in a worker: its result, its seconds, and its folder's files."""
    started = time.perf_counter()
    with limit_threads(worker.threads):
        place = _loaded(worker, *where)
        result = place.run(cell)
    files = {path.name: path.read_bytes() for path in place.find(cell).iterdir() if path.name != LOCK}
    return result, time.perf_counter() - started, files


@lru_cache(maxsize=1)  # a worker does many runs of one grid
def _loaded(worker: Worker, model: str, data: str, folder: Path) -> Place:
    return worker.load(model, data, folder)


def _keep(place: Place, cell: Cell, files: dict[str, bytes]) -> None:
    """The run's folder on the machine that asked for it, if the worker's disk is another one."""
    folder = place.find(cell)
    if place.has(cell):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == RESULT):  # the result last: it says that all is there
        write_bytes(folder / name, files[name])
