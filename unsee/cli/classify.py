"""`unsee classify`: top classes of single images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.inputs import read_model
from unsee.cli.options import MODEL_OPTIONS, RUN, make_console, shared

Pairs = Sequence[tuple[str, float]]

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
    """Print the top classes of images: under the plain prompt, a run's prompt alone, and as served.

    As served is what a caller sees: after the rule that the prompt carries, to as many digits as it lets through.
    """
    from unsee.runs.prompt import load_prompt

    console = make_console(as_json)
    prompt = load_prompt(run)
    loaded = read_model(model or prompt.model, console, **where)
    show_answers(console, prompt.classify(loaded, list(images), top), prompt.serve)


def show_answers(console: Console, answers: Sequence[Answer], rule: str = "as-is") -> None:
    """Prints the top classes of each image."""
    from rich.table import Table

    table = Table("image", "", "top labels")
    for answer in answers:
        table.add_row(answer.image, "plain prompt", _listed(answer.before))
        table.add_row("", "prompt alone", _listed(answer.alone))
        table.add_row("", f"as served ({rule})", _served(answer, rule), end_section=True)
    console.show({"rule": rule, "images": [_facts(answer, rule) for answer in answers]}, [table])


def _facts(answer: Answer, rule: str) -> dict[str, object]:
    """What `--json` prints of an image; "after" is as served."""
    from unsee.answers.rules import show_digits

    return {
        "image": answer.image,
        "before": answer.before,
        "prompt_alone": answer.alone,
        "after": [(name, show_digits(confidence, rule)) for name, confidence in answer.after],
        "label": answer.after[0][0] if answer.ranked else None,
    }


def _listed(pairs: Pairs | None, rule: str = "as-is") -> str:
    from unsee.answers.rules import confidence_text

    return "–" if pairs is None else ", ".join(f"{name}{confidence_text(sure, rule)}" for name, sure in pairs)


def _served(answer: Answer, rule: str) -> str:
    """The names that stand apart; the order of equal ones tells nothing."""
    from unsee.answers.rules import RULES

    if not answer.ranked:
        return "no label: several are equally sure"
    confidences = len(answer.after) > answer.ranked and RULES[rule].digits != 0
    rest = ", the next ones equal" if confidences else ""
    return _listed(answer.after[: answer.ranked], rule) + rest
