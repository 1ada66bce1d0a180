"""A finished run as the page shows it: scores, images, classes, confusion, the verdict, other trade-offs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unsee.answers.metrics import harmonic_mean
from unsee.answers.rules import confidence_text
from unsee.data.class_names import listed
from unsee.methods.registry import METHODS
from unsee.runs.folder import PICK, read_answers
from unsee.runs.prompt import WEIGHTS, load_prompt
from unsee.runs.records import ConfigRecord, PickRecord, ResultRecord, read_record
from unsee.runs.stored import StoredRun
from unsee.settings import FIELDS
from unsee.studio.drawing import Chart, make_chart
from unsee.text_table import TextTable, percent
from unsee.types import Candidate, Doubles, Ints, Mask

PAGE = 27  # images on one page
MAPPED = 15  # classes that a table of confusion has room for
SHOW = {
    "lost": "worst kept: not recognised, surest first",
    "still": "still recognised, surest first",
    "forget": "all of classes to forget",
    "keep": "all of classes to keep",
}


@dataclass(frozen=True)
class Shot:
    """One test image with its answers."""

    row: int
    label: str
    forgotten: bool
    before: str
    after: str  # as served
    wanted: bool


@dataclass(frozen=True)
class Shots:
    """A page of test images."""

    shown: list[Shot]
    total: int
    pages: int


def summary_words(result: ResultRecord) -> str:
    """The result in two sentences."""
    zero, test, served = result.zero_shot, result.test, result.served
    was = (f" (before: {percent(zero.err_for)})", f" (before: {percent(zero.acc_mem)})") if zero else ("", "")
    words = (
        f"Under the prompt alone, the model gives a wrong label to {percent(test.err_for)} of the test images of "
        f"{listed(result.forget)}{was[0]} and the right one to {percent(test.acc_mem)} of the others{was[1]}."
    )
    if served is None:
        return words
    found = served.scores
    return (
        f"{words} As served ({served.rule}), a wrong one to {percent(found.err_for)} and the right one to "
        f"{percent(found.acc_mem)}."
    )


def score_rows(result: ResultRecord) -> list[tuple[str, ...]]:
    """Scores in percent, a row for each way of answering."""
    ways = {"plain prompt (before)": result.zero_shot, "prompt alone": result.test}
    if result.served is not None:
        ways[f"as served ({result.served.rule})"] = result.served.scores
    ways["forgotten names removed, nothing tuned"] = result.label_mask
    return [
        (name, *(f"{100 * value:.2f}" for value in (s.h, s.err_for, s.acc_mem)))
        for name, s in ways.items()
        if s is not None
    ]


def first_shown(run: StoredRun) -> str:
    """What most needs a look, of what there is."""
    return next((show for show in SHOW if shots(run, show, "", 1).total), "lost")


def shots(run: StoredRun, show: str, class_name: str, page: int) -> Shots:
    """Test images of this kind, those that most need a look first."""
    if run.answers is None:
        return Shots([], 0, 0)
    found = read_answers(run.folder)
    labels, served = run.answers["labels"], run.answers.get("answers_served", run.answers["answers_after"])
    sure = np.asarray(found.get("sure_served", found.get("sure_after", np.zeros(len(labels)))), dtype=np.float64)
    gone, right = run.forgotten[labels], served == labels
    kinds = {"lost": ~gone & ~right, "still": gone & right, "forget": gone, "keep": ~gone}
    chosen = kinds.get(show, kinds["lost"])
    if class_name in run.class_names:
        chosen = chosen & (labels == run.class_names.index(class_name))
    rows = np.flatnonzero(chosen)
    if show in ("lost", "still"):
        rows = rows[np.argsort(-sure[rows], kind="stable")]
    pages = -(-len(rows) // PAGE)
    page = max(1, min(page, pages or 1))
    part = rows[(page - 1) * PAGE : page * PAGE]
    before = run.answers.get("answers_before")
    rule = run.config.settings.serve
    return Shots([_shot(run, int(row), before, served, sure, rule) for row in part], len(rows), pages)


def _shot(run: StoredRun, row: int, before: Ints | None, served: Ints, sure: Doubles, rule: str) -> Shot:
    names, labels = run.class_names, run.answers["labels"] if run.answers is not None else served
    label, answer = int(labels[row]), int(served[row])
    after = "no label" if answer < 0 else names[answer] + confidence_text(float(sure[row]), rule, 0)
    gone = bool(run.forgotten[label])
    first = "–" if before is None else names[int(before[row])]
    return Shot(row, names[label], gone, first, after, gone != (answer == label))


def class_rows(run: StoredRun) -> list[dict[str, object]]:
    """Accuracy of each class, before, prompt alone and as served; forgotten classes first."""
    found = []
    for name, gone in sorted(zip(run.class_names, run.forgotten, strict=True), key=lambda pair: not pair[1]):
        shares = run.result.per_class[name]
        served = shares.served if shares.served is not None else shares.after
        found.append(
            {"name": name, "gone": bool(gone), "before": shares.before, "alone": shares.after, "served": served}
        )
    return found


def confusion_tables(run: StoredRun) -> list[TextTable]:
    """True class by answer as shares of each row, before and as served; many classes are counted together."""
    names, gone = run.class_names, run.forgotten
    order = np.argsort(~gone, kind="stable")
    tables = []
    for when, title in (("before", "Plain prompt (before)"), ("served", "As served")):
        counts = run.confusion().get(when)
        if counts is None:
            continue
        if len(names) > MAPPED:
            rows, header = _blocks(counts, gone), ("", "right", "another to forget", "another to keep", "no label")
            named = list(zip(("to forget", "to keep"), rows, strict=True))
        else:
            header = ("", *(names[i] for i in order), "no label")
            named = [(names[i], counts[i][np.append(order, len(names))]) for i in order]
        cells = [[name, *(f"{100 * c / max(1, row.sum()):.0f}" for c in row)] for name, row in named]
        tables.append(TextTable(header, cells, title))
    return tables


def _blocks(counts: Ints, gone: Mask) -> list[Ints]:
    inner, none = counts[:, :-1], counts[:, -1]
    wrong = inner - np.diag(np.diag(inner))
    return [
        np.array([np.diag(inner)[own].sum(), wrong[own][:, gone].sum(), wrong[own][:, ~gone].sum(), none[own].sum()])
        for own in (gone, ~gone)
    ]


def ordered_front(front: Sequence[Candidate]) -> list[Candidate]:
    """The trade-offs to choose from, those that keep least first: the order of the handle."""
    return sorted(front, key=lambda c: (c.trade_off.acc_mem, -c.trade_off.err_for, c.trade_off.entropy))


def front_chart(front: Sequence[Candidate]) -> Chart:
    """Err_for against Acc_mem, a point for each trade-off."""
    kept = [100 * c.trade_off.acc_mem for c in front]
    gone = [100 * c.trade_off.err_for for c in front]
    return make_chart("Err_for, %", kept, gone, "Acc_mem, %", (min(gone), max(gone)))


def own_place(front: Sequence[Candidate], folder: Path) -> int | None:
    """Which of these trade-offs is the prompt of the run itself; None if it has left the front, or has no file."""
    if not (folder / WEIGHTS).is_file():
        return None
    own = load_prompt(folder).contexts
    return next((i for i, c in enumerate(front) if np.array_equal(c.contexts, own)), None)


def front_facts(front: Sequence[Candidate], run: Path) -> list[dict[str, str]]:
    """Every trade-off in words, with the command line that picks it."""
    own = own_place(front, run)
    return [
        {
            "own": "This is the prompt of the run." if i == own else "Another prompt than the run's.",
            "acc_mem": f"{100 * c.trade_off.acc_mem:.1f} %",
            "err_for": f"{100 * c.trade_off.err_for:.1f} %",
            "h": f"{100 * harmonic_mean(c.trade_off.err_for, c.trade_off.acc_mem):.1f} %",
            "entropy": f"{c.trade_off.entropy:.2f}",
            "command": f"unsee pick {shlex.quote(str(run))} "
            + " ".join(f"--{name.replace('_', '-')} {value!r}" for name, value in bounds(c).items()),
        }
        for i, c in enumerate(front)
    ]


def bounds(candidate: Candidate) -> dict[str, float]:
    """What `unsee pick` is asked for, so that it picks this one: nothing else on the front has as much of each."""
    t = candidate.trade_off
    return {"acc_mem": t.acc_mem, "err_for": t.err_for, "entropy": t.entropy}


def picks(folder: Path) -> list[tuple[str, PickRecord]]:
    """Prompts that were picked from this run and lie inside it."""
    found = sorted((folder / "picked").glob(f"*/{PICK}"))
    return [(path.parent.name, read_record(PickRecord, path, "holds no picked prompt")) for path in found]


def command_line(config: ConfigRecord, folder: Path) -> str:
    """A command that makes the same run: every setting that is not its own default is named."""
    s, names = config.settings, config.forget
    words = ["unsee", "forget", config.data.name, *(part for name in names for part in ("--forget", name))]
    words += ["--model", config.model.address or config.model.name, "--method", s.method, "--preset", s.preset]
    words += ["--seed", str(s.seed)]
    for name, value in s.as_dict().items():
        if name not in ("method", "preset", "seed") and value != FIELDS[name].default:
            words += ["--set", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join([*words, "--out", f"{folder}-again"])


def resume_line(config: ConfigRecord, folder: Path) -> str:
    """A command that continues the run to twice its limit; "" for a method that cannot be continued."""
    s, method = config.settings, METHODS[config.settings.method]
    if method.untuned or method.planned_steps:
        return ""
    name = next((name for name in ("image_queries", "budget") if getattr(s, name) is not None), "iterations")
    return shlex.join(["unsee", "resume", str(folder), f"--{name.replace('_', '-')}", str(2 * getattr(s, name))])


def class_shares(run: StoredRun) -> TextTable:
    """Accuracy by class, as shares, for a spreadsheet."""
    rows = [
        [str(row["name"]), "forget" if row["gone"] else "keep"]
        + ["" if row[way] is None else f"{row[way]:.6f}" for way in ("before", "alone", "served")]
        for row in class_rows(run)
    ]
    return TextTable(("class", "fate", "plain prompt", "prompt alone", "as served"), rows)


def answers_table(run: StoredRun) -> TextTable:
    """The top answer to every test image, for a spreadsheet."""
    if run.answers is None:
        return TextTable(("image",), [])
    names = [*run.class_names, ""]
    ways = [way for way in ("labels", "answers_before", "answers_after", "answers_served") if way in run.answers]
    words = {"labels": "true class", "answers_before": "plain prompt", "answers_after": "prompt alone"}
    columns = [run.answers[way] for way in ways]
    rows = [[str(i), *(names[int(column[i])] for column in columns)] for i in range(len(columns[0]))]
    return TextTable(("image", *(words.get(way, "as served") for way in ways)), rows)
