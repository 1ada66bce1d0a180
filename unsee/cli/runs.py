"""`unsee runs`: the runs below a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.options import Name, make_console, shared

if TYPE_CHECKING:
    from unsee.cli.console import Part
    from unsee.runs.listing import ListedRun

DEFAULT = Path("runs")
# Ways to sort, after sorting by folder; a run without the figure comes last.
SORTS: dict[str, Callable[[ListedRun], Any]] = {
    "folder": lambda run: run.folder,
    "state": lambda run: run.state,
    "method": lambda run: run.method or "~",
    "data": lambda run: run.data or "~",
    "h": lambda run: (run.h_prompt_alone is None, -(run.h_prompt_alone or 0.0)),  # best first
    "queries": lambda run: (run.image_queries is None, run.image_queries or 0),
    "time": lambda run: -run.changed,  # newest first
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=DEFAULT)
@click.option(
    "--sort",
    default="folder",
    type=Name(list(SORTS)),
    help="Order: h has the best first, queries the fewest, time the newest.",
)
@shared("json")
def runs(folder: Path, sort: str, as_json: bool) -> None:
    """List runs with their state, scores and image queries.

    Looks in FOLDER (default: runs) and below. A run is finished, interrupted, running (another process is writing to
    it) or damaged.
    """
    from unsee.runs.listing import list_runs

    console = make_console(as_json)
    found = [] if folder == DEFAULT and not folder.exists() else sorted(list_runs(folder), key=SORTS[sort])
    if not found:
        console.say(f"no runs in {folder}; make one with: unsee forget demo --forget cat,dog")
    console.show({"runs": [run.as_dict() for run in found]}, runs_parts(found) if found else [])


def runs_parts(found: Sequence[ListedRun]) -> list[Part]:
    """A line per run, and what is wrong with damaged ones."""
    from rich.table import Table

    from unsee.data.class_names import listed

    table = Table("folder", "state", "method", "data", "forgets", "H prompt alone", "H as served", "image queries")
    for run in found:
        table.add_row(
            run.folder,
            _state(run),
            run.method or "–",
            run.data or "–",
            ", ".join(run.forget) if len(run.forget) <= 8 else listed(run.forget),
            *("–" if h is None else f"{100 * h:.2f}" for h in (run.h_prompt_alone, run.h_as_served)),
            "–" if run.image_queries is None else str(run.image_queries),
        )
    return [table, *(f"damaged: {run.problem}" for run in found if run.problem)]


def _state(run: ListedRun) -> str:
    if run.state in ("finished", "damaged"):
        return run.state
    of = "" if run.generations is None else f" of {run.generations}"
    return f"{run.state} at generation {run.generation}{of}"
