"""A sweep on Ray: each run is a separate task, on the cores of this machine or on a cluster.

If a worker dies, Ray starts its task again elsewhere. If the run folder is on a shared disk, the run resumes from its
checkpoint, else it starts over. Either way the numbers are those of a run that was never disturbed, and the same as
without Ray.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from unsee.data import load_data
from unsee.errors import InputError, MissingExtra, RunError, UnseeError
from unsee.files import write_bytes
from unsee.models import FeatureCache, load_model
from unsee.runs.folder import RESULT
from unsee.runs.lock import LOCK
from unsee.runs.records import ResultRecord
from unsee.runs.sweep import RunRequest, Workspace, limit_threads, run_all

RETRIES = 5  # of a run whose worker died


@dataclass(frozen=True)
class Worker:
    """How a worker loads what the runs are of. Paths must mean the same on every machine."""

    data_dir: Path | None = None
    cache_dir: Path | None = None
    seed: int = 0  # that divides a folder of images into train and test
    device: str = "cpu"
    dtype: str = "float32"
    threads: int = 1  # of one run

    def load(self, model: str, data: str, folder: Path) -> Workspace:
        cache = None if self.cache_dir is None else FeatureCache(self.cache_dir)
        loaded = load_model(model, cache=cache, device=self.device, dtype=self.dtype, threads=self.threads)
        return Workspace(loaded, load_data(data, seed=self.seed, data_dir=self.data_dir), folder)


def run_on_ray(
    worker: Worker, cluster: str | None, workspace: Workspace, requests: Sequence[RunRequest]
) -> Iterator[tuple[RunRequest, ResultRecord, float]]:
    """As `sweep.run_all`, but as many runs at once as there is room for; in the order they finish."""
    if workspace.model.card.address is not None:  # the workers have no key to it
        raise InputError(f"{workspace.model.card.address} is asked from this machine: leave out --ray")
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
    where = (workspace.model.card.name, workspace.data.name, workspace.folder)
    waiting = {remote.remote(worker, where, request): request for request in requests}
    try:
        while waiting:
            (ready,), _ = ray.wait(list(waiting), num_returns=1)
            request = waiting.pop(ready)
            try:
                result, seconds, files = ray.get(ready)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, UnseeError) else error from None
            except RayError as error:
                raise RunError(
                    f"{request.method} seed {request.seed}: its worker died {RETRIES + 1} times ({error})"
                ) from None
            _keep(workspace, request, files)
            yield request, result, seconds
    finally:
        for task in waiting:
            ray.cancel(task, force=True)
        ray.shutdown()


def _connect(ray: Any, cluster: str | None) -> None:
    if cluster is None:
        with socket.create_server(("127.0.0.1", 0)) as held:
            # Ray's page asks where in which cloud it is, even with its reports switched off (UsageStatsHead.run). It
            # cannot be left out, but stays away where its port is taken.
            port = held.getsockname()[1]
            ray.init(include_dashboard=False, dashboard_port=port, log_to_driver=False, logging_level="critical")
        return
    host, colon, port = cluster.removeprefix("ray://").rpartition(":")
    try:
        if colon:  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        ray.init(address=cluster, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        hint = "If the cluster asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as it has them"
        raise RunError(f"no Ray cluster at {cluster} ({str(error).splitlines()[0]}). {hint}") from None


def _task(
    worker: Worker, where: tuple[str, str, Path], request: RunRequest
) -> tuple[ResultRecord, float, dict[str, bytes]]:
    """One run, in a worker: its result, its seconds, and its folder's files."""
    started = time.perf_counter()
    with limit_threads(worker.threads):
        workspace = _loaded(worker, *where)
        ((_, result, _),) = run_all(workspace, [request])  # waits if another process is making it
    files = {path.name: path.read_bytes() for path in workspace.find(request).iterdir() if path.name != LOCK}
    return result, time.perf_counter() - started, files


@lru_cache(maxsize=1)  # a worker does many runs of one sweep
def _loaded(worker: Worker, model: str, data: str, folder: Path) -> Workspace:
    return worker.load(model, data, folder)


def _keep(workspace: Workspace, request: RunRequest, files: dict[str, bytes]) -> None:
    """The run's folder on the machine that asked for it, if the worker's disk is another one."""
    folder = workspace.find(request)
    if workspace.has(request):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == RESULT):  # the result last: it says that all is there
        write_bytes(folder / name, files[name])
