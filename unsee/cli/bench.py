"""`unsee bench`: speed, as ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from unsee.cli.options import make_console, shared
from unsee.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from unsee.bench.load import LoadResult
    from unsee.cli.console import Console, Part


@click.command()
@click.option(
    "--classes",
    type=int,
    multiple=True,
    show_default="all four",
    help="Only the paper's setting with so many classes: 10, 100, 200 or 1000. Repeatable.",
)
@click.option("--ours-only", is_flag=True, help="Time only this package, not the other ways; much faster.")
@click.option(
    "--family",
    metavar="NAME",
    show_default="none",
    help="Instead: time a model family of transformers (siglip) against its own batched call.",
)
@click.option(
    "--overhead", "only_overhead", is_flag=True, help="Instead: measure the share of a run that is not the model."
)
@click.option(
    "--serve",
    "only_serve",
    is_flag=True,
    help="Instead: start unsee serve, load it with concurrent clients, and compare with the bare model.",
)
@click.option("--clients", default=64, type=click.IntRange(1), help="With --serve: clients that send at the same time.")
@click.option("--seconds", default=120.0, type=click.FloatRange(1), help="With --serve: how long to send requests.")
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
    """Measure speed as ratios, side by side in one run.

    At the paper's settings, on random weights of ViT-B/16's size, a candidate is timed three ways: by this package;
    with all classes at 77 positions through transformers, image features cached; and as in the published code, which
    encodes all images again.
    """
    console = make_console(as_json)
    if only_serve:
        try:
            from unsee.bench.load import measure_load
        except ImportError as error:
            raise MissingExtra(str(error.name or "httpx"), "serve") from None
        loaded = measure_load(clients, seconds, say=console.say)
        console.show(loaded.as_dict(), [load_words(loaded)])
        return
    from unsee.bench.candidate import PAPER_SIZES, measure, overhead

    if family is not None:
        from unsee.bench.family import CLASSES, measure_family

        timed = measure_family(family, classes or CLASSES, say=console.say)
        console.show(timed, family_parts(timed))
        return
    if only_overhead:
        show_overhead(console, overhead(say=console.say))
        return
    chosen = [setting for setting in PAPER_SIZES if not classes or setting.classes in classes]
    if not chosen:
        raise InputError(f"--classes is one of {', '.join(str(setting.classes) for setting in PAPER_SIZES)}")
    show_timings(console, measure(chosen, against=not ours_only, say=console.say))


def show_timings(console: Console, found: Mapping[str, Any]) -> None:
    """Prints the benchmark's table."""
    from rich.table import Table

    machine = found["machine"]
    table = Table("C", "m", "images", "(a) ours, ms", "(b) / (a)", "(c) / (a)", "of peak", "peak memory")
    for row in found["settings"]:
        scaled = "" if row["published_images_timed"] == row["images"] else "*"
        table.add_row(
            *(str(row[key]) for key in ("classes", "contexts", "images")),
            f"{1000 * row['seconds_per_candidate']:.1f}",
            "-" if row["ratio_vs_77"] is None else f"{row['ratio_vs_77']:.1f}",
            "-" if row["ratio_vs_published"] is None else f"{row['ratio_vs_published']:.0f}{scaled}",
            f"{100 * row['gemm_share']:.0f} %",
            f"{row['peak_rss_bytes'] / 2**30:.2f} GiB",
        )
    words = (
        f"{found['model']}, population 20, {machine['threads']} threads, torch {machine['torch']}; "
        f"matrix product {machine['gemm_gmacs']} GMAC/s"
    )
    legend = (
        "(b) cached image features, every class at 77 positions through transformers, batched\n"
        "(c) the published way, one candidate: model rebuilt, all images encoded again, 77 positions\n"
        "    (* scaled to all images from 400 of them)"
    )
    console.show(found, [words, table, legend])


def load_words(found: LoadResult) -> str:
    """The service under load, in a few lines."""
    return (
        f"{found.clients} clients, {found.seconds:.0f} s, {found.requests} requests: {found.server_errors} 5xx, "
        f"{found.refused} 4xx, {found.failed} failed, {found.wrong} wrong answers\n"
        f"p50 {1000 * found.p50:.0f} ms, p99 {1000 * found.p99:.0f} ms\n"
        f"{found.throughput:.1f} images/s, bare model {found.bare_throughput:.1f}: ratio {found.ratio:.2f}\n"
        f"processor time {1000 * found.cpu_per_request:.1f} ms a request, "
        f"bare model {1000 * found.bare_cpu_per_image:.1f} ms an image\n"
        f"memory {found.memory_warm / 2**20:.0f} MiB after warm-up, {found.memory_end / 2**20:.0f} MiB at the end: "
        f"{100 * found.memory_growth:+.1f} %"
    )


def show_overhead(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints how little of a run is not the model."""
    from rich.table import Table

    table = Table("setting", "method", "candidates", "m", "shared", "own", "seconds", "search and bookkeeping")
    for row in rows:
        sizes = (str(row[key]) for key in ("setting", "method", "candidates", "contexts", "shared", "own"))
        table.add_row(*sizes, f"{row['seconds']:.1f}", f"{100 * row['overhead_share']:.2f} %")
    console.show({"overhead": rows}, [table])


def family_parts(found: Mapping[str, Any]) -> list[Part]:
    """All that `unsee bench --family` prints."""
    from rich.table import Table

    table = Table("C", "m", "candidates", "ours, s", "library, s", "ratio", "bound", "share of bound", "difference")
    for row in found["settings"]:
        table.add_row(
            *(str(row[key]) for key in ("classes", "contexts", "candidates")),
            *(f"{row[key]:.3f}" for key in ("seconds", "seconds_library")),
            *(f"{row[key]:.3f}" for key in ("ratio", "bound")),
            f"{100 * row['share_of_bound']:.0f} %",
            f"{row['largest_difference']:.1e}",
        )
    return [
        f"{found['family']}, {found['model']}, {found['threads']} threads; CPU seconds of one candidate",
        table,
        "library: its batched call on the same prompts and weights, image features encoded before.\n"
        "bound: multiply-adds of that call over those left after every cut that changes no number.",
    ]
