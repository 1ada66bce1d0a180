"""Install lines are those of this installation: a checkout, a wheel, a repository or the index."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from pathlib import Path

import pytest

import unsee
from unsee import installation
from unsee.installation import install_line

ROOT = Path(unsee.__file__).parent.parent


class Installed:
    """A distribution as pip recorded it."""

    def __init__(self, record: dict[str, object] | None) -> None:
        self.record = record

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.record is None else json.dumps(self.record)


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (None, "'unsee[serve]'"),  # from the index
        ({"url": "file:///home/me/my%20code", "dir_info": {"editable": True}}, "-e '/home/me/my code[serve]'"),
        ({"url": "file:///home/me/unsee", "dir_info": {}}, "'/home/me/unsee[serve]'"),
        ({"url": "file:///tmp/unsee-0.1.0.whl", "archive_info": {}}, "'/tmp/unsee-0.1.0.whl[serve]'"),
        ({"url": "https://host/unsee.whl", "archive_info": {}}, "'unsee[serve] @ https://host/unsee.whl'"),
        (
            {"url": "https://host/unsee.git", "vcs_info": {"vcs": "git", "requested_revision": "v1"}},
            "'unsee[serve] @ git+https://host/unsee.git@v1'",
        ),
    ],
)
def test_the_line_is_that_of_the_installation(monkeypatch, record, wanted):
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(record))
    line = install_line("serve")
    assert line.endswith(f"pip install {wanted}")
    shlex.split(line)


def test_a_bare_checkout_names_its_folder(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_line("heic").endswith(f"pip install -e {shlex.quote(f'{ROOT}[heic]')}")


def test_pip_is_that_of_the_python_that_runs(monkeypatch):
    monkeypatch.setattr(installation, "which", lambda name: "/elsewhere/bin/pip")
    assert install_line("serve").startswith(f"{sys.executable} -m pip install ")
    monkeypatch.setattr(installation, "which", lambda name: str(Path(sys.executable).parent / "pip"))
    assert install_line("serve").startswith("pip install ")


def test_a_missing_extra_says_this_line():
    said = str(unsee.MissingExtra("pyarrow", "parquet"))
    assert said == f"this needs the package pyarrow; install it with: {install_line('parquet')}"
