"""`unsee classify`: top classes of single images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.options import MODEL_OPTIONS, RUN, make_console, read_model, shared

if TYPE_CHECKING:
    from unsee.cli.console import Console
    from unsee.runs.prompt import Answer


@click.command()
@RUN
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@shared("moved_model")
@click.option("--top", default=3, type=click.IntRange(1), help="Number of classes to print per image.")
@shared(*MODEL_OPTIONS[1:])
def classify(run: Path, images: tuple[Path, ...], model: str | None, top: int, as_json: bool, **where: Any) -> None:
    """Print the top classes of images, without and with a run's prompt."""
    from unsee.runs.prompt import load_prompt

    console = make_console(as_json)
    prompt = load_prompt(run)
    loaded = read_model(model or prompt.model, console, **where)
    show_answers(console, prompt.classify(loaded, list(images), top))


def show_answers(console: Console, answers: Sequence[Answer]) -> None:
    """Prints the top classes of each image."""
    from rich.table import Table

    table = Table("image", "without the prompt", "with it")
    for answer in answers:
        table.add_row(answer.image, _listed(answer.before), _listed(answer.after))
    rows = [{"image": a.image, "before": a.before, "after": a.after} for a in answers]
    console.show({"images": rows}, [table])


def _listed(pairs: tuple[tuple[str, float], ...] | None) -> str:
    if pairs is None:
        return "–"
    return ", ".join(f"{name} {100 * confidence:.1f}%" for name, confidence in pairs)
