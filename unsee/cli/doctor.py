"""`unsee doctor`: what is installed, what is missing, with the line that installs it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import click

from unsee.cli.inputs import cache_folder, data_folder
from unsee.cli.options import make_console, shared
from unsee.cli.serve import state_folder

NOT_FOR_USERS = ("dev", "docs", "training")  # extras that only work on unsee itself needs


@click.command()
@shared("data_dir", "cache", "json")
def doctor(data_dir: Path | None, cache_dir: Path | None, as_json: bool) -> None:
    """Show what is installed and what is missing, with install lines."""
    state = os.environ.get("UNSEE_STATE")
    found: dict[str, Mapping[str, Any]] = {
        "versions": _versions(),
        "threads": _threads(),
        "folders": {
            "cache": _folder(cache_folder(cache_dir)),
            "data": _folder(data_folder(data_dir)),
            "state": _folder(state_folder(Path(state) if state else None)),
            "hub": _folder(_hub_folder()),
        },
        "cache": {"image features": f"{_mebibytes(cache_folder(cache_dir)):.1f} MiB"},
        "models": _models(),
        "data": _data(data_folder(data_dir)),
        "telemetry": _telemetry(),
        "parts": _parts(),
    }
    make_console(as_json).show(found, ["\n".join(doctor_lines(found))])


def doctor_lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line per group of facts, a line per folder and optional part."""
    lines = [_line(name, found[name]) for name in ("versions", "threads")]
    for name, folder in found["folders"].items():
        lines.append(f"{name} folder: {folder['path']}" + ("" if folder["exists"] else " (not there yet)"))
    lines += [_line(name, found[name]) for name in ("cache", "models", "data")]
    for state in ("off", "ON"):
        switches = [name for name, value in found["telemetry"].items() if value == state]
        lines += [f"telemetry {state}: {', '.join(switches)}"] if switches else []
    for name, part in found["parts"].items():
        needs = f"missing {', '.join(part['missing'])}; install with: {part['install']}"
        lines.append(f"part {name}: {needs if part['missing'] else 'installed'}")
    return lines


def _line(name: str, facts: Mapping[str, Any]) -> str:
    return f"{name}: " + ", ".join(f"{key} {value}" for key, value in facts.items())


def _versions() -> dict[str, str]:
    from unsee.versions import version, versions

    return {"unsee": version()} | versions()


def _threads() -> dict[str, Any]:
    import torch

    gpus = [name for name, kind in (("cuda", torch.cuda), ("mps", torch.backends.mps)) if kind.is_available()]
    return {"cores": os.cpu_count(), "torch": torch.get_num_threads(), "devices": " ".join(["cpu", *gpus])}


def _folder(path: Path) -> dict[str, Any]:
    return {"path": str(path), "exists": path.is_dir()}


def _mebibytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def _hub_folder() -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _models() -> dict[str, str]:
    """The embedded model, and those that were fetched from the hub before."""
    from unsee.models.families import embedded_card

    fetched = sorted(path.name for path in _hub_folder().glob("models--*"))
    names = [name.removeprefix("models--").replace("--", "/") for name in fetched]
    return {"mini": f"(embedded, version {embedded_card()['version']})"} | dict.fromkeys(names, "(from the hub)")


def _data(folder: Path) -> dict[str, str]:
    from unsee.data import list_data_sets

    return {row["name"]: "found" if row["found"] else "not found" for row in list_data_sets(folder)}


def _telemetry() -> dict[str, str]:
    """Of each library's reporting, whether it is off."""
    from unsee.telemetry import SWITCHES

    return {name: "off" if os.environ.get(name) == value else "ON" for name, value in SWITCHES.items()}


def _parts() -> dict[str, dict[str, Any]]:
    """The optional parts: which packages of each are missing, and the line that installs them."""
    from unsee.installation import install_line

    found = {}
    for extra, packages in _extras().items():
        missing = [package for package in packages if not _is_installed(package)]
        found[extra] = {"missing": missing, "install": install_line(extra) if missing else None}
    return found


def _extras() -> dict[str, list[str]]:
    """Packages by the extra that needs them, as the installed metadata says."""
    try:
        requirements = distribution("unsee").requires or []
    except PackageNotFoundError:  # it runs from a checkout that is not installed
        return {}
    extras: dict[str, list[str]] = {}
    for text in requirements:
        name, extra = re.match(r"[\w.-]+", text), re.search(r"extra == ['\"](.+?)['\"]", text)
        if name and extra and extra[1] not in NOT_FOR_USERS:
            extras.setdefault(extra[1], []).append(name[0])
    return extras


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
