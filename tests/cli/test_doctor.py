"""`unsee doctor`: what is installed, what is missing, with the line that installs it."""

from __future__ import annotations

import json
import platform

import torch

from unsee.cli import main
from unsee.telemetry import SWITCHES


def doctor(capsys, *options):
    assert main(["doctor", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_versions_threads_and_folders_are_those_in_use(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("UNSEE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UNSEE_DATA", str(tmp_path / "data"))
    found = doctor(capsys)
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]  # +cpu, +cu130
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert found["folders"]["cache"] == {"path": str(tmp_path / "cache"), "exists": False}
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "file").write_bytes(bytes(2**20))
    found = doctor(capsys)
    assert found["folders"]["cache"]["exists"]
    assert found["cache"] == {"image features": "1.0 MiB"}


def test_optional_parts_are_there_or_come_with_an_install_line(capsys, monkeypatch):
    parts = doctor(capsys)["parts"]
    assert {"serve", "remote", "parquet", "open-clip", "ray"} <= set(parts)
    assert not {"dev", "docs", "training"} & set(parts)
    for name, part in parts.items():
        assert bool(part["missing"]) == (part["install"] is not None)
        if part["install"]:
            assert "pip install" in part["install"]
            assert f"[{name}]" in part["install"]
    monkeypatch.setattr("unsee.cli.doctor._is_installed", lambda package: False)
    parts = doctor(capsys)["parts"]
    assert all(part["install"] for part in parts.values())
    assert "fastapi" in parts["serve"]["missing"]


def test_telemetry_and_embedded_parts_are_named(capsys, monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    found = doctor(capsys)
    assert set(found["telemetry"]) == set(SWITCHES)
    assert found["telemetry"]["ORT_DISABLE_TELEMETRY"] == "off"
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    assert doctor(capsys)["telemetry"]["ORT_DISABLE_TELEMETRY"] == "ON"
    assert found["models"]["mini"]
    assert found["data"]["demo"]


def test_it_is_readable_and_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    for word in ("python", "torch", "threads", "cache", "telemetry", "mini", "serve"):
        assert word in text
    assert "…" not in text
