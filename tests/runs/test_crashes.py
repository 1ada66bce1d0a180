"""A crash at any write of a run: what is left can be resumed to the same bytes.

Power cuts included: what was not synchronised may be lost, of every file or of any one.
"""

from __future__ import annotations

import json
import shutil

import pytest

import unsee
from tests import tiny
from tests.runs.crashes import Disk, write_state
from unsee import PromptTuner, RunError, files
from unsee.methods.registry import METHODS
from unsee.models import FeatureCache
from unsee.models.black_box import bind
from unsee.runs.folder import read_config

FORGET = ["bird"]
ITERATIONS = 2


@pytest.fixture(scope="module")
def small(tmp_path_factory, model_folder):
    """A model that keeps features, and few images: most of the time is spent on files."""
    folder = tmp_path_factory.mktemp("small")
    images = tiny.write_images(folder / "images", names=tiny.NAMES[:4], train=4, test=2)
    return unsee.load_model(model_folder, cache=FeatureCache(folder / "cache")), unsee.load_data(images)


def settings_of(method, tmp_path):
    own = METHODS[method].settings
    settings = {"iterations": ITERATIONS, "shots": 2, "save_weights": METHODS[method].trains_weights}
    settings["population"] = 1 if own.get("search") == "gradient" else 4
    if own.get("parametrization") == "shared":
        settings |= {"contexts": 1, "shared": 2, "own": 2}
    if method in ("scratch-resnet18", "scratch-vit"):
        write = tiny.write_resnet if method == "scratch-resnet18" else tiny.write_vit
        settings |= {"weights": str(write(tmp_path / "weights")), "image_size": 48}
    return settings


def finish(tuner, data, out):
    return tuner.finish(out, bind(tuner.model_, data.test))


def run(small, method, settings, out):
    """A run that is made, or resumed if there is one, with the lengths of these settings."""
    model, data = small
    if (out / "config.json").exists():
        longer = {name: settings.get(name) for name in ("iterations", "budget")}
        tuner = PromptTuner.from_config(read_config(out)).resume(model, data, out, **longer)
    else:
        tuner = PromptTuner(FORGET, method, **settings).fit(model, data, out=out)
    finish(tuner, data, out)


def contents(run):
    """All files of a run, without times and without how often images were encoded."""
    return {path.name: _without_times(path) for path in sorted(run.iterdir()) if path.name != ".lock"}


def _without_times(path):
    if path.suffix not in (".json", ".jsonl"):
        return path.read_bytes()
    texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    found = [json.loads(text[text.index("{") :]) for text in texts]
    for record in found:
        record.pop("seconds", None)
        for name in ("images_encoded", "images_from_cache"):
            record.get("ledger", {}).pop(name, None)
    return found


def check(small, tmp_path, monkeypatch, method, **shorter):
    """Crashes a run everywhere, or its continuation from a shorter one, and resumes it."""
    settings = settings_of(method, tmp_path)
    if shorter:
        settings["budget"] = ITERATIONS * settings["population"]
        run(small, method, settings | shorter, tmp_path / "whole")
    with monkeypatch.context() as patches:
        disk = Disk(tmp_path / "whole", patches)
        run(small, method, settings, tmp_path / "whole")
    wanted = contents(tmp_path / "whole")
    assert wanted["result.json"][0]["ledger"]["generations"] == ITERATIONS or METHODS[method].untuned
    written = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir() if path.name != ".lock"}
    assert {name: kept for name, kept in disk.end.items() if name != ".lock"} == written
    monkeypatch.setattr(files, "_sync", lambda path: None)  # no further crash comes
    tried = 0
    for state in disk.crashes():
        left = write_state(state, tmp_path / "crashed")
        run(small, method, settings, left)
        assert contents(left) == wanted, sorted(state)
        shutil.rmtree(left)
        tried += 1
    return tried


@pytest.mark.parametrize("method", ["lcs", "coop"])
def test_a_crash_at_any_write_is_resumed_to_the_same_bytes(small, tmp_path, monkeypatch, method):
    assert check(small, tmp_path, monkeypatch, method) > 20


def test_a_crash_while_a_finished_run_is_made_longer_is_resumed_to_the_same_bytes(small, tmp_path, monkeypatch):
    assert check(small, tmp_path, monkeypatch, "lcs", budget=4) >= 20


MENDED = ("journal.jsonl", "prompt.json", "prompt.safetensors", "checkpoint.jsonl", "front.jsonl")


@pytest.mark.parametrize("method", ["lcs", "coop"])
def test_a_file_cut_in_half_is_mended_or_refused_in_one_line(small, tmp_path, method):
    settings = settings_of(method, tmp_path)
    run(small, method, settings, tmp_path / "whole")
    wanted = contents(tmp_path / "whole")
    mended = MENDED if method == "lcs" else MENDED[:3]  # a descent's state cannot be ahead of its history
    for name in (name for name in wanted if name.startswith(("c", "f", "j", "prompt", "result"))):
        cut = shutil.copytree(tmp_path / "whole", tmp_path / name)
        content = (cut / name).read_bytes()
        (cut / name).write_bytes(content[: len(content) // 2])
        if name == "checkpoint.safetensors":
            (cut / "prompt.json").unlink()  # else a finished run does not need it
        refusal = refused(lambda cut=cut: run(small, method, settings, cut))
        if refusal is None:
            assert name not in ("config.json", "result.json", "checkpoint.safetensors")
            assert contents(cut) == wanted, name
        else:
            assert name not in mended
            assert "\n" not in refusal


def refused(work):
    try:
        work()
    except RunError as error:
        return str(error)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_survives_a_crash_at_any_write(small, tmp_path, monkeypatch, method):
    monkeypatch.setattr("unsee.runs.folder.SYNC_EVERY", 0.0)  # lose as little as can be
    assert check(small, tmp_path, monkeypatch, method) > 10
