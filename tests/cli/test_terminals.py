"""Narrow terminals and terminals that are not UTF-8: nothing is cut, nothing fails."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import pytest
from rich.table import Table

from tests import tiny
from unsee.cli import main
from unsee.cli.console import Console
from unsee.cli.encoding import never_fail
from unsee.models.families import FAMILIES
from unsee.text_table import TextTable

INTERVALS = ["98.7 % (97.1–99.4)", "0.893 (0.871–0.912)", "+12.3 (+10.1 to +14.5)"]


@pytest.fixture
def columns(monkeypatch):
    def choose(width):
        monkeypatch.setenv("COLUMNS", str(width))
        return width

    return choose


@pytest.mark.parametrize("width", [60, 80, 120])
def test_ids_and_paths_are_never_cut(width, columns, capsys, tmp_path):
    columns(width)
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert all(family.write in text for family in FAMILIES if " " not in family.write)
    folder = tmp_path / ("long-folder-name-" * 3)
    assert main(["data", "--data-dir", str(folder)]) == 0
    text = capsys.readouterr().out
    assert all(str(folder / name) in text for name in ("cifar100", "imagenet30"))
    assert main(["reproduce"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("table-main", "fig-contexts"))


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("kind", [Table, TextTable])
def test_intervals_are_wrapped_between_words_or_listed(width, kind, columns, capsys):
    columns(width)
    header = ["answers to test images", "before", "as served (mask-top-digit)", "by chance"]
    rows = [["forgotten images recognised", *INTERVALS], ["16-shot probe", *reversed(INTERVALS)]]
    if kind is Table:
        table = Table(*header, title="the title", caption="the caption")
        for row in rows:
            table.add_row(*row)
    else:
        table = TextTable(header, rows)
    Console().show({}, [table])
    text = capsys.readouterr().out
    for word in " ".join([*header, *rows[0], *rows[1]]).split():
        assert word in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    if kind is Table:
        assert "the title" in text
        assert "the caption" in text


def test_a_table_that_fits_is_as_wide_as_its_words(columns, capsys):
    columns(80)
    table = Table("a", "b")
    table.add_row("one two three", "4")
    Console().show({}, [table])
    assert "│ one two three │ 4 │" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["forget", "--help"], ["models"], ["reproduce"], ["forget", "demo", "--forget", "café"], ["lçs"]],
)
def test_a_terminal_that_is_not_utf8_gets_ascii(arguments):
    command = [sys.executable, "-m", "unsee", *arguments]
    done = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=False)
    assert b"Traceback" not in done.stderr
    (done.stdout + done.stderr).decode("ascii")
    assert done.returncode in (0, 1, 2)
    if arguments == ["models"]:
        assert b"RN50 ... RN50x64" in done.stdout


def test_json_on_such_a_terminal_has_the_same_names(tmp_path, model_folder, monkeypatch):
    photos = tiny.write_images(tmp_path / "photos", names=("café", "naïve", "cat"), train=4, test=2)
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    never_fail(screen)
    monkeypatch.setattr(sys, "stdout", screen)
    common, run = ["--model", str(model_folder), "--no-cache"], str(tmp_path / "run")
    options = ["--forget", "cat", "--shots", "2", "--iterations", "1", "--out", run, "--json"]
    assert main(["forget", str(photos), *options, *common]) == 0
    screen.flush()
    assert set(json.loads(screen.buffer.getvalue().decode("ascii"))["per_class"]) == {"café", "naïve", "cat"}
    assert main(["evaluate", run, *common]) == 0
    screen.flush()
    assert b"| caf\\xe9  |" in screen.buffer.getvalue()


def test_a_file_name_that_is_no_text_is_printed_as_its_bytes():
    screen = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    never_fail(screen)
    screen.write(os.fsdecode(b"photo-\xff.png ") + "±")
    screen.flush()
    assert screen.buffer.getvalue() == b"photo-\xff.png " + "±".encode()


HOSTILE = "cat\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202egpj\udc9b"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\udc80-\udc9f]")


@pytest.mark.parametrize(
    "part", [HOSTILE, TextTable([HOSTILE], [[HOSTILE]], HOSTILE), Table(HOSTILE, title=HOSTILE, caption=HOSTILE)]
)
def test_names_cannot_command_the_terminal(part, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    Console().say(HOSTILE)
    Console().show({}, [part])
    out, err = capsys.readouterr()
    assert not OBEYED.search(out + err)
    assert r"cat\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202egpj" in err
    assert r"cat\x1b]0;owned" in out


def test_names_in_json_cannot_command_the_terminal_and_stay_the_same(capsys):
    Console(as_json=True).show({"name": HOSTILE}, [])
    text = capsys.readouterr().out
    assert not OBEYED.search(text)
    assert json.loads(text) == {"name": HOSTILE}


def test_names_in_errors_cannot_command_the_terminal(tmp_path, capsys):
    name = HOSTILE.replace("\udc9b", "")
    photos = tiny.write_images(tmp_path / "photos", names=(name, "dog"), train=1, test=1)
    assert main(["forget", str(photos), "--forget", "catt"]) == 1
    assert main(["evaluate", str(tmp_path / name)]) == 1
    assert main(["forget", "demo", "--forget", "cat", "--method", name]) == 2
    err = capsys.readouterr().err
    assert not OBEYED.search(err)
    assert err.count(r"\x1b[2J") >= 3


def test_python_m_unsee_is_the_command():
    command = [sys.executable, "-m", "unsee", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "unsee,"), done.stderr
