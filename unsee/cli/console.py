"""What a command shows: tables and one JSON object on stdout, progress on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich.console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from unsee.data.class_names import listed
from unsee.settings import Settings
from unsee.types import Generation, Scores

if TYPE_CHECKING:
    from unsee.answers.evaluation import Evaluation, ServedScores
    from unsee.bench.service import LoadResult
    from unsee.methods.recorder import Watch
    from unsee.models.families import ModelFamily
    from unsee.report.comparison import Comparison
    from unsee.report.paper.experiments import Experiment
    from unsee.report.paper.reproduce import Reproduced, SweepWatch
    from unsee.runs.prompt import Answer, Prompt
    from unsee.runs.records import ResultRecord
    from unsee.runs.sweep import RunRequest, Workspace
    from unsee.text_table import TextTable

WIDE = 140  # columns of a table where there is no terminal to fit
EVERY = 10.0  # seconds between progress lines where there is no terminal


class Console:
    """Prints for a person, or one JSON object for a program."""

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        width = None if sys.stdout.isatty() else WIDE
        # A class may be called "[red]" or ":cat:": names are printed as they are.
        self._out = rich.console.Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
        self._err = rich.console.Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._last = time.monotonic()

    def say(self, text: str) -> None:
        """A line beside the result."""
        self._err.print(text, markup=False, soft_wrap=True)

    def encoding(self, done: int, total: int) -> None:
        """Progress of image encoding."""
        if total > 1000 and (self._due() or done == total):
            self.say(f"encoding images: {done} of {total}")

    @contextmanager
    def tuning(self) -> Iterator[Watch]:
        """A bar on a terminal, a line now and then elsewhere."""
        if not self._err.is_terminal:
            yield self._line
            return
        columns = (
            TextColumn("generation"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn(
                "loss {task.fields[loss]:.3f}  valid H {task.fields[h]:.1f}  {task.fields[left]} candidates left"
            ),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._err, transient=True) as bar:
            task = bar.add_task("", total=None, loss=float("nan"), h=0.0, left="?", start=True)

            def watch(generation: Generation, settings: Settings) -> None:
                bar.update(
                    task,
                    completed=generation.number,
                    total=-(-settings.limit // settings.population),
                    loss=generation.losses.min(),
                    h=100 * generation.valid.h if generation.valid else 0.0,
                    left=settings.limit - generation.candidates,
                )

            yield watch

    def result(self, result: ResultRecord, run: Path, images: int) -> None:
        """The closing table of a run and the path of its folder."""
        if self.as_json:
            self._json(result.model_dump(mode="json") | {"run": str(run)})
            return
        title = f"{result.data}: forgetting {listed(result.forget)} ({images} test images, {result.model})"
        rows = [("zero-shot", result.zero_shot), ("label mask", result.label_mask)]
        self._scores(title, [*rows, (f"tuned ({result.method})", result.test), *_served(result.served)])
        ledger = result.ledger
        for warning in result.warnings:
            self._out.print(f"warning: {warning}", soft_wrap=True)
        self._out.print(
            f"{ledger.candidates} candidates, {ledger.image_queries} image queries, "
            f"{result.seconds['tuning']:.1f} s\nrun: {run}\npicture: {run / 'picture.png'}",
            soft_wrap=True,
        )

    def evaluation(self, found: Evaluation, prompt: Prompt, images: int, data: str) -> None:
        """A prompt's scores, and the accuracy of each class before and after."""
        scores = {"zero_shot": found.zero_shot, "label_mask": found.label_mask, "test": found.tuned}
        per_class = found.per_class(prompt.class_names)
        if self.as_json:
            facts = {name: None if s is None else s.as_dict() for name, s in scores.items()}
            classes = {name: dataclasses.asdict(record) for name, record in per_class.items()}
            served = None if found.served is None else dataclasses.asdict(found.served)
            self._json(facts | {"served": served, "data": data, "per_class": classes})
            return
        rows = [("zero-shot", found.zero_shot), ("label mask", found.label_mask), ("tuned", found.tuned)]
        self._scores(f"{data} ({images} test images)", [*rows, *_served(found.served)])
        table = Table("class", "", "accuracy before", "after")
        for name, record in per_class.items():
            fate = "forget" if name in prompt.forget else ""
            table.add_row(name, fate, _percent(record.before), _percent(record.after))
        self._out.print(table)

    def answers(self, answers: list[Answer]) -> None:
        """Top classes of each image."""
        if self.as_json:
            self._json({"images": [{"image": a.image, "before": a.before, "after": a.after} for a in answers]})
            return
        table = Table("image", "without the prompt", "with it")
        for answer in answers:
            table.add_row(answer.image, _listed(answer.before), _listed(answer.after))
        self._out.print(table)

    def comparison(self, found: Comparison, title: str) -> None:
        """Methods side by side, in points."""
        if self.as_json:
            rows = [row.as_dict() for row in found.methods]
            audits = [row.as_dict() for row in found.audits]
            more = {"audits": audits, "served": [row.as_dict() for row in found.served]}
            self._json({"title": title, "image_queries": found.image_queries, "rows": rows} | more)
            return
        self._out.print(title, soft_wrap=True)
        self._out.print(
            f"Every black-box method has {found.image_queries:,} image queries; cbbt-own and methods that see "
            "gradients or weights follow their own schedule.",
            soft_wrap=True,
        )
        table = Table(
            "method", "H", "H of means", "H by seed", "Err_for", "Acc_mem", "sees", "candidates", "image queries", "s"
        )
        for row in found.methods:
            table.add_row(
                row.method,
                f"{100 * row.h:.2f} ± {100 * row.h_std:.2f}",
                f"{100 * row.h_of_means:.2f}",
                " ".join(f"{100 * h:.1f}" for h in row.h_by_seed),
                f"{100 * row.err_for:.2f} ± {100 * row.err_for_std:.2f}",
                f"{100 * row.acc_mem:.2f} ± {100 * row.acc_mem_std:.2f}",
                row.access,
                str(row.candidates),
                str(row.image_queries),
                f"{row.seconds:.0f}",
            )
        self._out.print(table)
        if found.audits:
            from unsee.audit.side_by_side import audits_table, served_table

            self._text_table(audits_table(found.audits))
            self._text_table(served_table(found.served))
        seeds = found.methods[0].seeds
        over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
        self._out.print(f"{over}, in points")

    def experiments(self, known: Sequence[Experiment]) -> None:
        """What can be reproduced."""
        if self.as_json:
            self._json({"experiments": [{"name": e.name, "title": e.title, "data": e.data} for e in known]})
            return
        table = Table("name", "in the paper", "what", "data")
        for e in known:
            table.add_row(e.name, e.paper, e.title, ", ".join(e.data))
        self._out.print(table)

    def sweep(self) -> SweepWatch:
        """A line for every run of a sweep, with the time left over all of it."""
        from unsee.methods.forecast import duration

        started = time.monotonic()

        def watch(
            done: int, total: int, workspace: Workspace, request: RunRequest, result: ResultRecord, seconds: float
        ) -> None:
            left = (time.monotonic() - started) / done * (total - done)
            name = Path(workspace.data.name).name
            parts = [f"{name} {request.method} seed {request.seed}", f"forgetting {len(request.forget)}"]
            what = ", ".join(parts + [f"{name} {value}" for name, value in request.settings.items()])
            self.say(
                f"run {done} of {total}, about {duration(left)} left: {what}: "
                f"H {100 * result.test.h:.2f} ({seconds:.0f} s)"
            )

        return watch

    def reproduced(self, found: Sequence[Reproduced], files: Sequence[Path]) -> None:
        """Ours beside the paper's, the model named in every header."""
        from unsee.report.paper.rendering import tabulate

        if self.as_json:
            self._json({"experiments": [each.as_dict() for each in found], "files": [str(path) for path in files]})
            return
        for each in found:
            given = tabulate(each)
            self._out.print(f"\n{given.title}", soft_wrap=True)
            self._text_table(given)
            for note in given.notes:
                self._out.print(note, soft_wrap=True)
        self._out.print("mean ± standard deviation over seeds, in points")
        for path in files:
            self._out.print(f"written: {path}", soft_wrap=True)

    def report(self, files: list[Path]) -> None:
        """The path of the report, and of the files beside it."""
        page, *also = (str(path) for path in files)
        if self.as_json:
            self._json({"report": page, "also": also})
            return
        for name, path in (("report", page), *(("also", path) for path in also)):
            self._out.print(f"{name}: {path}", soft_wrap=True)

    def show(self, content: Mapping[str, Any], parts: Sequence[str | Table]) -> None:
        """Sentences and tables for a person, or the whole content for a program."""
        if self.as_json:
            self._json(content)
            return
        for part in parts:
            self._out.print(part, soft_wrap=isinstance(part, str))

    def timings(self, found: Mapping[str, Any]) -> None:
        """The benchmark's table."""
        if self.as_json:
            self._json(found)
            return
        machine = found["machine"]
        self._out.print(
            f"{found['model']}, population 20, {machine['threads']} threads, torch {machine['torch']}; "
            f"matrix product {machine['gemm_gmacs']} GMAC/s",
            soft_wrap=True,
        )
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
        self._out.print(table)
        self._out.print(
            "(b) cached image features, every class at 77 positions through transformers, batched\n"
            "(c) the published way, one candidate: model rebuilt, all images encoded again, 77 positions\n"
            "    (* scaled to all images from 400 of them)"
        )

    def data_sets(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Every named data set, one line each."""
        if self.as_json:
            self._json({"data": list(rows)})
            return
        table = Table("name", "there", "where", "how to get it")
        for row in rows:
            table.add_row(row["name"], "yes" if row["found"] else "no", row["place"], row["short"])
        self._out.print(table)
        self._out.print("Details of one: unsee data show NAME", soft_wrap=True)

    def data_set(self, row: Mapping[str, Any]) -> None:
        """All about one data set."""
        if self.as_json:
            self._json(row)
            return
        state = "found" if row["found"] else "not found"
        self._out.print(f"{row['name']}: {state}, {row['where']}\n    {row['get']}", soft_wrap=True)

    def models(self, families: Sequence[ModelFamily]) -> None:
        """The kinds of models that can be loaded, one line each."""
        if self.as_json:
            self._json({"models": [dataclasses.asdict(family) for family in families]})
            return
        table = Table("kind", "--model", "what it is", "text tower", "tested against")
        for family in families:
            table.add_row(family.name, family.write, family.about, family.text, family.tested)
        self._out.print(table)
        self._out.print(
            "fast: computes only what reaches the answers; generic: the library's own forward. Tested on random "
            "weights in each family's own form; unsee models check NAME tests yours.",
            soft_wrap=True,
        )

    def load(self, found: LoadResult) -> None:
        """The service under load."""
        if self.as_json:
            self._json(found.as_dict())
            return
        self._out.print(
            f"{found.clients} clients, {found.seconds:.0f} s, {found.requests} requests: {found.server_errors} 5xx, "
            f"{found.refused} 4xx, {found.failed} failed, {found.wrong} wrong answers\n"
            f"p50 {1000 * found.p50:.0f} ms, p99 {1000 * found.p99:.0f} ms\n"
            f"{found.throughput:.1f} images/s, bare model {found.bare_throughput:.1f}: ratio {found.ratio:.2f}\n"
            f"processor time {1000 * found.cpu_per_request:.1f} ms a request, "
            f"bare model {1000 * found.bare_cpu_per_image:.1f} ms an image\n"
            f"memory {found.memory_warm / 2**20:.0f} MiB after warm-up, {found.memory_end / 2**20:.0f} MiB at the end: "
            f"{100 * found.memory_growth:+.1f} %",
            soft_wrap=True,
        )

    def overhead(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """How little of a run is not the model."""
        if self.as_json:
            self._json({"overhead": rows})
            return
        table = Table("setting", "m", "shared", "own", "seconds", "search and bookkeeping")
        for row in rows:
            sizes = (str(row[key]) for key in ("setting", "contexts", "shared", "own"))
            table.add_row(*sizes, f"{row['seconds']:.1f}", f"{100 * row['overhead_share']:.2f} %")
        self._out.print(table)

    def _scores(self, title: str, rows: Sequence[tuple[str, Scores | None]]) -> None:
        self._out.print(title, soft_wrap=True)
        table = Table("", "H", "Err_for", "Acc_mem")
        for name, scores in rows:
            if scores is not None:
                table.add_row(name, *(f"{100 * value:.2f}" for value in (scores.h, scores.err_for, scores.acc_mem)))
        self._out.print(table)

    def _text_table(self, given: TextTable) -> None:
        table = Table()
        for i, name in enumerate(given.header):
            table.add_column(name, justify="right" if given.numeric(i) else "left")
        for row in given.rows:
            table.add_row(*row)
        self._out.print(table)

    def _json(self, content: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(dict(content), ensure_ascii=False, allow_nan=False) + "\n")

    def _line(self, generation: Generation, settings: Settings) -> None:
        total = -(-settings.limit // settings.population)
        if not self._due() and generation.number < total:
            return
        h = 100 * generation.valid.h if generation.valid else 0.0
        left = generation.seconds / max(1, generation.candidates) * (settings.limit - generation.candidates)
        self.say(
            f"generation {generation.number}/{total}  loss {generation.losses.min():.4f}  valid H {h:.2f}  "
            f"{settings.limit - generation.candidates} candidates left, about {left:.0f} s"
        )

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._last < EVERY:
            return False
        self._last = now
        return True


def _served(found: ServedScores | None) -> list[tuple[str, Scores | None]]:
    """The line of what a caller sees, where that is not simply what the prompt answers."""
    return [] if found is None else [(f"as served ({found.rule})", found.scores)]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _listed(pairs: tuple[tuple[str, float], ...] | None) -> str:
    if pairs is None:
        return "–"
    return ", ".join(f"{name} {100 * confidence:.1f}%" for name, confidence in pairs)
