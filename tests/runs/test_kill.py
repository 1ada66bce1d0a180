"""A run killed at any moment and resumed ends with the same bytes as one never stopped.

Real processes are killed.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

import pytest

from unsee.cli import main
from unsee.methods.cma import KINDS


@pytest.fixture(scope="module")
def start(processes):
    """Starts `unsee` with some arguments in a process of its own."""

    def start(*arguments):
        process = processes.Process(target=run_unsee, args=[list(map(str, arguments))])
        process.start()
        return process

    return start


def run_unsee(arguments):
    for stream in (sys.stdout, sys.stderr):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(main(arguments))


def losses(run):
    lines = (run / "journal.jsonl").read_text().splitlines()
    return [
        [line[key] for key in ("generation", "best_loss", "mean_loss", "valid_h")] for line in map(json.loads, lines)
    ]


def kill_and_resume(start, model_folder, image_folder, tmp_path, kind, generations, kills):
    options = ["--model", model_folder, "--forget", "airplane,cat", "--shots", 2, "--iterations", generations]
    options += ["--set", f"search={kind}", "--set", "rank=3", "--cache-dir", tmp_path / "cache"]
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    begin = ["forget", image_folder, *options, "--out", damaged]
    carry_on = ["resume", damaged, "--cache-dir", tmp_path / "cache"]
    finish(start("forget", image_folder, *options, "--out", whole))
    chance = random.Random(kind)
    done = landed = 0
    for _ in range(kills):
        running = start(*(carry_on if (damaged / "config.json").exists() else begin))
        aim = done + chance.randint(0, max(1, 2 * generations // kills))
        while running.is_alive() and written(damaged) < min(aim, generations - 1):
            time.sleep(0.002)
        time.sleep(chance.random() * 0.03)
        running.kill()
        running.join()
        done = written(damaged)
        landed += 0 < done < generations
    finish(start(*carry_on))
    assert landed, "no kill came in the middle"
    assert losses(damaged) == losses(whole)
    for name in ("prompt.safetensors", "prompt.json"):
        assert (damaged / name).read_bytes() == (whole / name).read_bytes()
    results = [json.loads((run / "result.json").read_text()) for run in (damaged, whole)]
    assert results[0]["test"] == results[1]["test"]
    assert results[0]["ledger"]["candidates"] == results[1]["ledger"]["candidates"] == generations * 20


def finish(process):
    process.join()
    assert process.exitcode == 0


def written(run):
    path = run / "checkpoint.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_run_killed_twice_ends_with_the_same_bytes(start, model_folder, image_folder, tmp_path):
    kill_and_resume(start, model_folder, image_folder, tmp_path, "full", generations=40, kills=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_twenty_times_ends_with_the_same_bytes(start, model_folder, image_folder, tmp_path, kind):
    kill_and_resume(start, model_folder, image_folder, tmp_path, kind, generations=150, kills=20)
