"""Another pycma, NumPy or processor never continues a run as another one, and never replaces a finished prompt."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from unsee import PromptTuner, RunError, load_prompt
from unsee.methods import cma
from unsee.methods.replay import replay, sum_of
from unsee.methods.search import RandomSearch
from unsee.models.black_box import bind
from unsee.runs.checkpoint import read_history
from unsee.runs.folder import read_config
from unsee.types import Generation

FORGET = ["airplane", "cat"]
SHORT = {"iterations": 6, "shots": 2, "population": 6, "contexts": 4, "shared": 20, "own": 5}
ADDED = ("z_sum", "best", "shape", "entered", "warnings")  # to a line of the checkpoint, by this version


class Stop(Exception):
    pass


def stop_at_four(generation, settings):
    if generation.number == 4:
        raise Stop


def make(model, data, out, *, stop=False, **settings):
    tuner = PromptTuner(FORGET, "lcs", **(SHORT | settings))
    if stop:
        with pytest.raises(Stop):
            tuner.fit(model, data, out=out, watch=stop_at_four)
        return None
    tuner.fit(model, data, out=out)
    tuner.finish(out, bind(model, data.test))
    return tuner


def resume(model, data, out, **more):
    return PromptTuner.from_config(read_config(out)).resume(model, data, out, **more)


def files(run):
    return {path.name: path.read_bytes() for path in run.iterdir()}


@pytest.fixture
def other_pycma(monkeypatch):
    """A release of pycma with another constant."""
    options = cma._options
    monkeypatch.setattr(cma, "_options", lambda *given: options(*given) | {"CMA_cmean": 0.9})


def made_by(run, **versions):
    config = json.loads((run / "config.json").read_text())
    config["versions"] |= versions
    (run / "config.json").write_text(json.dumps(config))


def as_old(run):
    """The checkpoint as earlier versions wrote it."""
    lines = []
    for line in (run / "checkpoint.jsonl").read_text().splitlines():
        body = {name: value for name, value in json.loads(line[9:]).items() if name not in ADDED}
        text = json.dumps(body, separators=(",", ":"))
        lines.append(f"{zlib.crc32(text.encode()):08x} {text}\n")
    (run / "checkpoint.jsonl").write_text("".join(lines))


def test_a_finished_run_keeps_its_prompt_under_another_pycma(model, data, tmp_path, request):
    make(model, data, tmp_path / "run")
    before = files(tmp_path / "run")
    request.getfixturevalue("other_pycma")
    again = resume(model, data, tmp_path / "run")
    assert files(tmp_path / "run") == before
    assert np.array_equal(again.contexts_, load_prompt(tmp_path / "run").contexts)


def test_an_interrupted_run_is_refused_by_a_pycma_that_proposes_other_candidates(model, data, tmp_path, request):
    make(model, data, tmp_path / "run", stop=True)
    made_by(tmp_path / "run", cma="4.4.9")
    before = files(tmp_path / "run")
    request.getfixturevalue("other_pycma")
    with pytest.raises(RunError, match=r"other candidates in generation 2 than the run had \(cma 4\.4\.9 then") as told:
        resume(model, data, tmp_path / "run")
    assert "\n" not in str(told.value)
    assert files(tmp_path / "run") == before


def test_other_versions_that_propose_the_same_candidates_are_a_warning(model, data, tmp_path):
    make(model, data, tmp_path / "whole")
    make(model, data, tmp_path / "run", stop=True)
    made_by(tmp_path / "run", cma="4.4.9")
    said = []
    again = resume(model, data, tmp_path / "run", say=said.append)
    assert any("cma 4.4.9 then" in text for text in said)
    assert any("cma 4.4.9 then" in text for text in again.warnings_)
    assert files(tmp_path / "run")["prompt.safetensors"] == files(tmp_path / "whole")["prompt.safetensors"]
    assert resume(model, data, tmp_path / "run").warnings_ == again.warnings_, "and is kept"


def test_the_checkpoint_has_the_best_contexts(model, data, tmp_path):
    tuner = make(model, data, tmp_path / "run")
    history, _ = read_history(tmp_path / "run" / "checkpoint.jsonl")
    kept = [generation.best for generation in history if generation.best is not None]
    assert np.array_equal(kept[-1], tuner.contexts_)
    assert all((g.best is None) == (g.chosen is None) for g in history)


def test_a_run_that_kept_nothing_to_check_by_is_refused(model, data, tmp_path):
    make(model, data, tmp_path / "run", stop=True)
    as_old(tmp_path / "run")
    with pytest.raises(RunError, match="an earlier unsee made it"):
        resume(model, data, tmp_path / "run")


def test_a_generation_that_an_old_budget_cut_is_asked_again(model, data, tmp_path):
    make(model, data, tmp_path / "whole")
    make(model, data, tmp_path / "cut", stop=True)
    path = tmp_path / "cut" / "checkpoint.jsonl"
    *lines, last = path.read_text().splitlines()
    text = last[9:].replace('"losses":[', '"partial":true,"losses":[')
    path.write_text("".join(f"{line}\n" for line in [*lines, f"{zlib.crc32(text.encode()):08x} {text}"]))
    assert len(read_history(path)[0]) == 3
    resume(model, data, tmp_path / "cut")
    for name in ("prompt.safetensors", "prompt.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_last_digits_of_another_processor_pass_and_another_order_does_not():
    z = np.random.default_rng(0).standard_normal((20, 40))
    then = Generation(1, np.zeros(20), 20, z_sum=sum_of(z))

    def told(asked):
        search = RandomSearch(40, np.random.default_rng(0))
        search.ask = lambda: asked
        replay(search, [then])

    told(z * (1 + 1e-13))
    for other in (z[::-1], z * (1 + 1e-6)):
        with pytest.raises(RunError, match="the versions are the same, so the processor"):
            told(other)
