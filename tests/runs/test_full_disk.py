"""A disk that is full or may not be written to is one line that says so, and the run can be resumed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from unsee import PromptTuner, RunError
from unsee.cli import main
from unsee.errors import RunInUse, WriteError
from unsee.files import append, write_bytes
from unsee.runs.folder import RunFolder, read_config

FORGET = ["airplane", "cat"]
SHORT = {"iterations": 6, "shots": 2, "population": 6}
NOBODY = 65534


@contextmanager
def room_for(size):
    """No file may be longer than this many bytes: a full disk that stops root as well."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@contextmanager
def unprivileged():
    """As a user who is not root: root may write everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder that other users may look into, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def files(run):
    return {path.name: path.read_bytes() for path in run.iterdir() if path.name != ".lock"}


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(model_folder, image_folder, tmp_path, capsys):
    common = ["--model", str(model_folder), "--cache-dir", str(tmp_path / "cache")]
    begin = ["forget", str(image_folder), "--forget", "airplane,cat", "--shots", "2", "--iterations", "6", *common]
    assert main([*begin, "--out", str(tmp_path / "whole")]) == 0
    capsys.readouterr()
    size = (tmp_path / "whole" / "front.jsonl").stat().st_size
    run = tmp_path / "run"
    with room_for(size // 2):
        assert main([*begin, "--out", str(run)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"error: cannot write {run / 'front.jsonl'}: File too large; once there is room")
    assert said.endswith(f"unsee resume {run}")
    assert main(["resume", str(run), *common]) == 0
    for name in ("prompt.safetensors", "front.jsonl"):
        assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_state_that_does_not_fit_leaves_the_one_before_it(model, data, tmp_path):
    PromptTuner(FORGET, "finetune", budget=3, **(SHORT | {"population": 1})).fit(model, data, out=tmp_path / "run")
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    tuner = PromptTuner.from_config(read_config(tmp_path / "run"))
    message = r"cannot write .*checkpoint\.safetensors: .*; once there is room"
    with pytest.raises(WriteError, match=message), room_for(len(before) // 2):
        tuner.resume(model, data, tmp_path / "run", budget=6)
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before
    assert not list((tmp_path / "run").glob(".checkpoint*"))


def test_without_room_for_a_new_run_the_one_before_it_stays(model, data, tmp_path):
    PromptTuner(FORGET, **SHORT).fit(model, data, out=tmp_path / "run")
    before = files(tmp_path / "run")
    with pytest.raises(WriteError, match=r"cannot write .*config\.json: File too large$"), room_for(100):
        PromptTuner(FORGET, seed=1, **SHORT).fit(model, data, out=tmp_path / "run", overwrite=True)
    assert files(tmp_path / "run") == before


def test_a_folder_that_may_not_be_written_to_is_not_said_to_be_in_use(model, data, open_folder, capsys):
    run = open_folder / "run"
    PromptTuner(FORGET, **SHORT).fit(model, data, out=run)
    for path in (run, *run.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with unprivileged(), pytest.raises(WriteError, match=f"cannot write to {run}: Permission denied") as told:
        RunFolder.open(run)
    assert not isinstance(told.value, RunInUse)
    open_folder.chmod(0o555)
    with unprivileged(), pytest.raises(RunError, match=r"cannot make the run folder .*: Permission denied"):
        RunFolder.create(open_folder / "another", read_config(run))
    run.chmod(0o755)


def test_the_disk_says_what_could_not_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=f"cannot write {tmp_path}/file/below: Not a directory"):
        write_bytes(tmp_path / "file" / "below", b"content")
    with pytest.raises(WriteError, match="cannot write /dev/full: No space left on device"):
        append(Path("/dev/full"), b"content")
    with pytest.raises(OSError, match="cannot write"):  # which it is, for whoever expects one
        append(tmp_path / "file" / "below", b"content")


def test_any_other_trouble_with_files_is_one_line_too(tmp_path, capsys, monkeypatch):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError, match="symbolic links"):
        (tmp_path / "loop").read_bytes()
    monkeypatch.setattr("unsee.runs.prompt.load_prompt", lambda run: (tmp_path / "loop").read_bytes())
    assert main(["classify", str(tmp_path), "image.png"]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'loop'}: Too many levels of symbolic links\n"
