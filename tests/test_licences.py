"""Every part of the package has its terms: in LICENSES/, in the metadata, and where the model is shown."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from unsee.cli import main
from unsee.models.families import embedded_card

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "LICENSES" / "README.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip(" `*") for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")
]


def test_every_asset_has_a_row_with_its_terms_and_their_text():
    parts = {row[0].rstrip("/"): row for row in ROWS[1:]}
    for asset in (ROOT / "unsee" / "assets").iterdir():
        if not asset.name.endswith(".LICENSE.txt"):
            assert parts[asset.relative_to(ROOT).as_posix()][2]
    assert all((ROOT / row[3]).is_file() for row in ROWS[1:])


def test_the_metadata_names_every_licence_and_ships_every_text():
    names = set(PROJECT["license"].split(" AND "))
    assert names == {"Apache-2.0", "MIT", "CC-BY-4.0", "LicenseRef-unsee-mini", "LicenseRef-CIFAR-10"}
    shipped = {path for pattern in PROJECT["license-files"] for path in ROOT.glob(pattern)}
    assert {ROOT / row[3] for row in ROWS[1:]} | {ROOT / "LICENSES" / "README.md"} == shipped


def test_the_terms_of_the_models_photos_are_those_of_its_card():
    text = (ROOT / "LICENSES" / "LicenseRef-unsee-mini.txt").read_text(encoding="utf-8")
    for source in embedded_card()["trained_on"]:
        assert re.match(r"[\w-]+( 3\.1)?", source["what"])[0] in text
        if not source["terms"].startswith("as "):
            assert source["terms"].partition("; cite")[0] in text


def test_models_says_that_the_embedded_one_is_for_research(capsys):
    assert main(["models"]) == 0
    embedded = next(line for line in capsys.readouterr().out.splitlines() if "mini" in line)
    assert "for research" in embedded
    assert main(["models", "--json"]) == 0
    assert "for research" in json.loads(capsys.readouterr().out)["models"][0]["about"]
    assert main(["models", "show", "mini"]) == 0
    assert "Licence of this model: for research" in capsys.readouterr().out
