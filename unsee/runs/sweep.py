"""Many runs: each is found again by its identity, resumed if it was interrupted, and made only if it is missing."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from unsee.data.class_folders import refuse_inside
from unsee.data.data_set import Data
from unsee.errors import RunInUse
from unsee.methods.recorder import Say, Watch
from unsee.methods.task import Task, make_task
from unsee.models.black_box import BlackBox, BoundImages, bind
from unsee.runs.folder import CONFIG, is_finished, read_result
from unsee.runs.identity import describe_run, folder_key
from unsee.runs.records import ResultRecord
from unsee.runs.tuning import continue_run, start_run
from unsee.settings import Value

POLL = 0.5  # seconds between looks at a run that another process is making


@dataclass(frozen=True)
class RunRequest:
    """One run of a sweep: all that makes it, beside the model and the data."""

    method: str
    seed: int
    forget: tuple[str, ...]
    preset: str = "tuned"
    settings: Mapping[str, Value] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class Workspace:
    """Where runs are made: on a model and data, in a folder."""

    model: BlackBox
    data: Data
    folder: Path
    _folders: dict[RunRequest, Path] = field(default_factory=dict, repr=False)
    _tasks: dict[RunRequest, Task] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        refuse_inside(self.data, self.folder)

    @cached_property
    def test(self) -> BoundImages:
        return bind(self.model, self.data.test)

    def task(self, request: RunRequest) -> Task:
        """What this request runs; made once."""
        if request not in self._tasks:
            facts = request.forget, request.method, request.preset, request.seed, request.settings
            self._tasks[request] = make_task(self.model, self.data, *facts)
        return self._tasks[request]

    def find(self, request: RunRequest) -> Path:
        """The run folder of this request. Its name ends in a hash of everything the run is a function of."""
        if request not in self._folders:
            key = folder_key(describe_run(self.task(request)))
            name = Path(self.data.name).name  # of a folder of images, its last part
            self._folders[request] = self.folder / f"{name}-{request.method}-seed{request.seed}-{key}"
        return self._folders[request]

    def has(self, request: RunRequest) -> bool:
        """Whether this run is there and finished."""
        return is_finished(self.find(request))

    def run(self, request: RunRequest, watch: Watch | None = None, say: Say | None = None) -> ResultRecord:
        """The result of this request: read if it is there, resumed if it was interrupted, made if it is missing."""
        out = self.find(request)
        if is_finished(out):
            return read_result(out)
        task, test = self.task(request), self.test  # before tuning: a bad test image shows now, not hours later
        if (out / CONFIG).is_file():
            continue_run(out, lambda then: task, test, watch=watch, say=say)
        else:
            start_run(task, out, test, watch=watch, say=say)
        return read_result(out)


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """This many torch threads, for a while. With another number of threads, sums may differ in the last bit."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_all(
    workspace: Workspace, requests: Iterable[RunRequest], watch: Watch | None = None, say: Say | None = None
) -> Iterator[tuple[RunRequest, ResultRecord, float]]:
    """Each request with its result and the seconds it took now, one after the other in this process.

    A run that another process is making is left for later; at the end its result is waited for.
    """
    waiting, in_use, told = deque(requests), 0, False
    while waiting:
        request, started = waiting.popleft(), time.perf_counter()
        try:
            result = workspace.run(request, watch, say)
        except RunInUse:
            waiting.append(request)
            in_use += 1
            if in_use >= len(waiting):  # all that is left is being made elsewhere
                if say is not None and not told:
                    say(f"waiting for {len(waiting)} runs that another process is making")
                told, in_use = True, 0
                time.sleep(POLL)
            continue
        in_use = 0
        yield request, result, time.perf_counter() - started
