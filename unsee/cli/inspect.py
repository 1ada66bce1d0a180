"""Commands that show something: report, bench, data, models."""

from __future__ import annotations

from pathlib import Path

import click

from unsee.cli.options import data_folder, make_console, shared
from unsee.errors import InputError, MissingExtra, ModelError, unknown


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "out", type=click.Path(path_type=Path), default="report.html", show_default=True, help="The page.")
@click.option("--also", default="", metavar="KINDS", help="Files beside it: png, svg (charts), csv, tex (tables).")
@shared("json")
def report(runs: tuple[Path, ...], out: Path, also: str, as_json: bool) -> None:
    """Write one page about finished RUNS, with pictures and tables, that opens without a network."""
    from unsee.report.html import write_report

    kinds = [kind.strip() for kind in also.split(",") if kind.strip()]
    console = make_console(as_json)
    console.report(write_report(runs, out, kinds, console.say))


@click.command()
@click.option(
    "--classes", "classes", type=int, multiple=True, help="Only these of the paper's settings: 10, 100, 200, 1000."
)
@click.option("--family", help="Instead, a family of transformers beside its own batched call: siglip.")
@click.option("--ours-only", is_flag=True, help="Do not time the other ways; much faster.")
@click.option("--overhead", "only_overhead", is_flag=True, help="Instead, the share of a run that is not the model.")
@click.option("--serve", "only_serve", is_flag=True, help="Instead, unsee serve under load.")
@click.option("--clients", default=64, show_default=True, type=click.IntRange(1), help="Of --serve, at the same time.")
@click.option("--seconds", default=120.0, show_default=True, type=click.FloatRange(1), help="Of --serve.")
@shared("json")
def bench(
    classes: tuple[int, ...],
    family: str | None,
    ours_only: bool,
    only_overhead: bool,
    only_serve: bool,
    clients: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Speed of a candidate as ratios, measured side by side in this one run.

    At the paper's settings, on random weights of ViT-B/16's size: this evaluator; all classes at 77 positions
    through transformers with cached image features; and the published way, which encodes all images again.
    """
    console = make_console(as_json)
    if only_serve:
        try:
            from unsee.bench.service import measure_load
        except ImportError as error:
            raise MissingExtra(str(error.name or "httpx"), "serve") from None
        console.load(measure_load(clients, seconds, say=console.say))
        return
    from unsee.bench.candidate import PAPER_SIZES, measure, overhead

    if family is not None:
        from unsee.bench.family import CLASSES, measure_family
        from unsee.cli.model_tables import family_parts

        timed = measure_family(family, classes or CLASSES, say=console.say)
        console.show(timed, family_parts(timed))
        return
    if only_overhead:
        console.overhead(overhead(say=console.say))
        return
    chosen = [setting for setting in PAPER_SIZES if not classes or setting.classes in classes]
    if not chosen:
        raise InputError(f"--classes is one of {', '.join(str(setting.classes) for setting in PAPER_SIZES)}")
    console.timings(measure(chosen, against=not ours_only, say=console.say))


@click.group(invoke_without_command=True)
@shared("data_dir", "json")
@click.pass_context
def data(context: click.Context, data_dir: Path | None, as_json: bool) -> None:
    """List data sets: which are there, where they are, how to get the rest."""
    from unsee.data import list_data_sets

    context.obj = data_dir, as_json
    if context.invoked_subcommand is None:
        make_console(as_json).data_sets(list_data_sets(data_folder(data_dir)))


@data.command("show")
@click.argument("name")
@shared("data_dir", "json")
@click.pass_context
def data_show(context: click.Context, name: str, data_dir: Path | None, as_json: bool) -> None:
    """Show all about one data set: the files that are looked for, where, and how to get them."""
    from unsee.data import list_data_sets

    group_dir, group_json = context.obj
    known = {row["name"]: row for row in list_data_sets(data_folder(data_dir or group_dir))}
    if name not in known:
        raise InputError(unknown("data set", name, known))
    make_console(as_json or group_json).data_set(known[name])


@data.command("get")
@click.argument("name", metavar="NAME", type=click.Choice(["cifar10"]))
@shared("data_dir")
@click.pass_context
def data_get(context: click.Context, name: str, data_dir: Path | None) -> None:
    """Fetch a data set: verified by checksum, put in place only when it is whole."""
    from unsee.data.fetch import get_cifar10

    get_cifar10(data_folder(data_dir or context.obj[0]) / name, make_console().say)


@click.group(invoke_without_command=True)
@shared("json")
@click.pass_context
def models(context: click.Context, as_json: bool) -> None:
    """List the models that can be used."""
    context.obj = as_json
    if context.invoked_subcommand is None:
        from unsee.models.families import FAMILIES

        make_console(as_json).models(FAMILIES)


@models.command("show")
@click.argument("name", metavar="NAME", type=click.Choice(["mini"]))
@shared("json")
@click.pass_context
def models_show(context: click.Context, name: str, as_json: bool) -> None:
    """Show the card of the embedded model: what it was trained on, what it can and cannot do."""
    from unsee.cli.model_tables import card_parts
    from unsee.models.families import embedded_card

    card = embedded_card()
    make_console(as_json or context.obj).show({"mini": card}, card_parts(card))


@models.command("check")
@click.argument("name")
@click.argument("images", nargs=-1)
@click.option("--against", metavar="MODEL", help="Compare with the library on this copy.  [default: NAME itself]")
@shared("json")
@click.pass_context
def models_check(
    context: click.Context, name: str, images: tuple[str, ...], against: str | None, as_json: bool
) -> None:
    """Prove that NAME answers here as in its own library, on IMAGES or on generated ones; exit 1 if not.

    Compares confidences under random contexts, plain-text prompts and long names, and every weight bit for bit.
    """
    from unsee.cli.model_tables import proof_parts
    from unsee.models.check.proof import prove

    found = prove(name, images, against)
    make_console(as_json or context.obj).show(found.as_dict(), proof_parts(found))
    if not found.passed:
        raise ModelError(found.verdict)
