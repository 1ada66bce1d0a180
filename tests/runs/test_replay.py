"""Another pycma, NumPy or processor never continues a run as another one, and never replaces a finished prompt."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from unsee import PromptTuner, RunError, load_prompt
from unsee.methods import cma
from unsee.methods.replay import ReplayCheck, sum_of
from unsee.models.black_box import bind
from unsee.runs.checkpoint import read_history, read_state, write_state
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
    tuner = PromptTuner(FORGET, **(SHORT | settings))
    if stop:
        with pytest.raises(Stop):
            tuner.fit(model, data, out=out, watch=stop_at_four)
        return None
    tuner.fit(model, data, out=out)
    tuner.finish(out, bind(model, data.test), data.train.subset(tuner.config_.split.train))
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


@pytest.mark.parametrize("settings", [{}, {"validate": "loss"}])
def test_a_run_of_an_earlier_version_is_resumed_to_the_same_bytes(model, data, tmp_path, settings):
    make(model, data, tmp_path / "whole", **settings)
    make(model, data, tmp_path / "old", stop=True, **settings)
    as_old(tmp_path / "old")
    resume(model, data, tmp_path / "old")
    for name in ("prompt.safetensors", "prompt.json"):
        assert (tmp_path / "old" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_descent_of_an_earlier_version_had_the_best_contexts_in_its_state(model, data, tmp_path):
    whole = make(model, data, tmp_path / "whole", method="coop", population=1)
    make(model, data, tmp_path / "old", stop=True, method="coop", population=1)
    history, _ = read_history(tmp_path / "old" / "checkpoint.jsonl")
    number, state = read_state(tmp_path / "old")
    best = next(generation.best for generation in reversed(history) if generation.best is not None)
    write_state(tmp_path / "old", number, {**state, "best": best.astype(np.float64)})
    as_old(tmp_path / "old")
    again = resume(model, data, tmp_path / "old", budget=4)
    assert np.array_equal(again.contexts_, best)
    assert np.array_equal(resume(model, data, tmp_path / "old", budget=6).contexts_, whole.contexts_)


def test_a_run_of_an_earlier_version_is_checked_by_its_front(model, data, tmp_path, request):
    make(model, data, tmp_path / "run", stop=True)
    assert '"generation":2' in (tmp_path / "run" / "front.jsonl").read_text()
    as_old(tmp_path / "run")
    request.getfixturevalue("other_pycma")
    with pytest.raises(RunError, match="proposes other candidates"):
        resume(model, data, tmp_path / "run")


def test_what_cannot_be_checked_is_refused_under_other_versions(model, data, tmp_path):
    make(model, data, tmp_path / "run", stop=True, validate="loss")
    assert not (tmp_path / "run" / "front.jsonl").exists()
    as_old(tmp_path / "run")
    made_by(tmp_path / "run", numpy="1.0.0")
    with pytest.raises(RunError, match=r"other versions than it was made with \(numpy 1\.0\.0 then, .* kept nothing"):
        resume(model, data, tmp_path / "run")


def test_last_digits_of_another_processor_pass_and_another_order_does_not():
    z = np.random.default_rng(0).standard_normal((20, 40))
    then = Generation(1, np.zeros(20), 20, z_sum=sum_of(z))
    check = ReplayCheck(lambda z: z, "")
    check.same(then, z * (1 + 1e-13))
    for other in (z[::-1], z * (1 + 1e-6)):
        with pytest.raises(RunError, match="the versions are the same, so the processor"):
            check.same(then, other)
