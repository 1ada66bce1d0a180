"""Callbacks follow a run; the ready ones send it to the real trackers, where these are installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import unsee
from unsee import Callback, InputError, MissingExtra, PromptTuner
from unsee.cli import main
from unsee.runs.trackers import TRACKERS, MLflow, TensorBoard, WandB, make_tracker
from unsee.settings import TRACKER_NAMES

FORGET = ["bird", "cat"]
SHORT = {"iterations": 3, "shots": 2, "population": 6}


class Notes:
    """Writes down what it is told."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.seen: list[object] = []
        self.fail_at = fail_at

    def on_start(self, config):
        self.seen.append(("start", config.forget))

    def on_generation(self, generation, settings):
        self.seen.append((generation.number, settings.generations))
        if generation.number == self.fail_at:
            raise KeyboardInterrupt

    def on_end(self, result, error):
        self.seen.append(("end", result and result.test, type(error)))


def test_a_callback_is_told_of_the_start_every_generation_and_the_end(model, data, tmp_path):
    notes, watched = Notes(), []
    assert isinstance(notes, Callback)
    tuner = PromptTuner(FORGET, **SHORT)
    tuner.fit(model, data, callbacks=[notes], watch=lambda generation, settings: watched.append(generation.number))
    generations = [(1, 3), (2, 3), (3, 3)]
    assert notes.seen == [("start", ("bird", "cat")), *generations, ("end", None, type(None))]
    assert watched == [1, 2, 3]
    notes = Notes()
    tuner.fit(model, data, out=tmp_path / "run", test=data.test, callbacks=[notes])
    assert notes.seen[-1] == ("end", tuner.score(data.test), type(None))
    notes = Notes()
    tuner.resume(model, data, tmp_path / "run", iterations=4, callbacks=[notes])
    assert notes.seen == [("start", ("bird", "cat")), (4, 4), ("end", None, type(None))]


def test_a_callback_that_was_started_is_ended_whatever_happens(model, data, tmp_path):
    first, second = Notes(), Notes(fail_at=2)
    with pytest.raises(KeyboardInterrupt):
        PromptTuner(FORGET, **SHORT).fit(model, data, out=tmp_path / "run", callbacks=[first, second])
    for notes in (first, second):
        assert notes.seen[-2:] == [(2, 3), ("end", None, KeyboardInterrupt)]
    assert len((tmp_path / "run" / "journal.jsonl").read_text().splitlines()) == 2, "it can be resumed from there"


def test_what_is_no_callback_is_refused_in_one_line(model, data):
    with pytest.raises(InputError, match="a callback has on_start, on_generation and on_end, unlike 3"):
        PromptTuner(FORGET, **SHORT).fit(model, data, callbacks=[3])


def test_the_command_line_knows_every_tracker(tmp_path):
    assert tuple(TRACKERS) == TRACKER_NAMES
    with pytest.raises(InputError, match="unknown tracker 'mlflw'; did you mean 'mlflow'"):
        make_tracker("mlflw", tmp_path)


@pytest.mark.parametrize(
    ("name", "library"), [("mlflow", "mlflow.tracking"), ("tensorboard", "tensorboard"), ("wandb", "wandb")]
)
def test_a_library_that_is_missing_is_named_with_its_install_line(name, library, monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(MissingExtra, match=rf"needs the package {name}; install it with: .*\[{name}\]"):
        make_tracker(name, tmp_path)
    assert main(["forget", "demo", "--forget", "cat", "--track", name, "--out", str(tmp_path / "run")]) == 1
    assert f"this needs the package {name}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_was_written(model, data, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tuner = PromptTuner(FORGET, **SHORT)
    tuner.fit(model, data, out=tmp_path / "run", test=data.test, callbacks=[TensorBoard(tmp_path / "events")])
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    found = [(each.step, each.value) for each in events.Scalars("valid/h")]
    assert found == [(g.number, pytest.approx(g.valid.h)) for g in tuner.history_]
    assert events.Scalars("test/prompt_alone_h")[0].value == pytest.approx(tuner.score(data.test).h)
    assert b"bird, cat" in events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlflow_keeps_settings_metrics_and_how_the_run_ended(model, data, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the other stores need more than the skinny package has
    uri = (tmp_path / "mlruns").as_uri()
    tuner = PromptTuner(FORGET, **SHORT)
    tuner.fit(model, data, out=tmp_path / "run", test=data.test, callbacks=[MLflow(uri=uri)])
    with pytest.raises(KeyboardInterrupt):
        tuner.fit(model, data, callbacks=[MLflow(uri=uri), Notes(fail_at=1)])
    client = MlflowClient(tracking_uri=uri)
    place = client.get_experiment_by_name("unsee").experiment_id
    failed, done = client.search_runs([place], order_by=["attributes.start_time DESC"])
    assert (done.info.status, failed.info.status) == ("FINISHED", "FAILED")
    assert done.data.params["forget"] == "bird, cat"
    assert done.data.params["shots"] == "2"
    assert done.data.metrics["test/prompt_alone_h"] == pytest.approx(tuner.score(data.test).h)
    history = client.get_metric_history(done.info.run_id, "loss/best")
    assert [(m.step, m.value) for m in history] == [(g.number, pytest.approx(g.losses.min())) for g in tuner.history_]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_keeps_a_run_offline(model, data, tmp_path):
    pytest.importorskip("wandb")
    tracker = WandB(mode="offline", dir=str(tmp_path))
    tuner = PromptTuner(FORGET, **SHORT).fit(model, data, out=tmp_path / "run", test=data.test, callbacks=[tracker])
    (stored,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    content = stored.read_bytes()
    for generation in tuner.history_:
        assert json.dumps(float(generation.losses.min())).encode() in content
    for text in (b"loss/best", b"bird, cat", b"test/prompt_alone_h", json.dumps(tuner.score(data.test).h).encode()):
        assert text in content


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forget_sends_a_run_to_tensorboard(image_folder, model_folder, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    given = ["--model", str(model_folder), "--forget", "cat", "--iterations", "2", "--shots", "2", "--json"]
    out = tmp_path / "run"
    assert main(["forget", str(image_folder), *given, "--out", str(out), "--track", "tensorboard"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["run"]) == out
    assert list((out / "tensorboard").glob("events.*"))
    assert main(["resume", str(out), "--iterations", "3", "--track", "tensorboard"]) == 0
    assert len(list((out / "tensorboard").glob("events.*"))) == 2


def test_trackers_are_public():
    assert (unsee.TensorBoard, unsee.MLflow, unsee.WandB) == (TensorBoard, MLflow, WandB)
