"""How this copy of unsee was installed, and the line that adds one of its optional parts to it."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import unquote, urlsplit


def install_line(extra: str) -> str:
    """The command that installs an extra into this installation: the checkout, wheel, repository or index it is of."""
    return f"{_pip()} install {_target(extra)}"


def _pip() -> str:
    """`pip` if that is the one of the running Python, else that Python's own."""
    found = which("pip")
    mine = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip" if mine else f"{shlex.quote(sys.executable)} -m pip"


def _target(extra: str) -> str:
    origin = _origin()
    if origin is None:
        return shlex.quote(f"unsee[{extra}]")
    url = str(origin["url"])
    if "vcs_info" in origin:
        revision = origin["vcs_info"].get("requested_revision")
        at = f"@{revision}" if revision else ""
        return shlex.quote(f"unsee[{extra}] @ {origin['vcs_info']['vcs']}+{url}{at}")
    if not url.startswith("file:"):
        return shlex.quote(f"unsee[{extra}] @ {url}")
    place = shlex.quote(f"{unquote(urlsplit(url).path)}[{extra}]")
    return f"-e {place}" if origin.get("dir_info", {}).get("editable") else place


def _origin() -> Mapping[str, Any] | None:
    """What pip recorded about where unsee came from (PEP 610); None: from an index."""
    try:
        text = importlib.metadata.distribution("unsee").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # it runs from a checkout that is not installed
        return {"url": Path(__file__).parent.parent.as_uri(), "dir_info": {"editable": True}}
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found
