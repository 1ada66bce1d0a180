"""`unsee evaluate`: test scores of a prompt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.completion import complete_data
from unsee.cli.inputs import reload_run
from unsee.cli.options import MODEL_OPTIONS, RUN, make_console, shared

if TYPE_CHECKING:
    from unsee.answers.evaluation import Evaluation
    from unsee.cli.console import Part
    from unsee.runs.prompt import Prompt


@click.command()
@RUN
@shared("moved_model")
@click.option(
    "--data",
    shell_complete=complete_data,
    show_default="the run's own",
    help="Test on other data that has the same classes.",
)
@shared(*MODEL_OPTIONS)
def evaluate(
    run: Path, model: str | None, data: str | None, as_json: bool, data_dir: Path | None, **where: Any
) -> None:
    """Score a run's prompt on the test images, overall and per class.

    Prints Err_for (error on the classes to forget), Acc_mem (accuracy on the others) and their harmonic mean H, beside
    those of the plain prompt (zero-shot) and of a label mask, then the accuracy of each class. Scores are those of the
    tuned prompt alone and, after the rule that it carries, as served.
    """
    from unsee.answers.evaluation import evaluate as score
    from unsee.data.class_names import forget_mask
    from unsee.models.black_box import bind
    from unsee.runs.identity import check_data
    from unsee.runs.prompt import load_prompt

    console = make_console(as_json)
    prompt = load_prompt(run)
    config, images, loaded = reload_run(run, model, data, console, data_dir, **where)
    prompt.check(loaded)
    test = images.test.in_classes(prompt.class_names)
    if data is None:
        check_data(config, images, run)
    bound = bind(loaded, test, prompt.class_names)
    gone = forget_mask(prompt.class_names, prompt.forget)
    found = score(bound.zero_shot(prompt.template), prompt.unserved(bound), bound.labels, gone, prompt.serve)
    name = data or config.data.name
    console.show(evaluation_facts(found, prompt, name), evaluation_parts(found, prompt, len(images.test), name))


def evaluation_facts(found: Evaluation, prompt: Prompt, data: str) -> Mapping[str, object]:
    """What `--json` prints; "test" and "after" are the prompt alone, "served" is as served."""
    scores = {"zero_shot": found.zero_shot, "label_mask": found.label_mask, "test": found.tuned}
    classes = found.per_class(prompt.class_names)
    return {name: None if s is None else s.as_dict() for name, s in scores.items()} | {
        "served": None if found.served is None else dataclasses.asdict(found.served),
        "data": data,
        "rule": found.rule,
        "per_class": {name: dataclasses.asdict(record) for name, record in classes.items()},
        "entropy_forgotten": dataclasses.asdict(found.entropy_forgotten),
    }


def evaluation_parts(found: Evaluation, prompt: Prompt, images: int, data: str) -> list[Part]:
    """Scores, and the accuracy of each class, under the plain prompt, prompt alone and as served."""
    from rich.table import Table

    from unsee.audit.cells import show_value
    from unsee.cli.scores import scores_table, served_row
    from unsee.text_table import percent

    rows = [("zero-shot", found.zero_shot), ("label mask", found.label_mask), ("prompt alone", found.tuned)]
    table = Table("class", "", "accuracy, plain prompt", "prompt alone", "as served")
    for name, record in found.per_class(prompt.class_names).items():
        fate, shares = "forget" if name in prompt.forget else "", (record.before, record.after, record.served)
        table.add_row(name, fate, *(percent(share, unit="") for share in shares))
    entropy = found.entropy_forgotten
    return [
        f"{data} ({images} test images)",
        scores_table([*rows, served_row(found.served, found.tuned)]),
        table,
        f"entropy of answers to forgotten images (1 = all names alike): plain prompt {show_value(entropy.before, 3)}, "
        f"prompt alone {show_value(entropy.after, 3)}, as served {show_value(entropy.served, 3)}",
    ]
