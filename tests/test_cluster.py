"""A grid on a local Ray: the same results as here, also if a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from unsee import InputError, RunError
from unsee.cluster import Worker, run_on_ray
from unsee.grid import Cell, Place, Result, limit_threads, run_all

CELLS = [Cell("lcs", seed, ("cat", "dog"), "paper", {"iterations": 300, "shots": 4}) for seed in range(3)]


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


def kill_one(place: Place, killed: list[int]) -> None:
    """Kills a worker once some run is under way, but none is done."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        under_way = [cell for cell in CELLS if (place.find(cell) / "checkpoint.jsonl").is_file()]
        workers = busy_workers()
        if under_way and workers and not all(place.has(cell) for cell in under_way):
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])
            return
        time.sleep(0.05)


def told(result: Result) -> Result:
    """A result without what the machine spent on it: seconds, and images encoded again after the kill."""
    spent = ("images_encoded", "images_from_cache")
    ledger = {name: count for name, count in result["ledger"].items() if name not in spent}
    return {**result, "seconds": None, "ledger": ledger}


def test_a_run_on_ray_gives_what_it_gives_here(model, data, tmp_path):
    pytest.importorskip("ray")
    cell = Cell("lcs", 0, ("cat", "dog"), "paper", {"iterations": 2, "shots": 2})
    place, alone = Place(model, data, tmp_path / "ray"), Place(model, data, tmp_path / "serial")
    ((_, there, _),) = run_on_ray(Worker(), None, place, [cell])
    with limit_threads(1):  # as the worker has
        ((_, here, _),) = run_all(alone, [cell])
    assert told(there) == told(here)
    for name in ("prompt.safetensors", "prompt.json", "answers.safetensors"):
        assert (place.find(cell) / name).read_bytes() == (alone.find(cell) / name).read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds workers through /proc")
def test_a_killed_worker_costs_nothing_but_time(model, data, tmp_path):
    pytest.importorskip("ray")
    place, killed = Place(model, data, tmp_path / "ray"), []
    killer = threading.Thread(target=kill_one, args=(place, killed))
    killer.start()
    done = {cell.seed: result for cell, result, _ in run_on_ray(Worker(), None, place, CELLS)}
    killer.join()
    assert len(killed) == 1
    assert set(done) == {0, 1, 2}
    alone = Place(model, data, tmp_path / "serial")
    with limit_threads(1):  # as the workers have
        serial = {cell.seed: result for cell, result, _ in run_all(alone, CELLS)}
    for cell in CELLS:
        assert told(done[cell.seed]) == told(serial[cell.seed])
        for name in ("prompt.safetensors", "prompt.json", "answers.safetensors", "picture.png"):
            assert (place.find(cell) / name).read_bytes() == (alone.find(cell) / name).read_bytes()


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "127.0.0.1:nine"])
def test_a_cluster_that_is_not_there_is_named_at_once(address, model, data, tmp_path):
    pytest.importorskip("ray")
    started = time.monotonic()
    with pytest.raises(RunError, match=f"no Ray cluster at {address} .*RAY_AUTH_TOKEN"):
        list(run_on_ray(Worker(), address, Place(model, data, tmp_path), CELLS[:1]))
    assert time.monotonic() - started < 60


def test_a_workers_error_is_the_users_one_line(model, data, tmp_path):
    pytest.importorskip("ray")
    wrong = Cell("lcs", 0, ("catt",), "paper", {"shots": 2})
    with pytest.raises(InputError, match="unknown class to forget 'catt'"):
        list(run_on_ray(Worker(), None, Place(model, data, tmp_path), [wrong]))
