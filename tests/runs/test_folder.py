from __future__ import annotations

import numpy as np
import pytest

from unsee import RunError, Scores
from unsee.answers.evaluation import BeforeAfter
from unsee.methods.presets import resolve
from unsee.runs.folder import RunFolder, is_finished, read_config, read_result
from unsee.runs.records import ConfigRecord, DataRecord, ModelRecord, ResultRecord, SplitRecord
from unsee.types import Generation, Ledger


def generation(number, losses=(1.5, 2.5), **more):
    ledger = {"candidates": 2 * number}
    return Generation(number, np.array(losses), 2 * number, 0, Scores(0.5, 0.4, 0.6), ledger=ledger, **more)


def config(seed=0):
    settings = resolve({}, method="lcs", preset="paper", seed=seed, data="demo", width=512, classes=2, shots=1)
    return ConfigRecord(
        unsee="0",
        epoch=1,
        settings=settings,
        forget=("cat",),
        class_names=("cat", "dog"),
        model=ModelRecord(name="m", fingerprint="f"),
        data=DataRecord(name="d", split_seed=None, fingerprint="f", pixels="p"),
        split=SplitRecord(train=(0, 1), valid=(2, 3)),
        skipped_images=(),
        versions={},
    )


def result():
    scores = Scores(0.5, 0.5, 0.5)
    return ResultRecord(
        method="lcs",
        preset="paper",
        seed=0,
        model="m",
        data="d",
        forget=("cat",),
        zero_shot=scores,
        valid=scores,
        test=scores,
        label_mask=scores,
        per_class={},
        entropy_forgotten=BeforeAfter(0.5, None),
        access="confidences",
        ledger=Ledger(),
        seconds={"tuning": 1.0},
        train=scores,
    )


def make(folder, count=3):
    with RunFolder.create(folder, config()) as run:
        for number in range(1, count + 1):
            run.append(generation(number, losses=(0.1 * number, 1 / 3)))
    return folder


def test_a_run_reads_back_what_was_written_to_the_last_bit(tmp_path):
    folder = make(tmp_path / "run")
    with RunFolder.open(folder) as run:
        assert run.config == config()
        assert [g.number for g in run.history] == [1, 2, 3]
        assert run.history[0].losses.tolist() == [0.1, 1 / 3]
        assert run.history[0].valid == Scores(0.5, 0.4, 0.6)


@pytest.mark.parametrize("cut", [1, 5, 40, 150])
def test_a_half_written_last_line_is_dropped_and_written_again(tmp_path, cut):
    whole = make(tmp_path / "whole")
    killed = make(tmp_path / "killed")
    for name in ("checkpoint.jsonl",):
        content = (killed / name).read_bytes()
        (killed / name).write_bytes(content[:-cut])
    with RunFolder.open(killed) as run:
        assert len(run.history) == (2 if cut > 1 else 3)
        for number in range(len(run.history) + 1, 4):
            run.append(generation(number, losses=(0.1 * number, 1 / 3)))
    for name in ("checkpoint.jsonl", "journal.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_a_half_written_journal_line_without_its_checkpoint_line_is_dropped(tmp_path):
    folder = make(tmp_path / "run")
    with (folder / "journal.jsonl").open("a") as out:
        out.write('{"generation": 4, "cand')
    with RunFolder.open(folder) as run:
        run.append(generation(4))
    assert len((folder / "journal.jsonl").read_text().splitlines()) == 4


def test_damage_in_the_middle_is_an_error_that_names_the_line(tmp_path):
    folder = make(tmp_path / "run")
    path = folder / "checkpoint.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1].replace("0.2", "0.3", 1) + lines[2])
    with pytest.raises(RunError, match="line 2 is damaged"):
        RunFolder.open(folder)
    path.write_text(lines[0] + lines[2])
    with pytest.raises(RunError, match="line 2 is generation 3, not 2"):
        RunFolder.open(folder)


def test_a_folder_that_holds_a_run_is_not_taken_without_asking(tmp_path):
    folder = make(tmp_path / "run")
    with pytest.raises(RunError, match=r"already holds a run; continue it with: unsee resume .* --overwrite"):
        RunFolder.create(folder, config())
    with RunFolder.create(folder, config(2), overwrite=True):
        pass
    assert read_config(folder) == config(), "a run without a generation leaves the earlier one as it was"
    with RunFolder.create(folder, config(2), overwrite=True) as run:
        run.append(generation(1))
    assert read_config(folder) == config(2)
    assert len((folder / "journal.jsonl").read_text().splitlines()) == 1


def test_overwriting_removes_only_the_runs_own_files(tmp_path):
    folder = make(tmp_path / "run")
    (folder / "notes.txt").write_text("mine")
    with RunFolder.create(folder, config(), overwrite=True) as run:
        run.append(generation(1))
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_result_is_deleted_with_the_next_generation_and_not_before(tmp_path):
    with RunFolder.create(tmp_path / "run", config(1)) as run:
        run.append(generation(1))
        run.write_result(result())
    with RunFolder.open(tmp_path / "run") as run:
        run.continue_as(config(2))
    assert is_finished(tmp_path / "run")
    assert read_config(tmp_path / "run") == config(1)
    with RunFolder.open(tmp_path / "run") as run:
        run.continue_as(config(2))
        run.append(generation(2))
    assert not is_finished(tmp_path / "run")
    assert read_config(tmp_path / "run") == config(2)


@pytest.mark.parametrize("keep", [0, 30, -1, -40])
def test_a_journal_that_a_power_cut_took_the_end_of_is_written_again(tmp_path, keep):
    folder = make(tmp_path / "run")
    whole = (folder / "journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(whole[:keep])
    RunFolder.open(folder).close()
    assert (folder / "journal.jsonl").read_bytes() == whole


def test_a_second_writer_is_kept_out(tmp_path):
    folder = make(tmp_path / "run")
    with RunFolder.open(folder), pytest.raises(RunError, match="in use by another"):
        RunFolder.open(folder)
    RunFolder.open(folder).close()


def test_what_is_no_run_says_so(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        read_config(tmp_path)
    with pytest.raises(RunError, match="holds no finished run"):
        read_result(tmp_path)
    (tmp_path / "config.json").write_text('{"half": ')
    with pytest.raises(RunError, match="damaged"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(RunError, match="damaged"):
        read_config(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        RunFolder.create(tmp_path / "file", config())
    with pytest.raises(RunError, match="cannot make the run folder"):
        RunFolder.create(tmp_path / "file" / "below", config())
