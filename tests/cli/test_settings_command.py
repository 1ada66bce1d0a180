"""`unsee settings`: what `--set` takes."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_completion import completed
from unsee.cli import main
from unsee.settings import FIELDS


def test_every_setting_is_listed_with_its_values_default_and_meaning(capsys):
    assert main(["settings", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["settings"]}
    assert set(rows) == set(FIELDS) - {"method", "preset", "seed"}  # which have options of their own
    assert rows["search"]["default"] == "full"
    assert "separable" in rows["search"]["kind"]
    assert "at least 1" in rows["population"]["kind"]
    assert all(row["about"] for row in rows.values())


@pytest.mark.parametrize("columns", ["60", "80", "140"])
def test_the_table_fits(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["settings"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in set(FIELDS) - {"method", "preset", "seed"})
    assert "…" not in text


def test_one_setting_is_shown_by_name(capsys):
    assert main(["settings", "sigma0"]) == 0
    text = capsys.readouterr().out
    assert "sigma0" in text
    assert "above 0" in text
    assert "population" not in text
    assert main(["settings", "sigma"]) == 1
    assert "did you mean 'sigma0'" in capsys.readouterr().err


def test_names_of_settings_are_completed():
    assert completed("settings", "sig") == ["sigma0"]
    assert completed("forget", "demo", "--set", "sig") == ["sigma0="]
    assert completed("forget", "demo", "--set", "search=ra") == ["search=random"]
