"""The wheel's metadata says who, for whom and on what; what is not known is left out, not invented."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

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


# The first release without a hole that was published, where that hole can be reached from here. Looked up in the
# advisories of PyPI and GitHub on 2026-11-18; look again when a dependency is added.
SAFE = {
    "torch": "2.11",  # CVE-2026-24747 (2.10): weights_only loading; CVE-2026-4538: loading, last affected 2.10.0
    "transformers": "5.5.0",  # CVE-2026-5241, CVE-2026-4372 (5.3.0): code from a config
    "pillow": "12.3.0",  # CVE-2026-59199 and 13 more
    "jinja2": "3.1.6",  # CVE-2025-27516
    "scikit-learn": "1.5",  # CVE-2024-5206
    "starlette": "1.3.1",  # CVE-2026-54283, CVE-2026-48710 (1.0.1)
    "python-multipart": "0.0.32",  # CVE-2026-53539 (0.0.30), CVE-2026-53538, CVE-2026-53540
    "h11": "0.16.0",  # CVE-2025-43859
    "pyarrow": "23.0.1",  # CVE-2026-25087
    "pi-heif": "1.4.0",  # CVE-2026-28231 (1.3.0), and the newest libheif
    "ray": "2.56.0",  # CVE-2026-57516, CVE-2025-62593 (2.52.0)
    "onnx": "1.22.0",  # CVE-2026-44512, CVE-2026-27489 (1.21.0)
    "sentencepiece": "0.2.1",  # CVE-2026-1260
    "protobuf": "6.33.5",  # CVE-2026-0994
}


@pytest.mark.parametrize("name", SAFE)
def test_the_lowest_version_allowed_has_no_known_hole(name):
    required = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]
    bounds = [found[1] for line in required if (found := re.fullmatch(rf"{name}>=([\d.]+)", line))]
    assert bounds
    assert all(numbers(bound) >= numbers(SAFE[name]) for bound in bounds), bounds


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
