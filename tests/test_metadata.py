"""The wheel's metadata says who, for whom and on what; what is not known is left out, not invented."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_wheel_has_an_author():
    assert PROJECT["authors"] == [{"name": "unsee contributors"}]


def test_classifiers_say_python_versions_audience_system_and_subject():
    found = set(PROJECT["classifiers"])
    groups = {line.partition(" :: ")[0] for line in found}
    wanted = {"Development Status", "Environment", "Intended Audience", "Operating System", "Programming Language"}
    assert wanted | {"Topic", "Typing"} <= groups
    least = PROJECT["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}" in found
    assert "License" not in groups, "a licence expression replaces these"


def test_addresses_are_absolute_where_there_are_any():
    """No address of a public repository is known; one that is added here must be whole."""
    assert all(address.startswith("https://") for address in PROJECT.get("urls", {}).values())


def test_every_extra_of_a_tracker_is_named_after_it():
    from unsee.settings import TRACKER_NAMES

    assert set(TRACKER_NAMES) <= set(PROJECT["optional-dependencies"])
