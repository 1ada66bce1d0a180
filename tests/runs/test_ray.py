"""A grid on a local Ray: the same results as here, also if a worker is killed."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from unsee import InputError, RunError
from unsee.runs.ray import Worker, run_on_ray
from unsee.runs.records import ResultRecord
from unsee.runs.sweep import RunRequest, Workspace, limit_threads, run_all

# Ray's processes write elsewhere than on stderr, so each adds its look-ups to one file.
WATCH = """
import sys
def watch(event, details):
    if event in ("socket.getaddrinfo", "socket.gethostbyname") or (event == "socket.connect" and len(details[1]) > 1):
        open({0!r}, "a").write(repr((event, details)) + "\\n")
open({0!r}, "a").write("watching\\n")
sys.addaudithook(watch)
"""
REQUESTS = [RunRequest("lcs", seed, ("cat", "dog"), "paper", {"iterations": 300, "shots": 4}) for seed in range(3)]


def busy_workers() -> list[int]:
    """Process numbers of Ray workers that are running one of our tasks."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"ray::unsee run" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def kill_one(workspace: Workspace, killed: list[int]) -> None:
    """Kills a worker once some run is under way, but none is done."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        under_way = [request for request in REQUESTS if (workspace.find(request) / "checkpoint.jsonl").is_file()]
        workers = busy_workers()
        if under_way and workers and not all(workspace.has(request) for request in under_way):
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
            return
        time.sleep(0.05)


def told(result: ResultRecord) -> dict:
    """A result without what the machine spent on it: seconds, and images encoded again after the kill."""
    spent = ("images_encoded", "images_from_cache")
    ledger = {name: count for name, count in result.ledger.as_dict().items() if name not in spent}
    return result.model_dump() | {"seconds": None, "ledger": ledger}


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """What Ray's processes have asked of the network beyond this machine."""
    (tmp_path / "sitecustomize.py").write_text(WATCH.format(str(tmp_path / "asked")))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")

    def asked() -> list[str]:
        lines = (tmp_path / "asked").read_text().splitlines()
        assert "watching" in lines
        own = ("'localhost'", f"'{socket.gethostname()}'")  # beside addresses of this machine, which are numbers
        cloud = re.compile(r"'[\w.-]*[a-z][\w.-]*', (None|\d+)|169\.254\.")
        return sorted({line for line in lines if cloud.search(line) and not any(name in line for name in own)})

    return asked


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed <socket", "ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's
def test_a_run_on_ray_gives_what_it_gives_here(model, data, tmp_path, outside):
    pytest.importorskip("ray")
    requests = [
        RunRequest("lcs", 0, ("cat", "dog"), "paper", {"iterations": 2, "shots": 2}),
        RunRequest("guided", 0, ("cat", "dog"), "tuned", {"iterations": 4, "shots": 2}),
    ]
    workspace, alone = Workspace(model, data, tmp_path / "ray"), Workspace(model, data, tmp_path / "serial")
    there = {request.method: result for request, result, _ in run_on_ray(Worker(), None, workspace, requests)}
    with limit_threads(1):  # as the worker has
        here = {request.method: result for request, result, _ in run_all(alone, requests)}
    for request in requests:
        assert told(there[request.method]) == told(here[request.method])
        for name in ("prompt.safetensors", "prompt.json", "answers.safetensors"):
            assert (workspace.find(request) / name).read_bytes() == (alone.find(request) / name).read_bytes()
    gc.collect()  # while its warnings are ignored
    assert outside() == [], "a look-up or a connection beyond this machine"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds workers through /proc")
def test_a_killed_worker_costs_nothing_but_time(model, data, tmp_path):
    pytest.importorskip("ray")
    workspace, killed = Workspace(model, data, tmp_path / "ray"), []
    killer = threading.Thread(target=kill_one, args=(workspace, killed))
    killer.start()
    done = {request.seed: result for request, result, _ in run_on_ray(Worker(), None, workspace, REQUESTS)}
    killer.join()
    assert len(killed) == 1
    assert set(done) == {0, 1, 2}
    alone = Workspace(model, data, tmp_path / "serial")
    with limit_threads(1):  # as the workers have
        serial = {request.seed: result for request, result, _ in run_all(alone, REQUESTS)}
    for request in REQUESTS:
        assert told(done[request.seed]) == told(serial[request.seed])
        for name in ("prompt.safetensors", "prompt.json", "answers.safetensors", "picture.png"):
            assert (workspace.find(request) / name).read_bytes() == (alone.find(request) / name).read_bytes()


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "127.0.0.1:nine"])
def test_a_cluster_that_is_not_there_is_named_at_once(address, model, data, tmp_path):
    pytest.importorskip("ray")
    started = time.monotonic()
    with pytest.raises(RunError, match=f"no Ray cluster at {address} .*RAY_AUTH_TOKEN"):
        list(run_on_ray(Worker(), address, Workspace(model, data, tmp_path), REQUESTS[:1]))
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_a_workers_error_is_the_users_one_line(model, data, tmp_path):
    pytest.importorskip("ray")
    wrong = RunRequest("lcs", 0, ("catt",), "paper", {"shots": 2})
    with pytest.raises(InputError, match="unknown class to forget 'catt'"):
        list(run_on_ray(Worker(), None, Workspace(model, data, tmp_path), [wrong]))
