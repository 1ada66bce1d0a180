"""Every method, stopped anywhere in any way and resumed, ends with the bytes of a run that was never stopped."""

from __future__ import annotations

import json
import random

import pytest

from unsee import PromptTuner
from unsee.methods.registry import METHODS
from unsee.runs.folder import is_finished, read_config

FORGET = ["airplane", "cat"]
ITERATIONS = 5
LARGE = ("scratch-resnet18", "scratch-vit")  # whose checkpoints are hundreds of megabytes
ARTEFACTS = ("prompt.safetensors", "prompt.json", "weights.safetensors")


class Killed(Exception):
    pass


def settings_of(method, validate, seed):
    own = METHODS[method].settings
    population = {"gradient": 1, "two-sided": 6}.get(own.get("search"), 5)
    settings = {"iterations": ITERATIONS, "shots": 2, "population": population, "seed": seed, "save_weights": True}
    if "views" in own | METHODS[method].paper:
        settings |= {"preset": "paper", "batch": 7}  # 20 shots: two steps are an epoch, and a view
    fixed = "validate" in own or population == 1 or own.get("search") == "guided"
    return settings if fixed else settings | {"validate": validate}


def journal_of(run):
    lines = (run / "journal.jsonl").read_text().splitlines() if (run / "journal.jsonl").exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def losses(run):
    return [[value for key, value in line.items() if key != "seconds"] for line in journal_of(run)]


def kill_at(number):
    def watch(generation, settings):
        if generation.number >= number:
            raise Killed

    return watch


def half_written(run, chance):
    """Leaves half a line at the end of a journal, as a kill while it was written does."""
    if chance.random() < 0.5:
        with (run / "journal.jsonl").open("ab") as journal:
            journal.write(b'{"generation": 99, "cand')
    if chance.random() < 0.5 and not (run / "checkpoint.safetensors").exists():  # which is written after the line
        content = (run / "checkpoint.jsonl").read_bytes()
        (run / "checkpoint.jsonl").write_bytes(content[: -chance.randint(1, len(content.splitlines()[-1]))])


def resume(model, data, out, **longer):
    return PromptTuner.from_config(read_config(out)).resume(model, data, out, **longer)


def stop_and_resume(model, data, out, method, settings, chance):
    """Stops a run one to three times, in ways drawn by chance, and resumes it to its end."""
    first = 20 if method == "guided" else settings["population"]
    limit = first + ITERATIONS * settings["population"] if method == "guided" else ITERATIONS * settings["population"]
    done = 0
    for _ in range(chance.randint(1, 3)):
        begun = (out / "config.json").exists()
        how = chance.choice(["kill", "budget"] + (["iterations"] if not METHODS[method].planned_steps else []))
        if done >= limit - 1:
            break
        if how == "kill":
            at = chance.randint(min(ITERATIONS, done // settings["population"] + 1), ITERATIONS)
            try:
                if begun:
                    resume(model, data, out, watch=kill_at(at), budget=limit, iterations=ITERATIONS)
                else:
                    PromptTuner(FORGET, method, **settings).fit(model, data, out=out, watch=kill_at(at))
            except Killed:
                half_written(out, chance)
        else:
            least = max(done + 1, first)  # a budget is one generation at least
            stop = chance.randint(min(least, limit - 1), limit - 1)
            shorter = (
                {"budget": stop}
                if how == "budget"
                else {"iterations": min(ITERATIONS, -(-stop // settings["population"]))}
            )
            if begun:
                now = {"iterations": read_config(out).settings.iterations, "budget": limit}
                resume(model, data, out, **(now | shorter))
            else:
                PromptTuner(FORGET, method, **(settings | shorter)).fit(model, data, out=out)
        done = max((line["candidates"] for line in journal_of(out)), default=0)
    return resume(model, data, out, budget=limit, iterations=ITERATIONS)


def check(model, data, tmp_path, method, trials):
    chance = random.Random(f"{method} {trials}")
    wholes = {}
    for trial in range(trials):
        validate, seed = chance.choice(["every", "generation", "2", "loss"]), chance.randint(0, 1)
        settings = settings_of(method, validate, seed)
        key = (settings.get("validate"), seed)
        whole = tmp_path / f"whole-{key}"
        if key not in wholes:
            wholes[key] = PromptTuner(FORGET, method, **settings).fit(model, data, out=whole).predict(data.test)
        cut = tmp_path / f"cut-{trial}"
        again = stop_and_resume(model, data, cut, method, settings, chance)
        assert not is_finished(cut)
        assert losses(cut) == losses(whole), (trial, settings)
        assert again.predict(data.test) == wholes[key]
        for name in ARTEFACTS:
            assert (cut / name).exists() == (whole / name).exists()
            if (cut / name).exists():
                assert (cut / name).read_bytes() == (whole / name).read_bytes(), (trial, settings, name)
        for path in cut.iterdir():
            path.unlink()


UNTUNED = [name for name, method in METHODS.items() if method.settings.get("iterations") == 1]
STOPPED = [name for name in METHODS if name not in UNTUNED]


# A sample: one of each kind of search. `tests/test_tuner.py` interrupts the others once.
@pytest.mark.parametrize("method", ["lcs", "bbt-sep", "bbt-vkd", "cbbt", "cbbt-own", "zip", "coop", "c-emb"])
def test_a_run_stopped_anywhere_ends_with_the_same_bytes(model, data, tmp_path, method):
    check(model, data, tmp_path, method, trials=1)


@pytest.mark.slow
@pytest.mark.parametrize("method", STOPPED)
def test_a_thousand_runs_stopped_anywhere_end_with_the_same_bytes(model, data, tmp_path, method):
    trials = 4 if method in LARGE else 56  # 20 methods: 18 x 56 + 2 x 4 = 1,016
    check(model, data, tmp_path, method, trials)


@pytest.mark.parametrize("method", UNTUNED)
def test_methods_that_tune_nothing_are_resumed_as_they_are(model, data, tmp_path, method):
    whole = PromptTuner(FORGET, method, shots=2).fit(model, data, out=tmp_path / "run")
    again = resume(model, data, tmp_path / "run")
    assert again.predict(data.test) == whole.predict(data.test)
    assert again.valid_ == whole.valid_
