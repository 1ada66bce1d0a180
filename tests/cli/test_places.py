"""Where the command line keeps things: the user's own folders, as the system has them, unless told otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import platformdirs
import pytest

from unsee.cli.inputs import cache_folder, data_folder
from unsee.cli.serve import state_folder

PLACES = {  # function, variable, default below home
    "cache": (cache_folder, "XDG_CACHE_HOME", ".cache"),
    "data": (data_folder, "XDG_DATA_HOME", ".local/share"),
    "state": (state_folder, "XDG_STATE_HOME", ".local/state"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="these are the places of Linux")
@pytest.mark.parametrize("kind", PLACES)
def test_places_are_those_of_the_desktop_standard(kind, monkeypatch, tmp_path):
    folder, variable, default = PLACES[kind]
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", None):
        monkeypatch.delenv(variable, raising=False) if unset is None else monkeypatch.setenv(variable, unset)
        assert folder(None) == tmp_path / default / "unsee"
    monkeypatch.setenv(variable, str(tmp_path / "own"))
    assert folder(None) == tmp_path / "own" / "unsee"
    assert folder(Path("given")) == Path("given")


@pytest.mark.parametrize("kind", PLACES)
def test_another_system_has_its_own_places(kind, monkeypatch, tmp_path):
    from platformdirs.macos import MacOS

    monkeypatch.setenv("HOME", str(tmp_path))
    for _, variable, _ in PLACES.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(platformdirs, "PlatformDirs", MacOS)
    assert PLACES[kind][0](None).is_relative_to(tmp_path / "Library")
