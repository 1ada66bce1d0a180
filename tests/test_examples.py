from __future__ import annotations

import ast
import json
import re
import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import unsee

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_the_own_service_example_forgets_within_its_budget(capsys, monkeypatch, demo_features, few_demo_photos):
    cached = partial(unsee.load_model, cache=unsee.FeatureCache(demo_features))
    monkeypatch.setattr(unsee, "load_model", cached)
    runpy.run_path(str(EXAMPLES / "own_service.py"))["main"](iterations=10)
    text = capsys.readouterr().out
    before, after = map(float, re.findall(r"H (\d\.\d+)", text))
    assert before < after
    assert "110 candidates" in text


def test_the_own_photos_example_works_on_a_folder_of_photos(capsys, monkeypatch, tmp_path):
    demo = unsee.load_data("demo").test
    for label, name in enumerate(demo.class_names[2:6], 2):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in np.flatnonzero(demo.labels == label)[:16]:
            demo.read(int(i)).save(tmp_path / "photos" / name / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "own_photos.py"))["main"]("photos", "cat,bird", iterations=20)
    text = capsys.readouterr().out
    before, after = map(float, re.search(r"H (\d\.\d+) -> (\d\.\d+)", text).groups())
    assert before < after
    assert len(re.findall(r"^forget +(?:cat|bird) +known", text, re.MULTILINE)) == 2
    assert unsee.load_prompt("runs/own-photos").forget == ("bird", "cat")


NOTEBOOK = json.loads((EXAMPLES / "first-steps.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, object]) -> object:
    """Runs a cell as a notebook does, and gives the value of its last line, which is what a notebook shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom_and_forgets(
    capsys, monkeypatch, tmp_path, demo_features, few_demo_photos
):
    monkeypatch.setattr(unsee, "load_model", partial(unsee.load_model, cache=unsee.FeatureCache(demo_features)))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in CODE:
        source = "".join(cell["source"]).replace(', cache=unsee.FeatureCache("features")', "")
        shown = run_cell(source, names)
        printed = capsys.readouterr()
        said = printed.out + printed.err
        assert said or shown is not None, f"nothing is shown: {source}"
    found = names["found"]
    assert found.zero_shot.h < 0.5 < found.tuned.h
    assert (tmp_path / "runs" / "first-steps" / "result.json").is_file()


def test_the_notebook_is_stored_with_what_it_shows():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    for cell in CODE:
        assert cell["outputs"]
        assert not [output for output in cell["outputs"] if output["output_type"] == "error"]
    text = json.dumps(NOTEBOOK)
    assert not re.search(r"/(home|root|tmp|work|Users)/", text), "paths of the machine that it ran on"
