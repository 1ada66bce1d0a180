"""A data set that is looked for by name: what it looks like on disk, how to get it, and whether it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsee.data.data_set import Data


@dataclass(frozen=True)
class NamedDataSet:
    """A data set that is looked for by name."""

    name: str
    folder: str  # below the data folder
    layout: str  # what is looked for in it
    page: str  # where it is published
    archives: Mapping[str, str]  # file -> md5, "" where none is published
    get: str  # what to do to have it, with places for {archives}, {page} and {place}
    find: Callable[[Path], str | None]  # folder -> the form it holds, if any; cheap
    load: Callable[[Path], Data]

    def row(self, data_dir: Path) -> Mapping[str, Any]:
        """Whether it is there, where it was looked for, and how to get it."""
        place = data_dir / self.folder
        form = self.find(place)
        return {
            "name": self.name,
            "found": form is not None,
            "form": form,
            "place": str(place),
            "short": "–" if form else self.short,
            "where": f"{place}" + (f" ({form})" if form else ""),
            "get": self.how_to_get(place),
            "layout": self.layout,
            "page": self.page,
            "archives": dict(self.archives),
        }

    @property
    def short(self) -> str:
        """How to get it, in a few words."""
        return "unsee data get cifar10" if self.folder == "cifar10" else f"download from {self.page}"

    def how_to_get(self, place: Path) -> str:
        """One line: what to fetch from where, and what this folder must then hold."""
        files = [name + (f" (md5 {md5})" if md5 else " (no checksum published)") for name, md5 in self.archives.items()]
        what = self.get.format(archives=", ".join(files), page=self.page, place=place)
        return f"{what}; wanted there: {self.layout}. --data-dir names another data folder"
