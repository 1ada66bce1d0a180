"""Two processes on one sweep share its runs."""

from __future__ import annotations

import threading
import time

import pytest

from unsee.runs.folder import RunFolder
from unsee.runs.identity import describe_run
from unsee.runs.sweep import RunRequest, Workspace, run_all

REQUESTS = [RunRequest("lcs", seed, ("cat", "dog"), "paper", {"iterations": 2, "shots": 2}) for seed in range(3)]


@pytest.fixture
def workspace(model, data, tmp_path):
    return Workspace(model, data, tmp_path)


def hold(workspace, request):
    """The lock of a run, as another process that is making it has it."""
    return RunFolder.create(workspace.find(request), describe_run(workspace.task(request)))


def test_a_run_that_another_process_is_making_is_left_for_later(workspace):
    other = hold(workspace, REQUESTS[0])
    done = []
    for request, _, _ in run_all(workspace, REQUESTS):
        done.append(request.seed)
        if len(done) == 2:
            other.close()
    assert done == [1, 2, 0]


def test_the_last_run_is_waited_for_and_taken_over_or_read(workspace):
    other, said = hold(workspace, REQUESTS[0]), []
    threading.Timer(0.7, other.close).start()
    started = time.monotonic()
    ((request, result, _),) = run_all(workspace, REQUESTS[:1], say=said.append)
    assert time.monotonic() - started > 0.5
    assert result.seed == request.seed == 0
    assert any("waiting for 1 runs that another process is making" in text for text in said)


def test_two_at_once_make_every_run_once_and_agree(model, data, tmp_path):
    results = {}

    def work(name):
        workspace = Workspace(model, data, tmp_path)
        results[name] = {r.seed: result.test for r, result, _ in run_all(workspace, REQUESTS)}

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results["a"] == results["b"]
    assert set(results["a"]) == {0, 1, 2}
    assert len(list(tmp_path.glob("*-seed*"))) == 3
