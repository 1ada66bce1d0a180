"""A run killed at any moment and resumed ends with the same bytes as one never stopped."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time

import pytest

from unsee.methods.cma import KINDS

GENERATIONS = 150


def command(*arguments):
    return [sys.executable, "-m", "unsee.cli", *map(str, arguments)]


def losses(run):
    lines = (run / "journal.jsonl").read_text().splitlines()
    return [
        [line[key] for key in ("generation", "best_loss", "mean_loss", "valid_h")] for line in map(json.loads, lines)
    ]


def kill_and_resume(model_folder, image_folder, tmp_path, kind, kills):
    options = ["--model", model_folder, "--forget", "airplane,cat", "--shots", 2, "--iterations", GENERATIONS]
    options += ["--set", f"search={kind}", "--set", "rank=3", "--cache-dir", tmp_path / "cache"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    begin = command("forget", image_folder, *options, "--out", torn)
    go_on = command("resume", torn, "--cache-dir", tmp_path / "cache")
    subprocess.run(
        command("forget", image_folder, *options, "--out", whole), check=True, capture_output=True, env=environment
    )
    chance = random.Random(kind)
    done = 0
    for _ in range(kills):
        running = subprocess.Popen(
            go_on if (torn / "config.json").exists() else begin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        aim = done + chance.randint(0, max(1, 2 * GENERATIONS // kills))
        while running.poll() is None and written(torn) < min(aim, GENERATIONS - 1):
            time.sleep(0.002)
        time.sleep(chance.random() * 0.03)
        running.kill()
        running.wait()
        done = written(torn)
    subprocess.run(go_on, check=True, capture_output=True, env=environment)
    assert losses(torn) == losses(whole)
    for name in ("prompt.safetensors", "prompt.json"):
        assert (torn / name).read_bytes() == (whole / name).read_bytes()
    results = [json.loads((run / "result.json").read_text()) for run in (torn, whole)]
    assert results[0]["test"] == results[1]["test"]
    assert results[0]["ledger"]["candidates"] == results[1]["ledger"]["candidates"] == GENERATIONS * 20


def written(run):
    path = run / "checkpoint.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_twice_ends_with_the_same_bytes(model_folder, image_folder, tmp_path, kind):
    kill_and_resume(model_folder, image_folder, tmp_path, kind, kills=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_twenty_times_ends_with_the_same_bytes(model_folder, image_folder, tmp_path, kind):
    kill_and_resume(model_folder, image_folder, tmp_path, kind, kills=20)
