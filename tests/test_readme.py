"""README and docs hold: Python blocks run, commands parse, links lead to files, schemas are those of the code."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pydantic
import pytest

import unsee
from unsee.cli import cli
from unsee.runs.records import RECORDS
from unsee.settings import list_settings

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
EXTERNAL = ("http://", "https://", "#")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("unsee ")]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def check_command(line: str) -> None:
    """Parses a command line as click would; files it names need not exist. Raises click.UsageError."""
    _, *words = shlex.split(line, comments=True)
    command: click.Command = cli
    context = click.Context(cli, info_name="unsee")
    while isinstance(command, click.Group) and words:
        name, found, words = command.resolve_command(context, words)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
        if isinstance(command, click.Group) and words and words[0].startswith("-"):
            break
    command.parse_args(context, words)


ALONE = [page for page in PAGES if blocks(page, "python") and page.name != "first-hour.md"]  # see test_first_hour.py


@pytest.mark.parametrize("page", ALONE, ids=name_of)
def test_every_python_block_runs(page, tmp_path, monkeypatch, capsys, demo_features, few_demo_photos):
    load, features = unsee.load_model, unsee.FeatureCache(demo_features)
    monkeypatch.setattr(unsee, "load_model", lambda name, **given: load(name, **{"cache": features, **given}))
    monkeypatch.setattr(unsee, "FeatureCache", lambda folder: features)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in blocks(page, "python"):  # the blocks of a page follow one another
        exec(compile(block, name_of(page), "exec"), names)


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in commands(page)])
def test_every_command_line_parses(page, line):
    check_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "unsee forgett demo",
        "unsee forget demo --forget cat --no-such-option",
        "unsee data show cifar10 --no-such-option",
        "unsee data nothing",
        "unsee forget",
        "unsee forget demo --forget cat --method nothing",
    ],
)
def test_a_wrong_command_line_would_be_found(line):
    with pytest.raises(click.UsageError):
        check_command(line)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of)
def test_every_relative_link_leads_to_a_file(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'<img src="([^"]+)"', text):
        if not target.startswith(EXTERNAL):
            assert (page.parent / target.partition("#")[0]).is_file(), f"{name_of(page)} links to {target}"


def test_readme_is_short_and_its_first_command_comes_early():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 160
    assert not [line for line in text.splitlines() if len(line) > 120]
    before = text.partition("\nunsee ")[0]
    assert len(before.split()) <= 100


def test_the_tables_of_the_readme_are_those_of_the_pages():
    rows = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    pages = [(ROOT / "docs" / page).read_text(encoding="utf-8").splitlines() for page in ("results.md", "audit.md")]
    assert len(rows) >= 16
    assert set(rows) <= {row for page in pages for row in page}


# Each term, as a pattern, and where the README says what it is.
EXPLAINED = {
    r"H\b": "**H**: the harmonic mean",
    "Err_for": "**Err_for**: percent",
    "Acc_mem": "**Acc_mem**: percent",
    "label mask": "**label mask**: the same",
    "context token": "*context tokens*",
    "prompt alone": "*prompt alone*",
    "as served": "**as served**: the prompt, then a rule",
    "black box": "*black box*: it gets",
    "LCS": "*Latent Context Sharing* (LCS)",
    "gate": "A *gate* is such code",
    "serving code": "*Serving code* runs",
    "probe": "a *probe*, a classifier",
    "bits": "*bits*, what the label",
}


@pytest.mark.parametrize("term", EXPLAINED)
def test_readme_explains_every_term_where_it_first_uses_it(term):
    text = re.sub(r"^```.*?^```", "", README.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = " ".join(text.split())
    used = re.search(rf"\b{term}", text, flags=re.IGNORECASE if term.islower() else 0)
    assert used is not None
    assert EXPLAINED[term] in text
    assert used.start() >= text.index(EXPLAINED[term]), text[used.start() - 40 : used.end() + 40]


@pytest.mark.parametrize("page", [README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_pages_use_the_words_of_the_field(page):
    text = page.read_text(encoding="utf-8").lower()
    assert not [word for word in ("tells", "told", "struck", "named right", "served as") if word in text]


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"/root/|/home/|/work/|/tmp/", page.read_text(encoding="utf-8")), name_of(page)


def test_api_reference_has_every_public_name():
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^::: unsee\.(\w+)$", text, flags=re.MULTILINE)) == set(unsee.__all__)


def test_published_schemas_are_those_of_the_code():
    if tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 13):
        pytest.skip("pydantic before 2.13 leaves the docstrings of dataclasses out of schemas")
    script = runpy.run_path(str(ROOT / "docs" / "schemas.py"))
    published = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "schemas").iterdir()}
    assert len(published) == len(RECORDS) + 1  # and audit.json
    assert published == script["schemas"](), "run: python docs/schemas.py"


def test_the_page_of_settings_is_that_of_the_code():
    script = runpy.run_path(str(ROOT / "docs" / "settings_page.py"))
    published = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert all(f"| `{one.name}` |" in published for one in list_settings())
    assert published == script["page"](), "run: python docs/settings_page.py"


def test_the_site_builds_without_warnings(tmp_path):
    pytest.importorskip("mkdocs", reason="make docs installs it")
    arguments = ["build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["']?https?:""", page)  # nothing is fetched
