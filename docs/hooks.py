"""Puts the repository's own files into the site, so that links from docs/ to them work there too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
REPOSITORY = "repository"  # the site's folder for them
PARTS = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "deploy/*",
    "examples/*.ipynb",
    "examples/*.py",
    "results/*",
    "training/*.md",
    "training/*.jsonl",
)
LINK = re.compile(r"\]\(\.\./")
BACK = re.compile(r"\]\(((?:\.\./)*)docs/")


def on_files(files: Files, config: Any) -> Files:
    """Adds the repository's files."""
    for pattern in PARTS:
        for path in sorted(ROOT.glob(pattern)):
            name = f"{REPOSITORY}/{path.relative_to(ROOT).as_posix()}"
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Points links that leave docs/ at them, and theirs into docs/ at the pages."""
    if page.file.src_uri.startswith(REPOSITORY):
        return BACK.sub(r"](\1../", markdown)
    return LINK.sub(f"]({REPOSITORY}/", markdown)
